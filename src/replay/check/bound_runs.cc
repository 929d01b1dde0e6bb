#include "replay/check/bound_runs.h"

#include <utility>

namespace epweave::replay {
namespace {

// Lets what is followed be seen.
void observe(const PairedGraphs& graphs, const std::vector<bool>& written_inputs, BoundPlan& plan,
             BoundResults& found) {
  plan.a.observer = [&found](Rank rank, NodeId node, const Value& value, const ErrorBounds& bounds) {
    if (value.is_tensor()) found.sums.see_whole(rank, node, value.tensor(), bounds);
  };
  plan.b.observer = [&found](Rank rank, NodeId node, const Value& value, const ErrorBounds& bounds) {
    if (value.is_tensor()) found.sums.see_value(rank, node, value.tensor(), bounds);
  };
  plan.a.at_end = [&](Rank rank, const std::vector<Value>& outputs, const RankInputs& inputs,
                      const ErrorBounds& bounds) {
    found.outputs[rank].see_a(list_results(graphs.a, {outputs, inputs}, written_inputs), bounds);
  };
  plan.b.at_end = [&](Rank rank, const std::vector<Value>& outputs, const RankInputs& inputs,
                      const ErrorBounds& bounds) {
    found.outputs[rank].see_b(list_results(graphs.b, {outputs, inputs}, written_inputs), bounds);
    found.sums.end_run(rank);
  };
}

// On each rank those of the outputs that differ there.
void start_lot(const BoundPlan::Lot& lot, const std::vector<std::vector<OutputCheck>>& checks,
               const CheckRuns& runs, BoundResults& found) {
  found.sums.start(lot.groups);
  runs.for_each_rank([&](Rank rank) {
    std::vector<std::size_t> outputs;
    for (const std::size_t i : lot.outputs)
      if (needs_bound(checks[rank - runs.here().first][i])) outputs.push_back(i);
    found.outputs[rank].start(outputs);
  });
}

ShowResults show_bounded_a(const BoundSetup& setup, bool is_first, OutputComparison& outputs) {
  if (setup.device_a != setup.bounds_device) return outputs.show_a_elsewhere();
  return is_first ? outputs.show_a_again() : outputs.show_a_once_more();
}

}  // namespace

BoundSetup set_up_bounds(const CheckSetup& setup, const BoundPlan& plan) {
  const bool has_sums = !plan.lots.empty();
  return {.has_sums = has_sums,
          .makes_bounds = has_sums && setup.bounds != Bounds::kNone,
          .device_a = setup.device_a,
          .device_b = setup.device_b,
          .bounds_device = setup.bounds == Bounds::kDevice ? setup.device_a : nullptr};
}

void run_with_bounds(const PairedGraphs& graphs, const BoundSetup& setup, BoundPlan& plan,
                     const std::vector<std::vector<OutputCheck>>& checks, CheckRuns& runs,
                     OutputComparison& outputs, BoundResults& found) {
  if (setup.runs_a_again()) runs.run_a(runs.on_device(setup.device_a, {}, outputs.show_a_again()));
  if (!setup.makes_bounds) return;
  observe(graphs, runs.written_inputs(), plan, found);
  const auto options = [&](const BoundedNodes& bounded, ShowResults shown) {
    RunOptions with_bounds = runs.on_device(setup.bounds_device, {}, std::move(shown));
    with_bounds.bounded = &bounded;
    return with_bounds;
  };
  const auto note_without_bound = [&](const CheckRun& run) {
    runs.for_each_rank([&](Rank rank) {
      const std::set<std::string>& ops = run.run.ranks[rank].without_bound;
      found.without_bound[rank].insert(ops.begin(), ops.end());
    });
  };
  for (const BoundPlan::Lot& lot : plan.lots) {
    start_lot(lot, checks, runs, found);
    const bool is_first = &lot == &plan.lots.front();
    note_without_bound(runs.run_a(options(plan.a, show_bounded_a(setup, is_first, outputs))));
    note_without_bound(
        runs.run_b(options(plan.b, setup.device_b == setup.bounds_device ? outputs.show_b_again()
                                                                         : outputs.show_b_elsewhere())));
  }
  start_lot({}, checks, runs, found);
}

}  // namespace epweave::replay
