#include "pipeline/rows/chunk_row.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_number.h"
#include "passes/chunk/enclosing_roots.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {

namespace chunk_option {

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

const OptionSpec kCast{"cast",
                       OptionKind::kChoice,
                       "linear",
                       "sums of parts: cast each part (as torchtitan does), or join before a narrowing cast",
                       {"linear", "exact"}};

const OptionSpec kAttention{.name = "attention",
                            .kind = OptionKind::kChoice,
                            .help =
                                "what tokens attend to: those of all parts (whole-kv, the default), of their "
                                "own part and those before it "
                                "(prefix, for causal masks), or of their own part",
                            .choices = {"whole-kv", "prefix", "independent"},
                            .is_optional = true};

const OptionSpec kGradAccumulation{
    .name = "grad-accumulation",
    .kind = OptionKind::kChoice,
    .help =
        "add up the parts of a gradient before it is reduced over ranks (early, the default), or behind, as "
        "autograd does in eager mode",
    .choices = {"early", "eager"},
    .is_optional = true};

const OptionSpec kJoin{.name = "join",
                       .kind = OptionKind::kChoice,
                       .help =
                           "rejoin values as late as possible (late, the default), or between modules, as "
                           "torchtitan does",
                       .choices = {"late", "regions"},
                       .is_optional = true};

const OptionSpec kContract{
    .name = "contract",
    .kind = OptionKind::kChoice,
    .help =
        "what you promise of the modules: nothing (none, the default), or that a row which takes a sum over "
        "rows means that of its own part (own-sums)",
    .choices = {"none", "own-sums"},
    .is_optional = true};

}  // namespace chunk_option

namespace {

std::vector<std::int64_t> read_sizes(const Options& options) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;  // keeps sums of sizes in range
  std::vector<std::int64_t> sizes;
  if (!options.has("sizes")) return sizes;
  for (const std::string& item : options.list("sizes")) {
    const auto size = parse_number<std::int64_t>(item);
    if (!size || *size < 1 || *size > kMostTokens)
      throw UsageError(
          fmt::format("option 'sizes': '{}' is not a number of tokens\n  expected numbers from 1 on, as in "
                      "sizes=[700,324]",
                      item));
    sizes.push_back(*size);
  }
  if (sizes.size() < 2)
    throw UsageError("option 'sizes': there must be at least two parts\n  expected as in sizes=[700,324]");
  return sizes;
}

// Sizes that no root has as many parts of would be passed over.
void require_use_of_sizes(const std::vector<ChunkRoot>& roots, const std::vector<std::int64_t>& sizes) {
  const auto count = static_cast<std::int64_t>(sizes.size());
  const auto uses_sizes = [&](const ChunkRoot& root) { return root.parts.value_or(count) == count; };
  if (sizes.empty() || roots.empty() || std::ranges::any_of(roots, uses_sizes)) return;
  throw UsageError(fmt::format(
      "option 'sizes': {} parts are given sizes, but '{}:{}' asks for {} parts\n  expected as many "
      "sizes as parts, or a pattern without a number of parts",
      count, roots.front().pattern, *roots.front().parts, *roots.front().parts));
}

// Autograd casts each part's gradient before anything is added.
void require_one_order(const Options& options) {
  if (options.text("cast") == "exact" && is_chosen(options, "grad-accumulation", "eager"))
    throw UsageError(
        "option 'grad-accumulation': 'eager' casts the gradient of each part, 'cast=exact' adds up the parts "
        "first\n  expected one of the two");
}

PassResult run_chunk(const Graph& graph, const Options& options) {
  const ChunkOptions read = read_chunk_options(options);
  try {
    return chunk(graph, read);
  } catch (const PassError& error) {
    throw name_enclosing_root(graph, read, error);
  }
}

void settle_chunk_options(Options& options) {
  options.set("parts", read_parts(options));
  read_chunk_options(options);
}

}  // namespace

std::vector<ChunkRoot> read_roots(const Options& options) {
  std::vector<ChunkRoot> roots;
  for (const std::string& root : options.list("roots")) roots.push_back(parse_chunk_root(root));
  if (roots.empty())
    throw UsageError("option 'roots': there is no pattern\n  expected as in roots=[layers.*.moe]");
  return roots;
}

std::int64_t read_parts(const Options& options) {
  const std::int64_t parts = options.integer("parts");
  const auto count = static_cast<std::int64_t>(read_sizes(options).size());
  if (count == 0 || count == parts) return parts;
  if (!options.is_given("parts")) return count;
  throw UsageError(
      fmt::format("option 'parts': {} parts, but 'sizes' gives the sizes of {}\n  expected one of the "
                  "two, or as many sizes as parts",
                  parts, count));
}

GridDim read_dim(const Options& options) {
  return is_chosen(options, "dim", "seq") ? GridDim::kSequence : GridDim::kBatch;
}
AttentionMode read_attention(const Options& options) {
  if (is_chosen(options, "attention", "prefix")) return AttentionMode::kPrefix;
  return is_chosen(options, "attention", "independent") ? AttentionMode::kIndependent
                                                        : AttentionMode::kWholeKv;
}

ChunkOptions read_chunk_options(const Options& options) {
  require_use_of_sizes(read_roots(options), read_sizes(options));
  require_one_order(options);
  return {.roots = read_roots(options),
          .dim = read_dim(options),
          .parts = options.integer("parts"),
          .sizes = read_sizes(options),
          .require_exchange = options.flag("require-exchange"),
          .dense = options.has("dense") && options.flag("dense"),
          .exact_casts = options.text("cast") == "exact",
          .attention = read_attention(options),
          .grad_accumulation = is_chosen(options, "grad-accumulation", "eager") ? GradAccumulation::kEager
                                                                                : GradAccumulation::kEarly,
          .join = is_chosen(options, "join", "regions") ? JoinMode::kRegions : JoinMode::kLate,
          .own_sums = is_chosen(options, "contract", "own-sums") ? OwnSums::kAccept : OwnSums::kRefuse};
}

PassInfo chunk_row() {
  return {.name = "chunk",
          .summary = "run selected modules on parts of the tokens, one after the other",
          .options = {chunk_option::kRoots,
                      chunk_option::kDim,
                      chunk_option::kParts,
                      chunk_option::kSizes,
                      {"require-exchange", OptionKind::kFlag, "true",
                       "chunk only modules that exchange tokens between ranks"},
                      chunk_option::kDense,
                      chunk_option::kCast,
                      chunk_option::kGradAccumulation,
                      chunk_option::kJoin,
                      chunk_option::kAttention,
                      chunk_option::kContract},
          .run = run_chunk,
          .settle = settle_chunk_options};
}

}  // namespace epweave
