#include "passes/registry.h"

#include <fmt/format.h>

#include "passes/canonicalize.h"
#include "passes/chunk.h"
#include "passes/concretize.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/isolate_ep_pg.h"
#include "passes/overlap_ep.h"
#include "passes/pipeline.h"
#include "passes/reassign_pgs.h"
#include "passes/symbolize.h"

namespace epweave {
namespace {

template <class Row>
const Row* find_row(const std::vector<Row>& rows, std::string_view name) {
  for (const Row& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

PassResult run_dce(const Graph& graph, const Options&) {
  return {dce(graph)};
}
PassResult run_canonicalize(const Graph& graph, const Options&) {
  return {canonicalize(graph)};
}
PassResult run_dedup_unshard(const Graph& graph, const Options&) {
  return {dedup_unshard(graph)};
}

PassResult run_chunk(const Graph& graph, const Options& options) {
  return chunk(graph, {.roots = options.list("roots"),
                       .dim = options.text("dim") == "seq" ? ChunkDim::kSeq : ChunkDim::kBatch,
                       .parts = options.integer("parts"),
                       .require_exchange = options.flag("require-exchange"),
                       .exact_casts = options.text("cast") == "exact"});
}

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

PassResult run_isolate_ep_pg(const Graph& graph, const Options&) {
  return isolate_ep_pg(graph);
}
PassResult run_reassign_pgs(const Graph& graph, const Options&) {
  return reassign_pgs(graph);
}
PassResult run_symbolize(const Graph& graph, const Options& options) {
  return symbolize(graph, {.inputs = options.list("inputs")});
}
PassResult run_concretize(const Graph& graph, const Options&) {
  return concretize(graph);
}

// The options that chunk shares with presets that contain it.
const OptionSpec kRoots{"roots", OptionKind::kList, "layers.*.moe",
                        "patterns of module paths, compared component by component"};
const OptionSpec kDim{
    "dim", OptionKind::kChoice, "batch", "dimension of the token grid to divide", {"batch", "seq"}};
const OptionSpec kParts{"parts", OptionKind::kInt, "2", "into how many equal parts", {}, 2};

std::vector<PassInfo> make_passes() {
  return {
      {.name = "dce", .summary = "drop nodes whose results nothing needs", .options = {}, .run = run_dce},
      {.name = "canonicalize",
       .summary = "remove detaches, views and slices that change nothing; spell views as reshape",
       .options = {},
       .run = run_canonicalize},
      {.name = "dedup-unshard",
       .summary = "gather each sharded parameter once",
       .options = {},
       .run = run_dedup_unshard},
      {.name = "symbolize",
       .summary = "give a token count that is a plain number a symbol, so that chunk can divide it",
       .options =
           {{"inputs", OptionKind::kList, "[]",
             "inputs and dimensions that count tokens: [tokens:0,labels:0]; none: tokens, inputs, labels "
             "and positions"}},
       .run = run_symbolize},
      {.name = "chunk",
       .summary = "run selected modules on parts of the tokens, one after the other",
       .options = {kRoots,
                   kDim,
                   kParts,
                   {"require-exchange", OptionKind::kFlag, "true",
                    "chunk only modules that exchange tokens between ranks"},
                   {"cast",
                    OptionKind::kChoice,
                    "linear",
                    "sums of parts: cast each part (as torchtitan does), or join before a narrowing cast",
                    {"linear", "exact"}}},
       .run = run_chunk},
      {.name = "isolate-ep-pg",
       .summary = "give token exchanges a process group of their own",
       .options = {},
       .run = run_isolate_ep_pg},
      {.name = "reassign-pgs",
       .summary = "give gathers of parameters a process group of their own",
       .options = {},
       .run = run_reassign_pgs},
      {.name = "overlap-ep",
       .summary = "hide each part's token exchanges behind the other parts' compute",
       .options =
           {{"roots", OptionKind::kList, "[]", "which chunked regions, by module pattern; none: all"},
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
       .run = run_overlap_ep},
      {.name = "concretize", .summary = "make token symbols numbers", .options = {}, .run = run_concretize},
  };
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and only then
// make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its parts apart.
std::string expand_ep_overlap(const Options& options) {
  const std::string roots = print_value(options.list("roots"));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}chunk{{roots={},dim={},parts={}}},isolate-ep-pg,dce,"
      "overlap-ep{{roots={}}},concretize",
      options.text("symbolize") == "yes" ? "symbolize," : "", roots, options.text("dim"),
      options.integer("parts"), roots);
}

std::vector<PresetInfo> make_presets() {
  return {
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and hide each part's token exchange behind the others' compute",
       .options = {kRoots,
                   kDim,
                   kParts,
                   {"symbolize",
                    OptionKind::kChoice,
                    "no",
                    "for graphs whose token count is a plain number: give it a symbol first",
                    {"yes", "no"}}},
       .expand = expand_ep_overlap},
  };
}

}  // namespace

const PassInfo* Registry::find_pass(std::string_view name) const {
  return find_row(passes, name);
}
const PresetInfo* Registry::find_preset(std::string_view name) const {
  return find_row(presets, name);
}

const Registry& registry() {
  static const Registry kRegistry = {make_passes(), make_presets()};
  return kRegistry;
}

}  // namespace epweave
