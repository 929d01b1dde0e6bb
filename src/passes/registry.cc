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

namespace epweave {
namespace {

template <class Row>
const Row* find_row(const std::vector<Row>& rows, std::string_view name) {
  for (const Row& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

// "layers.*.moe:4" without the part count.
std::string_view pattern_of(std::string_view root) {
  return root.substr(0, root.find(':'));
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and only then
// make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its parts apart.
std::string expand_ep_overlap(const Options& options) {
  std::vector<std::string> scheduled;
  for (const std::string& root : options.list("roots")) scheduled.emplace_back(pattern_of(root));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,chunk{{roots={},dim={},parts={}}},isolate-ep-pg,dce,overlap-ep{{roots={"
      "}}},"
      "concretize",
      print_value(options.list("roots")), options.text("dim"), options.integer("parts"),
      print_value(scheduled));
}

PassResult run_chunk(const Graph& graph, const Options& options) {
  return chunk(graph, {.roots = options.list("roots"),
                       .dim = options.text("dim") == "seq" ? ChunkDim::kSeq : ChunkDim::kBatch,
                       .parts = options.integer("parts"),
                       .require_exchange = options.flag("require-exchange"),
                       .exact_casts = options.text("cast") == "exact"});
}

PassResult run_overlap_ep(const Graph& graph, const Options& options) {
  const std::string& pair = options.text("pair-first");
  return overlap_ep(graph, {.roots = options.list("roots"),
                            .pair_first = pair == "auto"  ? PairFirst::kAuto
                                          : pair == "yes" ? PairFirst::kYes
                                                          : PairFirst::kNo,
                            .require_exchange = options.flag("require-exchange")});
}

Registry make_registry() {
  Registry rows;
  rows.passes = {
      {.name = "dce",
       .summary = "drop nodes whose results nothing needs",
       .options = {},
       .run = [](const Graph& graph, const Options&) { return PassResult{dce(graph)}; }},
      {.name = "canonicalize",
       .summary = "remove detaches, views and slices that change nothing; spell views as reshape",
       .options = {},
       .run = [](const Graph& graph, const Options&) { return PassResult{canonicalize(graph)}; }},
      {.name = "dedup-unshard",
       .summary = "gather each sharded parameter once",
       .options = {},
       .run = [](const Graph& graph, const Options&) { return PassResult{dedup_unshard(graph)}; }},
      {.name = "chunk",
       .summary = "run selected modules on parts of the tokens, one after the other",
       .options =
           {
               {"roots", OptionKind::kList, "layers.*.moe",
                "patterns of module paths, compared component by component"},
               {"dim",
                OptionKind::kChoice,
                "batch",
                "dimension of the token grid to divide",
                {"batch", "seq"}},
               {"parts", OptionKind::kInt, "2", "into how many equal parts", {}, 2},
               {"require-exchange", OptionKind::kFlag, "true",
                "chunk only modules that exchange tokens between ranks"},
               {"cast",
                OptionKind::kChoice,
                "linear",
                "sums of parts: cast each part (as torchtitan does), or join before a narrowing cast",
                {"linear", "exact"}},
           },
       .run = run_chunk},
      {.name = "isolate-ep-pg",
       .summary = "give token exchanges a process group of their own",
       .options = {},
       .run = [](const Graph& graph, const Options&) { return isolate_ep_pg(graph); }},
      {.name = "overlap-ep",
       .summary = "hide each part's token exchanges behind the other part's compute",
       .options =
           {
               {"roots", OptionKind::kList, "[]", "which chunked regions, by module pattern; none: all"},
               {"pair-first",
                OptionKind::kChoice,
                "auto",
                "launch both parts' first exchanges back to back; auto: unless the region is a whole block",
                {"auto", "yes", "no"}},
               {"require-exchange", OptionKind::kFlag, "true",
                "decline a graph that has no labelled token exchange in a chunked region"},
           },
       .run = run_overlap_ep},
      {.name = "concretize",
       .summary = "make token symbols numbers",
       .options = {},
       .run = [](const Graph& graph, const Options&) { return concretize(graph); }},
  };
  rows.presets.push_back(
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and overlap one part's token exchange with the other's compute",
       .options =
           {
               {"roots", OptionKind::kList, "layers.*.moe", "patterns of module paths to chunk"},
               {"dim",
                OptionKind::kChoice,
                "batch",
                "dimension of the token grid to divide",
                {"batch", "seq"}},
               {"parts", OptionKind::kInt, "2", "into how many parts", {}, 2},
           },
       .expand = expand_ep_overlap});
  return rows;
}

}  // namespace

const PassInfo* Registry::find_pass(std::string_view name) const {
  return find_row(passes, name);
}
const PresetInfo* Registry::find_preset(std::string_view name) const {
  return find_row(presets, name);
}

const Registry& registry() {
  static const Registry kRegistry = make_registry();
  return kRegistry;
}

}  // namespace epweave
