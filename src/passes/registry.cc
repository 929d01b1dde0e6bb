#include "passes/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "passes/canonicalize.h"
#include "passes/chunk.h"
#include "passes/concretize.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/isolate_ep_pg.h"
#include "passes/overlap_ep.h"
#include "passes/pipeline.h"
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

std::vector<ChunkRoot> read_roots(const Options& options) {
  std::vector<ChunkRoot> roots;
  for (const std::string& root : options.list("roots")) roots.push_back(parse_chunk_root(root));
  return roots;
}

std::vector<std::int64_t> read_sizes(const Options& options) {
  std::vector<std::int64_t> sizes;
  if (!options.has("sizes")) return sizes;
  for (const std::string& item : options.list("sizes")) {
    std::int64_t& size = sizes.emplace_back();
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), size);
    if (error != std::errc() || end != item.data() + item.size() || size < 1)
      throw UsageError(
          fmt::format("option 'sizes': '{}' is no number of tokens\n  expected numbers from 1 on, as in "
                      "sizes=[700,324]",
                      item));
  }
  if (sizes.size() < 2)
    throw UsageError("option 'sizes': there must be at least two parts\n  expected as in sizes=[700,324]");
  return sizes;
}

ChunkOptions read_chunk_options(const Options& options) {
  return {.roots = read_roots(options),
          .dim = options.text("dim") == "seq" ? GridDim::kSequence : GridDim::kBatch,
          .parts = options.integer("parts"),
          .sizes = read_sizes(options),
          .require_exchange = options.flag("require-exchange"),
          .dense = options.has("dense") && options.flag("dense"),
          .exact_casts = options.text("cast") == "exact",
          .attention = options.has("attention") && options.text("attention") == "independent"
                           ? AttentionMode::kIndependent
                           : AttentionMode::kWholeKv};
}

PassResult run_chunk(const Graph& graph, const Options& options) {
  return chunk(graph, read_chunk_options(options));
}
void check_chunk_options(const Options& options) {
  read_chunk_options(options);
}

PairFirst pair_first_named(std::string_view name) {
  if (name == "auto") return PairFirst::kAuto;
  return name == "yes" ? PairFirst::kYes : PairFirst::kNo;
}

PassResult run_overlap_ep(const Graph& graph, const Options& options) {
  return overlap_ep(graph, {.roots = options.list("roots"),
                            .pair_first = pair_first_named(options.text("pair-first")),
                            .require_exchange = options.flag("require-exchange")});
}

PassResult run_isolate_ep_pg(const Graph& graph, const Options&) {
  return isolate_ep_pg(graph);
}
PassResult run_symbolize(const Graph& graph, const Options& options) {
  return symbolize(graph, {.inputs = options.list("inputs")});
}
PassResult run_concretize(const Graph& graph, const Options&) {
  return concretize(graph);
}

// Into how many parts the options of chunk, or of a preset that contains it, divide the modules of a root.
std::int64_t count_parts(const ChunkRoot& root, const Options& options) {
  if (root.parts) return *root.parts;
  return options.has("sizes") ? std::ssize(options.list("sizes")) : options.integer("parts");
}

// Saves chunking into parts that the schedule would then decline.
void decline_other_than_two_parts(const Options& options, std::span<const PassCall> earlier) {
  const auto& scheduled = options.list("roots");
  for (const PassCall& call : earlier) {
    if (call.pass->name != "chunk") continue;
    for (const ChunkRoot& root : read_roots(call.options)) {
      const std::int64_t parts = count_parts(root, call.options);
      const bool is_scheduled =
          scheduled.empty() || std::ranges::find(scheduled, root.pattern) != scheduled.end();
      if (parts == 2 || !is_scheduled) continue;
      throw PassError(
          "overlap-ep.parts",
          fmt::format(
              "overlap-ep schedules two parts against each other, and the pipeline chunks into {} (S-1)",
              parts),
          {}, "chunk with parts=2, or leave overlap-ep out: chunk alone takes any number of parts");
    }
  }
}

// The options that chunk shares with presets that contain it.
const OptionSpec kRoots{"roots", OptionKind::kList, "layers.*.moe",
                        "patterns of module paths, compared component by component; PATTERN:N for N parts"};
const OptionSpec kDim{
    "dim", OptionKind::kChoice, "batch", "dimension of the token grid to divide", {"batch", "seq"}};
const OptionSpec kParts{
    "parts", OptionKind::kInt, "2", "into how many parts, as equal as whole rows allow", {}, 2};
const OptionSpec kDense{.name = "dense",
                        .kind = OptionKind::kFlag,
                        .help = "chunk all selected modules, also those that exchange no tokens",
                        .is_optional = true};
const OptionSpec kSizes{.name = "sizes",
                        .kind = OptionKind::kList,
                        .help = "how many tokens each part has, instead of parts: [700,324]",
                        .is_optional = true};

const OptionSpec kAttention{
    .name = "attention",
    .kind = OptionKind::kChoice,
    .help = "what tokens attend to: those of all parts (whole-kv, the default), or of their own part",
    .choices = {"whole-kv", "independent"},
    .is_optional = true};

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
                   kSizes,
                   {"require-exchange", OptionKind::kFlag, "true",
                    "chunk only modules that exchange tokens between ranks"},
                   kDense,
                   {"cast",
                    OptionKind::kChoice,
                    "linear",
                    "sums of parts: cast each part (as torchtitan does), or join before a narrowing cast",
                    {"linear", "exact"}},
                   kAttention},
       .run = run_chunk,
       .check = check_chunk_options},
      {.name = "isolate-ep-pg",
       .summary = "give token exchanges a process group of their own",
       .options = {},
       .run = run_isolate_ep_pg},
      {.name = "overlap-ep",
       .summary = "hide each part's token exchanges behind the other part's compute",
       .options =
           {{"roots", OptionKind::kList, "[]", "which chunked regions, by module pattern; none: all"},
            {"pair-first",
             OptionKind::kChoice,
             "auto",
             "launch both parts' first exchanges back to back; auto: unless the region is a whole block",
             {"auto", "yes", "no"}},
            {"require-exchange", OptionKind::kFlag, "true",
             "decline a graph that has no labelled token exchange in a chunked region"}},
       .run = run_overlap_ep,
       .decline = decline_other_than_two_parts},
      {.name = "concretize", .summary = "make token symbols numbers", .options = {}, .run = run_concretize},
  };
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and only then
// make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its parts apart.
// What comes in two parts is scheduled; the rest is chunked only.
std::string expand_ep_overlap(const Options& options) {
  std::vector<std::string> patterns, in_two_parts;
  for (const ChunkRoot& root : read_roots(options)) {
    patterns.push_back(root.pattern);
    if (count_parts(root, options) == 2) in_two_parts.push_back(root.pattern);
  }
  const std::string sizes =
      options.has("sizes") ? fmt::format(",sizes={}", print_value(options.list("sizes"))) : "";
  const std::string dense = options.has("dense") && options.flag("dense") ? ",dense=true" : "";
  const std::string attention =
      options.has("attention") ? fmt::format(",attention={}", options.text("attention")) : "";
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}chunk{{roots={},dim={},parts={}{}{}{}}},isolate-ep-pg,dce,"
      "overlap-ep{{roots={}}},concretize",
      options.text("symbolize") == "yes" ? "symbolize," : "", print_value(options.list("roots")),
      options.text("dim"), options.integer("parts"), sizes, dense, attention,
      print_value(in_two_parts.empty() ? patterns : in_two_parts));
}

std::vector<PresetInfo> make_presets() {
  return {
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and hide one part's token exchange behind the other's compute",
       .options = {kRoots,
                   kDim,
                   kParts,
                   kSizes,
                   kDense,
                   kAttention,
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
