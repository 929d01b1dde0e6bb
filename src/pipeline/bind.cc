#include "pipeline/bind.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "passes/schedule/decision.h"

namespace epweave {
namespace {

bool takes(const PassCall& call, std::string_view option) {
  return std::ranges::find(call.pass->options, option, &OptionSpec::name) != call.pass->options.end();
}

}  // namespace

Binder::Binder(const Graph& given, const Pipeline& pipeline) : pipeline_(pipeline) {
  const auto has_memory = [](const PassCall& call) { return call.options.has("memory"); };
  if (std::ranges::any_of(pipeline.calls, has_memory)) given_ = given;
}

PassCall Binder::bind(std::size_t position, const Graph& now) {
  PassCall call = pipeline_.calls[position];
  if (takes(call, "memory")) bind_memory(call.options, now);
  if (!takes(call, "then") || call.options.has("then")) return call;
  if (takes(call, "plan") && call.options.text("plan") != "overlap") return call;
  const auto later = pipeline_.calls.begin() + static_cast<std::ptrdiff_t>(position) + 1;
  const auto next = std::find_if(later, pipeline_.calls.end(),
                                 [](const PassCall& other) { return other.pass->name == "schedule"; });
  if (next == pipeline_.calls.end()) return call;
  Options then = next->options;
  bind_memory(then, now);
  call.options.set("then", print_options(then));
  return call;
}

void Binder::bind_memory(Options& options, const Graph& now) {
  if (!options.has("memory")) return;
  MemoryBudget budget = parse_memory_budget(options.text("memory"));
  if (!budget.is_of_run) return;
  if (!peaks_) peaks_ = {find_given_peak(*given_), find_given_peak(now)};
  // A step without values takes none, which is no budget: one byte is as little.
  const std::int64_t bytes = std::max({budget.above(peaks_->given), peaks_->now, std::int64_t{1}});
  options.set("memory", std::to_string(bytes));
}

}  // namespace epweave
