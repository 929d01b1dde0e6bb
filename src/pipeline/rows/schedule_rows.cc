#include "pipeline/rows/schedule_rows.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/parse_number.h"
#include "passes/bucket/bucket.h"
#include "passes/bucket/schedule_like_inductor.h"
#include "passes/schedule/choose_chunks.h"
#include "passes/schedule/schedule.h"
#include "pipeline/pipeline.h"
#include "pipeline/rows/chunk_row.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {

const OptionSpec kEffort{"effort", OptionKind::kChoice, "fast", "how many orders to try", {"fast", "best"}};
const OptionSpec kAutoParts{"parts", OptionKind::kText, "auto",
                            "into how many parts; auto: 2 or 4, whichever is predicted to take less"};

namespace {

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

// ---------------------------------------------------------------------------- schedule

// Another scheduler, with knobs of its own in place of ours.
ScheduleOptions read_likeness(const Options& options) {
  for (const char* name : {"memory", "order", "recompute", "effort"})
    if (options.is_given(name))
      throw UsageError(
          fmt::format("option '{}': like=inductor has no such choice\n  expected its own knobs, as in "
                      "knobs=[max_memory_increase_gb=2,max_in_flight_gb=5]",
                      name));
  ScheduleOptions read{.cluster = read_cluster(options), .measured = read_costs(options)};
  read.unpriced = read_unpriced(options);
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
          .unpriced = read_unpriced(options)};
}

PassResult run_schedule(const Graph& graph, const Options& options) {
  const ScheduleOptions read = read_schedule_options(options);
  return read.like_inductor ? schedule_like_inductor(graph, read) : schedule(graph, read);
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

// The schedule that follows; none: as the pipeline has it.
std::optional<ScheduleOptions> read_then(const Options& options) {
  if (!options.has("then")) return std::nullopt;
  try {
    Options then = parse_value_as_options("then", options.text("then"), schedule_row());
    return read_schedule_options(then);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("option 'then': {}", error.what()));
  }
}

// ---------------------------------------------------------------------------- choose-chunks

// "auto", or a number of parts.
std::optional<std::int64_t> read_auto_parts(const Options& options) {
  const std::string& text = options.text("parts");
  if (text == "auto") return std::nullopt;
  const auto parts = parse_number<std::int64_t>(text);
  if (!parts || *parts < 2 || *parts > 4096)
    throw UsageError(fmt::format(
        "option 'parts': '{}' is not a number of parts\n  expected auto, or a number from 2 on", text));
  return parts;
}

ChooseChunksOptions read_choose_chunks_options(const Options& options) {
  ChooseChunksOptions read;
  read.chunk.attention = read_attention(options);
  read.chunk.dim = read_dim(options);
  read.chunk.dense = options.has("dense") && options.flag("dense");
  if (options.has("roots")) read.roots = options.list("roots");
  for (const std::string& root : read.roots) parse_chunk_root(root);
  read.parts = read_auto_parts(options);
  read.schedule.cluster = read_cluster(options);
  read.schedule.measured = read_costs(options);
  read.schedule.memory = parse_memory_budget(options.text("memory"));
  read.schedule.unpriced = read_unpriced(options);
  read.then = read_then(options);
  return read;
}
PassResult run_choose_chunks(const Graph& graph, const Options& options) {
  return choose_chunks(graph, read_choose_chunks_options(options));
}
void settle_choose_chunks_options(Options& options) {
  read_choose_chunks_options(options);
}

// ---------------------------------------------------------------------------- bucket

// Only plan=overlap decides by them.
BucketOptions read_bucket_options(const Options& options) {
  if (options.text("plan") == "overlap") {
    PriceOptions prices{.cluster = read_cluster(options), .measured = read_costs(options)};
    if (options.has("memory")) prices.memory = parse_memory_budget(options.text("memory"));
    prices.unpriced = read_unpriced(options);
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

}  // namespace

PassInfo schedule_row() {
  return {.name = "schedule",
          .summary = "reorder the step so that it is predicted to take least, within a budget of memory",
          .options = {kMemory, kOrder, kRecompute, kEffort, kCluster, kCosts, kUnpriced, kLike, kKnobs},
          .run = run_schedule,
          .settle = settle_schedule_options};
}

PassInfo choose_chunks_row() {
  return {.name = "choose-chunks",
          .summary = "divide modules into parts where the schedule is predicted to take less for it",
          .options = {left_out(chunk_option::kRoots), left_out(chunk_option::kDim), kAutoParts,
                      chunk_option::kDense, chunk_option::kAttention, kMemory, kCluster, kCosts, kUnpriced,
                      kThen},
          .run = run_choose_chunks,
          .settle = settle_choose_chunks_options};
}

PassInfo bucket_row() {
  return {
      .name = "bucket",
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
      .settle = settle_bucket_options};
}

}  // namespace epweave
