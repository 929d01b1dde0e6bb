#include "passes/registry.h"

#include <fmt/format.h>

#include "passes/canonicalize.h"
#include "passes/chunk.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/pipeline.h"

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
                       .parts = options.integer("parts"),
                       .require_exchange = options.flag("require-exchange"),
                       .exact_casts = options.flag("exact-casts")});
}

// The options that chunk shares with presets that contain it.
const OptionSpec kRoots{"roots", OptionKind::kList, "layers.*.moe", "modules to divide, by pattern"};
const OptionSpec kDim{
    "dim", OptionKind::kChoice, "batch", "dimension of the token grid to divide", {"batch"}};
const OptionSpec kParts{"parts", OptionKind::kInt, "2", "into how many parts", {}, 2};

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
      {.name = "chunk",
       .summary = "run selected modules on parts of the tokens, one after the other",
       .options = {kRoots,
                   kDim,
                   kParts,
                   {"require-exchange", OptionKind::kFlag, "true",
                    "leave modules without a token exchange whole"},
                   {"exact-casts", OptionKind::kFlag, "false",
                    "add up the parts of a sum before it is rounded"}},
       .run = run_chunk},
  };
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and only then
// make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its parts apart.
std::string expand_ep_overlap(const Options& options) {
  const auto& roots = options.list("roots");
  return fmt::format(
      "dce,canonicalize,dedup-unshard,chunk{{roots={},dim={},parts={}}},isolate-ep-pg,dce,overlap-ep{{roots={"
      "}}},"
      "concretize",
      print_value(roots), options.text("dim"), options.integer("parts"), print_value(roots));
}

std::vector<PresetInfo> make_presets() {
  return {
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and hide one part's token exchange behind the other's compute",
       .options = {kRoots, kDim, kParts},
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
