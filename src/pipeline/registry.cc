#include "pipeline/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "passes/async_tp/async_tp.h"
#include "passes/bucket/bucket.h"
#include "passes/bucket/schedule_like_inductor.h"
#include "passes/canonicalize.h"
#include "passes/chunk/chunk.h"
#include "passes/concretize.h"
#include "passes/cpu_offload.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/isolate_ep_pg.h"
#include "passes/mark_eager_chunks.h"
#include "passes/memory_budget.h"
#include "passes/memory_policy.h"
#include "passes/overlap_ep/overlap_ep.h"
#include "passes/reassign_pgs.h"
#include "passes/recompute.h"
#include "passes/schedule/choose_chunks.h"
#include "passes/schedule/schedule.h"
#include "passes/specialize.h"
#include "passes/symbolize.h"
#include "passes/tag_regional.h"
#include "pipeline/pipeline.h"

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
  if (roots.empty())
    throw UsageError("option 'roots': there is no pattern\n  expected as in roots=[layers.*.moe]");
  return roots;
}

std::vector<std::int64_t> read_sizes(const Options& options) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;  // keeps sums of sizes in range
  std::vector<std::int64_t> sizes;
  if (!options.has("sizes")) return sizes;
  for (const std::string& item : options.list("sizes")) {
    std::int64_t& size = sizes.emplace_back();
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), size);
    if (error != std::errc() || end != item.data() + item.size() || size < 1 || size > kMostTokens)
      throw UsageError(
          fmt::format("option 'sizes': '{}' is no number of tokens\n  expected numbers from 1 on, as in "
                      "sizes=[700,324]",
                      item));
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

// As many parts as sizes.
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

// Whether an option that may be left out has this value.
bool is_chosen(const Options& options, std::string_view name, std::string_view value) {
  return options.has(name) && options.text(name) == value;
}

// Autograd casts each part's gradient before anything is added.
void require_one_order(const Options& options) {
  if (options.text("cast") == "exact" && is_chosen(options, "grad-accumulation", "eager"))
    throw UsageError(
        "option 'grad-accumulation': 'eager' casts the gradient of each part, 'cast=exact' adds up the parts "
        "first\n  expected one of the two");
}

PassResult run_chunk(const Graph& graph, const Options& options) {
  return chunk(graph, read_chunk_options(options));
}
void settle_chunk_options(Options& options) {
  options.set("parts", read_parts(options));
  read_chunk_options(options);
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

PassResult run_mark_eager_chunks(const Graph& graph, const Options&) {
  return mark_eager_chunks(graph);
}
PassResult run_isolate_ep_pg(const Graph& graph, const Options& options) {
  return isolate_ep_pg(graph, is_chosen(options, "counts", "own") ? CountGroup::kOwn : CountGroup::kShared);
}
PassResult run_reassign_pgs(const Graph& graph, const Options&) {
  return reassign_pgs(graph);
}
PassResult run_symbolize(const Graph& graph, const Options& options) {
  return symbolize(graph, {.inputs = options.list("inputs")});
}
std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  return std::move(text).str();
}

Cluster read_cluster(const Options& options) {
  return options.has("cluster") ? parse_cluster(options.text("cluster"), read_text) : Cluster{};
}

std::shared_ptr<const CostFile> read_costs(const Options& options) {
  if (!options.has("costs")) return nullptr;
  const std::string& path = options.text("costs");
  return std::make_shared<const CostFile>(CostFile{MeasuredCosts::parse(read_text(path), path), path});
}

ScheduleOptions read_schedule_options(const Options& options);

std::optional<ScheduleOptions> read_then(const Options& options) {
  if (!options.has("then")) return std::nullopt;
  try {
    Options then = parse_value_as_options("then", options.text("then"), *registry().find_pass("schedule"));
    return read_schedule_options(then);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("option 'then': {}", error.what()));
  }
}

// Only plan=overlap decides by them.
BucketOptions read_bucket_options(const Options& options) {
  if (options.text("plan") == "overlap") {
    PriceOptions prices{.cluster = read_cluster(options), .measured = read_costs(options)};
    if (options.has("memory")) prices.memory = parse_memory_budget(options.text("memory"));
    if (is_chosen(options, "unpriced", "free")) prices.unpriced = Unpriced::kFree;
    return {std::move(prices), read_then(options)};
  }
  for (const char* name : {"cluster", "costs", "memory", "unpriced", "then"})
    if (options.has(name))
      throw UsageError(fmt::format(
          "option '{}': plan=blocks asks for no prediction\n  expected plan=overlap beside {}", name, name));
  return {};
}
PassResult run_bucket(const Graph& graph, const Options& options) {
  return bucket(graph, read_bucket_options(options));
}
void settle_bucket_options(Options& options) {
  read_bucket_options(options);
}

// Another scheduler, with knobs of its own in place of ours.
ScheduleOptions read_likeness(const Options& options) {
  for (const char* name : {"memory", "order", "recompute", "effort"})
    if (options.is_given(name))
      throw UsageError(
          fmt::format("option '{}': like=inductor has no such choice\n  expected its own knobs, as in "
                      "knobs=[max_memory_increase_gb=2,max_in_flight_gb=5]",
                      name));
  ScheduleOptions read{.cluster = read_cluster(options), .measured = read_costs(options)};
  if (is_chosen(options, "unpriced", "free")) read.unpriced = Unpriced::kFree;
  read.like_inductor = options.has("knobs") ? read_inductor_knobs(options.list("knobs")) : InductorKnobs();
  return read;
}

ScheduleOptions read_schedule_options(const Options& options) {
  if (options.has("like")) return read_likeness(options);
  if (options.has("knobs"))
    throw UsageError(
        "option 'knobs': they are those of another scheduler\n  expected like=inductor beside them");
  return {.cluster = read_cluster(options),
          .measured = read_costs(options),
          .memory = parse_memory_budget(options.text("memory")),
          .rules = {.launches = options.text("order") == "kept" ? LaunchOrder::kKept : LaunchOrder::kFree,
                    .recompute = options.text("recompute") == "free" ? RecomputeOrder::kFree
                                                                     : RecomputeOrder::kBehindForward},
          .effort = options.text("effort") == "best" ? Effort::kBest : Effort::kFast,
          .unpriced = is_chosen(options, "unpriced", "free") ? Unpriced::kFree : Unpriced::kDecline};
}
PassResult run_schedule(const Graph& graph, const Options& options) {
  const ScheduleOptions read = read_schedule_options(options);
  return read.like_inductor ? schedule_like_inductor(graph, read) : schedule(graph, read);
}
// "auto", or a number of parts.
std::optional<std::int64_t> read_auto_parts(const Options& options) {
  const std::string& text = options.text("parts");
  if (text == "auto") return std::nullopt;
  std::int64_t parts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts);
  if (error != std::errc() || end != text.data() + text.size() || parts < 2 || parts > 4096)
    throw UsageError(fmt::format(
        "option 'parts': '{}' is no number of parts\n  expected auto, or a number from 2 on", text));
  return parts;
}

AttentionMode read_attention(const Options& options) {
  if (is_chosen(options, "attention", "prefix")) return AttentionMode::kPrefix;
  return is_chosen(options, "attention", "independent") ? AttentionMode::kIndependent
                                                        : AttentionMode::kWholeKv;
}

ChooseChunksOptions read_choose_chunks_options(const Options& options) {
  ChooseChunksOptions read;
  read.chunk.attention = read_attention(options);
  read.chunk.dense = options.has("dense") && options.flag("dense");
  if (options.has("roots")) read.roots = options.list("roots");
  for (const std::string& root : read.roots) parse_chunk_root(root);
  read.parts = read_auto_parts(options);
  read.schedule.cluster = read_cluster(options);
  read.schedule.measured = read_costs(options);
  read.schedule.memory = parse_memory_budget(options.text("memory"));
  if (is_chosen(options, "unpriced", "free")) read.schedule.unpriced = Unpriced::kFree;
  read.then = read_then(options);
  return read;
}
PassResult run_choose_chunks(const Graph& graph, const Options& options) {
  return choose_chunks(graph, read_choose_chunks_options(options));
}
void settle_choose_chunks_options(Options& options) {
  read_choose_chunks_options(options);
}

void settle_schedule_options(Options& options) {
  read_schedule_options(options);
  if (!options.has("like")) return;
  Options meant;  // without what is left to our fallbacks: the graph records what counts
  for (const auto& [name, value] : options.values())
    if (options.is_given(name)) {
      meant.set(name, value);
    } else if (name == "cluster") {
      meant.set_fallback(name, value);
    }
  options = std::move(meant);
}

PassResult run_concretize(const Graph& graph, const Options&) {
  return concretize(graph);
}
PassResult run_specialize(const Graph& graph, const Options& options) {
  return specialize(graph, {.rank = options.integer("rank")});
}

std::optional<double> read_amount(const Options& options, std::string_view name) {
  if (!options.has(name)) return std::nullopt;
  const std::string& text = options.text(name);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= 0) || value > 1e12)
    throw UsageError(
        fmt::format("option '{0}': '{1}' is no amount\n  expected a number, as in {0}=23.5", name, text));
  return value;
}

MemoryPolicyOptions read_memory_policy_options(const Options& options) {
  MemoryPolicyOptions read{.policy = memory_policy_named(options.text("policy"))};
  if (options.has("save"))
    for (const std::string& item : options.list("save")) read.save.push_back(parse_save_selector(item));
  if (options.has("reshard"))
    read.reshard = is_chosen(options, "reshard", "never") ? Reshard::kNever : Reshard::kAlways;
  if (options.has("offload-gib")) read.offload_gib = options.integer("offload-gib");
  if (!read.save.empty() && read.policy != MemoryPolicy::kFull)
    throw UsageError(
        fmt::format("option 'save': policy '{}' says what is saved\n  expected policy=full beside save",
                    options.text("policy")));
  if (read.offload_gib && read.policy != MemoryPolicy::kSacAndOffload)
    throw UsageError(
        fmt::format("option 'offload-gib': policy '{}' keeps nothing on the host\n  expected "
                    "policy=sac-and-offload beside "
                    "offload-gib",
                    options.text("policy")));
  return read;
}
PolicyBudget read_policy_budget(const Options& options) {
  PolicyBudget read{.peak_mib = read_amount(options, "peak-mib"),
                    .recompute_ms = read_amount(options, "recompute-ms")};
  if (is_chosen(options, "reshard", "never")) read.reshard = Reshard::kNever;
  return read;
}
void check_memory_policy_options(Options& options) {
  read_memory_policy_options(options);
  const bool is_budget = options.text("policy") == "budget";
  const int budgets = (options.has("peak-mib") ? 1 : 0) + (options.has("recompute-ms") ? 1 : 0);
  if (is_budget && budgets != 1)
    throw UsageError(fmt::format(
        "option 'policy': budget {}\n  expected one of peak-mib=N and recompute-ms=N beside policy=budget",
        budgets == 0 ? "needs a peak or a time" : "takes a peak or a time, and both are given"));
  if (!is_budget && budgets != 0)
    throw UsageError(fmt::format("option '{}': policy '{}' has no budget\n  expected policy=budget beside it",
                                 options.has("peak-mib") ? "peak-mib" : "recompute-ms",
                                 options.text("policy")));
  if (is_budget) read_policy_budget(options);
}
PassResult run_memory_policy(const Graph& graph, const Options& options) {
  if (options.text("policy") == "budget") return tag_for_budget(graph, read_policy_budget(options));
  return memory_policy(graph, read_memory_policy_options(options));
}
PassResult run_recompute(const Graph& graph, const Options&) {
  return recompute(graph);
}
PassResult run_cpu_offload(const Graph& graph, const Options& options) {
  return cpu_offload(graph, {.prefetch = options.integer("prefetch"), .defer = options.integer("defer")});
}

std::optional<Json> read_inductor_configs(const Options& options, std::string_view name) {
  if (!options.has(name)) return std::nullopt;
  const std::string& path = options.text(name);
  return parse_inductor_configs(read_text(path), path);
}
TagRegionalOptions read_tag_regional_options(const Options& options) {
  const bool is_flex = options.text("op") == "flex-attention";
  if (!is_flex && options.has("function-configs"))
    throw UsageError(
        fmt::format("option 'function-configs': calls of op '{}' name no functions\n  expected "
                    "op=flex-attention beside it",
                    options.text("op")));
  return {.op = is_flex ? RegionalOp::kFlexAttention : RegionalOp::kRmsNorm,
          .configs = read_inductor_configs(options, "configs"),
          .function_configs = read_inductor_configs(options, "function-configs")};
}
void check_tag_regional_options(Options& options) {
  read_tag_regional_options(options);
}
AsyncTpOptions read_async_tp_options(const Options& options) {
  if (options.list("axes").empty())
    throw UsageError("option 'axes': there is no axis\n  expected as in axes=[tp]");
  return {.axes = options.list("axes")};
}
void check_async_tp_options(Options& options) {
  read_async_tp_options(options);
}
PassResult run_async_tp(const Graph& graph, const Options& options) {
  return async_tp(graph, read_async_tp_options(options));
}
PassResult run_tag_regional(const Graph& graph, const Options& options) {
  return tag_regional(graph, read_tag_regional_options(options));
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

// A preset passes on what it is given.
OptionSpec left_out(OptionSpec spec) {
  spec.fallback.reset();
  spec.is_optional = true;
  return spec;
}

const OptionSpec kAutoParts{"parts", OptionKind::kText, "auto",
                            "into how many parts; auto: 2 or 4, whichever is predicted to take less"};

// The options that schedule shares with presets that contain it.
const OptionSpec kMemory{
    "memory", OptionKind::kText, "2%",
    "how much device memory the result may need: a share above the input's peak (2%), above that of the "
    "pipeline's input (run+2%), or bytes (32.1GiB)"};
const OptionSpec kOrder{
    "order",
    OptionKind::kChoice,
    "free",
    "launches of a process group may change places, alike on every rank, or keep their order",
    {"free", "kept"}};
const OptionSpec kRecompute{"recompute",
                            OptionKind::kChoice,
                            "behind-forward",
                            "recomputation stays behind the loss, or goes where it fits",
                            {"behind-forward", "free"}};
const OptionSpec kEffort{"effort", OptionKind::kChoice, "fast", "how many orders to try", {"fast", "best"}};
const OptionSpec kLike{.name = "like",
                       .kind = OptionKind::kChoice,
                       .help = "the order that another scheduler gives: that of PyTorch's overlap scheduler",
                       .choices = {"inductor"},
                       .is_optional = true};
const OptionSpec kKnobs{
    .name = "knobs",
    .kind = OptionKind::kList,
    .help = "with like=inductor: its knobs by their names there (collective_bucketing=true)",
    .is_optional = true};
const OptionSpec kCluster{"cluster", OptionKind::kText, "h100",
                          "the machine: a built-in shape or a file, and changes to it (h100+nic=400e9)"};
const OptionSpec kCosts{
    .name = "costs",
    .kind = OptionKind::kText,
    .help = "times that `epweave-replay run --costs FILE` measured on this graph: they win",
    .is_optional = true};
const OptionSpec kUnpriced{
    .name = "unpriced",
    .kind = OptionKind::kChoice,
    .help = "calls that nothing prices: decline them (the default), or take them to be free",
    .choices = {"decline", "free"},
    .is_optional = true};

const OptionSpec kSymbolize{"symbolize",
                            OptionKind::kChoice,
                            "no",
                            "for graphs whose token count is a plain number: give it a symbol first",
                            {"yes", "no"}};

const OptionSpec kThen{
    .name = "then",
    .kind = OptionKind::kText,
    .help =
        "options of the schedule that follows: a merge must pay there; by default those of the pipeline's",
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
      {.name = "memory-policy",
       .summary = "decide which values of forward backward keeps, and which it computes again",
       .options = {{"policy",
                    OptionKind::kChoice,
                    "default",
                    "save matrix products, attention and exchanges; each second product (eager); what layers "
                    "hand on "
                    "(full); all (none); as default, on the host where it is worth it; the least that fits "
                    "peak-mib or recompute-ms (budget)",
                    {"default", "eager", "full", "none", "sac-and-offload", "budget"}},
                   {.name = "save",
                    .kind = OptionKind::kList,
                    .help = "with policy=full: calls to save all the same: [layers.*.moe::aten.mm.default]",
                    .is_optional = true},
                   {.name = "reshard",
                    .kind = OptionKind::kChoice,
                    .help =
                        "gather sharded parameters again in backward (always), or save them whole (never), "
                        "whatever the policy",
                    .choices = {"always", "never"},
                    .is_optional = true},
                   {.name = "offload-gib",
                    .kind = OptionKind::kInt,
                    .help =
                        "with policy=sac-and-offload: how much memory of the host values may take; 0: any",
                    .at_least = 0,
                    .is_optional = true},
                   {.name = "peak-mib",
                    .kind = OptionKind::kText,
                    .help = "with policy=budget: the peak in MiB, as `epweave stats` counts it: 52.5",
                    .is_optional = true},
                   {.name = "recompute-ms",
                    .kind = OptionKind::kText,
                    .help = "with policy=budget: the most to spend on recomputation, in milliseconds: 23.5",
                    .is_optional = true}},
       .run = run_memory_policy,
       .settle = check_memory_policy_options},
      {.name = "cpu-offload",
       .summary = "keep values that are tagged so on the host between forward and backward",
       .options =
           {{"prefetch", OptionKind::kInt, "1", "how many layers earlier values are loaded back", {}, 0},
            {"defer", OptionKind::kInt, "1", "how many regions later forward waits for a copy", {}, 0}},
       .run = run_cpu_offload},
      {.name = "recompute",
       .summary = "insert what backward computes again, as memory-policy tagged it",
       .options = {},
       .run = run_recompute},
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
                   kCast,
                   kGradAccumulation,
                   kJoin,
                   kAttention,
                   kContract},
       .run = run_chunk,
       .settle = settle_chunk_options},
      {.name = "mark-eager-chunks",
       .summary = "mark the parts of modules that torchtitan chunked in eager mode, before tracing",
       .options = {},
       .run = run_mark_eager_chunks},
      {.name = "isolate-ep-pg",
       .summary = "give token exchanges a process group of their own",
       .options = {{.name = "counts",
                    .kind = OptionKind::kChoice,
                    .help = "exchanges of token counts: on the group of the tokens (shared, the default), or "
                            "on one of their own",
                    .choices = {"shared", "own"},
                    .is_optional = true}},
       .run = run_isolate_ep_pg},
      {.name = "reassign-pgs",
       .summary = "give gathers of parameters a process group of their own",
       .options = {},
       .run = run_reassign_pgs},
      {.name = "bucket",
       .summary =
           "merge the collectives of sharded parameters block by block, and launch each gather a block ahead",
       .options = {{"plan",
                    OptionKind::kChoice,
                    "blocks",
                    "which collectives are merged: those of a transformer block, as torchtitan does; or "
                    "those without which the step is predicted to take longer",
                    {"blocks", "overlap"}},
                   left_out(kMemory),
                   left_out(kCluster),
                   kCosts,
                   kUnpriced,
                   kThen},
       .run = run_bucket,
       .settle = settle_bucket_options},
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
      {.name = "choose-chunks",
       .summary = "divide modules into parts where the schedule is predicted to take less for it",
       .options = {left_out(kRoots), kAutoParts, kDense, kAttention, kMemory, kCluster, kCosts, kUnpriced,
                   kThen},
       .run = run_choose_chunks,
       .settle = settle_choose_chunks_options},
      {.name = "schedule",
       .summary = "reorder the step so that it is predicted to take least, within a budget of memory",
       .options = {kMemory, kOrder, kRecompute, kEffort, kCluster, kCosts, kUnpriced, kLike, kKnobs},
       .run = run_schedule,
       .settle = settle_schedule_options},
      {.name = "async-tp",
       .summary = "fuse collectives of tensor parallelism with products, over symmetric memory",
       .options = {{"axes", OptionKind::kList, "[tp]", "axes of the mesh whose process groups are fused"}},
       .run = run_async_tp,
       .settle = check_async_tp_options},
      {.name = "tag-regional",
       .summary = "tag the calls that torch's regional_inductor shall compile",
       .options = {{"op",
                    OptionKind::kChoice,
                    "flex-attention",
                    "which calls, with the functions that they name and the elements taken of their results",
                    {"flex-attention", "rms-norm"}},
                   {.name = "configs",
                    .kind = OptionKind::kText,
                    .help = "a JSON file of Inductor's options for them: {\"max_autotune\": true}",
                    .is_optional = true},
                   {.name = "function-configs",
                    .kind = OptionKind::kText,
                    .help = "with op=flex-attention: the same for the nodes of the functions",
                    .is_optional = true}},
       .run = run_tag_regional,
       .settle = check_tag_regional_options},
      {.name = "concretize", .summary = "make token symbols numbers", .options = {}, .run = run_concretize},
      {.name = "specialize",
       .summary = "turn a graph that holds for every rank into one rank's",
       .options = {{.name = "rank", .kind = OptionKind::kInt, .help = "the rank", .at_least = 0}},
       .run = run_specialize},
  };
}

// The pass symbolize in front of what divides, where it is asked for.
std::string_view symbolize_first(const Options& options) {
  return options.text("symbolize") == "yes" ? "symbolize," : "";
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and
// only then make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its
// parts apart.
std::string expand_ep_overlap(const Options& options) {
  std::vector<std::string> patterns;
  for (const ChunkRoot& root : read_roots(options)) patterns.push_back(root.pattern);
  std::string optional =
      options.has("sizes") ? fmt::format(",sizes={}", print_value(options.list("sizes"))) : "";
  if (options.has("dense") && options.flag("dense")) optional += ",dense=true";
  for (const char* name : {"cast", "grad-accumulation", "join", "attention", "contract"})
    if (options.has(name)) optional += fmt::format(",{}={}", name, options.text(name));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}chunk{{roots={},dim={},parts={}{}}},isolate-ep-pg,dce,"
      "overlap-ep{{roots={}}},concretize",
      symbolize_first(options), print_value(options.list("roots")), options.text("dim"), read_parts(options),
      optional, print_value(patterns));
}

// A share is of what the preset is given, once: what a choice needs more is not added to by the
// schedule.
std::string memory_of_run(const std::string& memory) {
  return memory.ends_with('%') && !memory.starts_with("run+") ? "run+" + memory : memory;
}

// What is given is handed on; the rest is left to the passes.
std::string expand_overlap(const Options& options) {
  std::string choice = fmt::format("parts={}", print_value(options.text("parts")));
  if (options.has("roots")) choice += fmt::format(",roots={}", print_value(options.list("roots")));
  if (options.has("dense")) choice += fmt::format(",dense={}", options.flag("dense"));
  if (options.has("attention")) choice += fmt::format(",attention={}", options.text("attention"));
  std::string machine =
      fmt::format("memory={},cluster={}", print_value(memory_of_run(options.text("memory"))),
                  print_value(options.text("cluster")));
  if (options.has("costs")) machine += fmt::format(",costs={}", print_value(options.text("costs")));
  if (options.has("unpriced")) machine += fmt::format(",unpriced={}", options.text("unpriced"));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}choose-chunks{{{},{}}},schedule{{{},effort={}}},concretize",
      symbolize_first(options), choice, machine, machine, options.text("effort"));
}

std::vector<PresetInfo> make_presets() {
  return {
      {.name = "overlap",
       .summary = "divide, isolate and schedule as is predicted to take least",
       .options = {left_out(kRoots), kAutoParts, kDense, kAttention, kMemory, kEffort, kCluster, kCosts,
                   kUnpriced, kSymbolize},
       .expand = expand_overlap},
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and hide each part's token exchange behind the others' compute",
       .options = {kRoots, kDim, kParts, kSizes, kDense, left_out(kCast), kGradAccumulation, kJoin,
                   kAttention, kContract, kSymbolize},
       .expand = expand_ep_overlap},
  };
}

}  // namespace

ChunkOptions read_chunk_options(const Options& options) {
  require_use_of_sizes(read_roots(options), read_sizes(options));
  require_one_order(options);
  return {.roots = read_roots(options),
          .dim = options.text("dim") == "seq" ? GridDim::kSequence : GridDim::kBatch,
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
