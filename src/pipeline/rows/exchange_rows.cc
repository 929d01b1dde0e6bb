#include "pipeline/rows/exchange_rows.h"

#include <string_view>

#include "passes/isolate_ep_pg.h"
#include "passes/mark_eager_chunks.h"
#include "passes/overlap_ep/overlap_ep.h"
#include "passes/reassign_pgs.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {
namespace {

PairFirst pair_first_named(std::string_view name) {
  if (name == "auto") return PairFirst::kAuto;
  return name == "yes" ? PairFirst::kYes : PairFirst::kNo;
}

PassResult run_overlap_ep(const Graph& graph, const Options& options) {
  return overlap_ep(
      graph, {.roots = options.list("roots"),
              .pair_first = pair_first_named(options.text("pair-first")),
              .movement = options.text("movement") == "minimal" ? Movement::kMinimal : Movement::kDelay,
              .require_exchange = options.flag("require-exchange"),
              .validate_only = options.flag("validate-only")});
}

PassResult run_mark_eager_chunks(const Graph& graph, const Options&) {
  return mark_eager_chunks(graph);
}
PassResult run_isolate_ep_pg(const Graph& graph, const Options& options) {
  return isolate_ep_pg(graph, is_chosen(options, "counts", "own") ? CountGroup::kOwn : CountGroup::kShared);
}
PassResult run_reassign_pgs(const Graph& graph, const Options&) {
  return reassign_pgs(graph);
}

}  // namespace

PassInfo mark_eager_chunks_row() {
  return {.name = "mark-eager-chunks",
          .summary = "mark the parts of modules that torchtitan chunked in eager mode, before tracing",
          .options = {},
          .run = run_mark_eager_chunks};
}

PassInfo isolate_ep_pg_row() {
  return {
      .name = "isolate-ep-pg",
      .summary = "give token exchanges a process group of their own",
      .options = {{.name = "counts",
                   .kind = OptionKind::kChoice,
                   .help = "exchanges of token counts: on the group of the tokens (shared, the default), or "
                           "on one of their own",
                   .choices = {"shared", "own"},
                   .is_optional = true}},
      .run = run_isolate_ep_pg};
}

PassInfo reassign_pgs_row() {
  return {.name = "reassign-pgs",
          .summary = "give gathers of parameters a process group of their own",
          .options = {},
          .run = run_reassign_pgs};
}

PassInfo overlap_ep_row() {
  return {
      .name = "overlap-ep",
      .summary = "hide each part's token exchanges behind the other parts' compute",
      .options = {{"roots", OptionKind::kList, "[]", "which chunked regions, by module pattern; none: all"},
                  {"pair-first",
                   OptionKind::kChoice,
                   "auto",
                   "launch all parts' first exchanges back to back; auto: unless the region is a whole block",
                   {"auto", "yes", "no"}},
                  {"movement",
                   OptionKind::kChoice,
                   "delay",
                   "delay nodes only, as torchtitan does, or move as few as the schedule allows",
                   {"delay", "minimal"}},
                  {"require-exchange", OptionKind::kFlag, "true",
                   "decline a graph that has no labelled token exchange in a chunked region"},
                  {"validate-only", OptionKind::kFlag, "false",
                   "make the schedule and prove it, but leave the graph as it is"}},
      .run = run_overlap_ep};
}

}  // namespace epweave
