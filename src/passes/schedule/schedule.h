// schedule: the order of a step that is predicted to take least, within a budget of memory.
//
// Reorders, nothing else: the same nodes with the same arguments in another order. Kernels,
// launches and waits move; what must stay in order does (effects, host reads, calls without a row
// in the op table).
//
//   before   g = all_gather(p)  w = wait(g)  y = mm(x, w)  dp = mm(t, g)  s = reduce_scatter(dp)  r = wait(s) ..
//   after    g = all_gather(p)  dp = mm(t, g) .. under it  w = wait(g)  s = ..  y = mm(x, w)  r = wait(s) where done
//
//   prices and clock   cost/step_model.h, cost/simulate.h: predicted, for one rank, routing balanced, no contention;
//                      collectives as all members of their group price them (cost/member_prices.h)
//   problem            schedule_problem.h: what must stay in order, what lives how long
//   one order          list_schedule.h: by longest path to the end, with exact memory
//   many               search_order.h: the same under many settings, and near the best of them
//   proof              analysis/order.h: the order keeps all that must be kept
//
// `like_inductor` asks for another order of the same problem (schedule_like_inductor.h): PyTorch's,
// whatever the clock says of it, to compare with and to reproduce. It has knobs of its own in place
// of budget, rules and effort.
//
// compare_scheduled: rewrites that decide by the clock, and are scheduled afterwards, are judged by
// what comes out then.
//
// Else the result is never slower than its input and, where the input is within the budget, never
// above it. Ranks that run the same program get the same order, so that launches pair up: a group
// has one price on all ranks, however its members lie on nodes, where a rule says which groups the
// other ranks have (find_group_rule). Ranks whose shards differ in size run programs of other
// prices: all take those of whole shards (whole_shards.h). Where they cannot be known, all launches
// keep the order that the step has, whatever the rules say.
//
// Numerics: reorder (bitwise by construction).
//
// Provenance: `moved` for nodes outside the longest common subsequence of the two orders; the
// reason says under what a launch or kernel moved.
//
// Refusals: PassError schedule.memory (no order within the budget was found: says the least that
// one needs), simulate.unpriced (a call that nothing prices), schedule.illegal-order (our fault:
// says which pair). Throws InputError where the measured costs are of another graph.
#pragma once

#include <memory>
#include <optional>

#include "passes/pass.h"
#include "passes/schedule/decision.h"
#include "passes/schedule/inductor_knobs.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

enum class Effort : std::uint8_t { kFast, kBest };

struct ScheduleOptions {
  Cluster cluster;
  std::shared_ptr<const CostFile> measured;  // or none
  MemoryBudget memory;
  ScheduleRules rules;
  Effort effort = Effort::kFast;
  Unpriced unpriced = Unpriced::kDecline;
  std::optional<InductorKnobs> like_inductor;  // then memory, rules and effort mean nothing

  PriceOptions prices() const { return {cluster, measured, memory, unpriced}; }
};

// Of options that do not ask for another scheduler's order.
PassResult schedule(const Graph& graph, const ScheduleOptions& options);

// What a schedule of the graph is predicted to take, and the input as it is: to compare rewrites. A
// quick one tries few orders; a whole one is what `schedule` with these options gives.
enum class Look : std::uint8_t { kQuick, kWhole };
struct Prediction {
  double given_seconds = 0, seconds = 0;
  std::int64_t given_peak = 0, peak = 0;
  bool fits = false;  // within the budget
};
// What it says of single nodes: seconds of kernels and of collectives, and for how many of these no
// kernel runs.
struct NodeTimes {
  SideTable<NodeId, double> kernel, collective, exposed;
};
Prediction predict_schedule(const Graph& graph, const ScheduleOptions& options, Look look = Look::kQuick);

// A quick look in two steps, of which the second asks no context: any thread may take it.
class QuickLook {
 public:
  QuickLook(const Graph& graph, const ScheduleOptions& options);
  Prediction run(NodeTimes* times = nullptr) const;

 private:
  DecisionModel decision_;
  ScheduleProblem problem_;
  MemoryBudget memory_;
};

// Whether a rewrite of a graph is predicted to take less than the graph itself once both are
// scheduled: at a quick look, and then by the whole schedules.
struct Comparison {
  Prediction graph, other;
  bool pays = false;
};
// A graph, and what was predicted of it with the same options: what is not known yet is added.
struct KnownPredictions {
  std::optional<Prediction> quick, whole;
};
struct Compared {
  const Graph& graph;
  KnownPredictions& known;
};
Comparison compare_scheduled(Compared graph, Compared other, const ScheduleOptions& options);
Comparison compare_scheduled(const Graph& graph, const Graph& other, const ScheduleOptions& options);
std::string describe(const Comparison& merged);  // of a graph, and one with merges
std::string print_time(const Prediction& predicted);

}  // namespace epweave
