#include "pipeline/registry.h"

#include "passes/bypass_joins.h"
#include "passes/canonicalize.h"
#include "passes/concretize.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/specialize.h"
#include "passes/symbolize.h"
#include "pipeline/presets.h"
#include "pipeline/rows/chunk_row.h"
#include "pipeline/rows/compiler_rows.h"
#include "pipeline/rows/exchange_rows.h"
#include "pipeline/rows/memory_rows.h"
#include "pipeline/rows/schedule_rows.h"

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
PassResult run_symbolize(const Graph& graph, const Options& options) {
  return symbolize(graph, {.inputs = options.list("inputs")});
}
PassResult run_concretize(const Graph& graph, const Options&) {
  return concretize(graph);
}
PassResult run_bypass_joins(const Graph& graph, const Options&) {
  return bypass_joins(graph);
}
PassResult run_specialize(const Graph& graph, const Options& options) {
  return specialize(graph, {.rank = options.integer("rank")});
}

std::vector<PassInfo> make_passes() {
  return {
      {.name = "dce", .summary = "drop nodes whose results nothing needs", .options = {}, .run = run_dce},
      {.name = "canonicalize",
       .summary =
           "remove detaches, views, slices and repeated waits that change nothing; spell views as reshape",
       .options = {},
       .run = run_canonicalize},
      {.name = "dedup-unshard",
       .summary = "gather each sharded parameter once",
       .options = {},
       .run = run_dedup_unshard},
      memory_policy_row(),
      cpu_offload_row(),
      recompute_row(),
      {.name = "symbolize",
       .summary = "give a token count that is a plain number a symbol, so that chunk can divide it",
       .options = {{"inputs", OptionKind::kList, "[]",
                    "inputs and dimensions that count tokens: [tokens:0,labels:0], [tokens:0/2] in two "
                    "micro-batches; none: tokens, inputs, "
                    "input_ids, labels and positions"}},
       .run = run_symbolize},
      chunk_row(),
      mark_eager_chunks_row(),
      {.name = "bypass-joins",
       .summary = "take rows of a joined value that lie in one part from that part",
       .options = {},
       .run = run_bypass_joins},
      isolate_ep_pg_row(),
      reassign_pgs_row(),
      bucket_row(),
      overlap_ep_row(),
      choose_chunks_row(),
      schedule_row(),
      async_tp_row(),
      tag_regional_row(),
      {.name = "concretize", .summary = "make token symbols numbers", .options = {}, .run = run_concretize},
      {.name = "specialize",
       .summary = "turn a graph that holds for every rank into one rank's",
       .options = {{.name = "rank", .kind = OptionKind::kInt, .help = "the rank", .at_least = 0}},
       .run = run_specialize},
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
