#include "pipeline/rows/memory_rows.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/parse_number.h"
#include "passes/cpu_offload.h"
#include "passes/memory_budget.h"
#include "passes/memory_policy.h"
#include "passes/recompute.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {
namespace {

std::optional<double> read_amount(const Options& options, std::string_view name) {
  if (!options.has(name)) return std::nullopt;
  const std::string& text = options.text(name);
  const auto value = parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 1e12)
    throw UsageError(
        fmt::format("option '{0}': '{1}' is no amount\n  expected a number, as in {0}=23.5", name, text));
  return *value;
}

MemoryPolicyOptions read_memory_policy_options(const Options& options) {
  MemoryPolicyOptions read{.policy = memory_policy_named(options.text("policy"))};
  if (options.has("save"))
    for (const std::string& item : options.list("save")) read.save.push_back(parse_save_selector(item));
  if (options.has("reshard"))
    read.reshard = is_chosen(options, "reshard", "never") ? Reshard::kNever : Reshard::kAlways;
  read.offload_gib = read_amount(options, "offload-gib");
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

}  // namespace

PassInfo memory_policy_row() {
  return {.name = "memory-policy",
          .summary = "decide which values of forward backward keeps, and which it computes again",
          .options =
              {{"policy",
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
                .help = "gather sharded parameters again in backward (always), or save them whole (never), "
                        "whatever the policy",
                .choices = {"always", "never"},
                .is_optional = true},
               {.name = "offload-gib",
                .kind = OptionKind::kText,
                .help = "with policy=sac-and-offload: how much memory of the host values may take, in GiB: "
                        "0.5; 0: any",
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
          .settle = check_memory_policy_options};
}

PassInfo cpu_offload_row() {
  return {.name = "cpu-offload",
          .summary = "keep values that are tagged so on the host between forward and backward",
          .options =
              {{"prefetch", OptionKind::kInt, "1", "how many layers earlier values are loaded back", {}, 0},
               {"defer", OptionKind::kInt, "1", "how many regions later forward waits for a copy", {}, 0}},
          .run = run_cpu_offload};
}

PassInfo recompute_row() {
  return {.name = "recompute",
          .summary = "insert what backward computes again, as memory-policy tagged it",
          .options = {},
          .run = run_recompute};
}

}  // namespace epweave
