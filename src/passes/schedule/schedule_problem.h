// A step as a scheduler sees it: what may execute where, how long it takes, and which memory it
// holds.
//
//   node   0: x (input)   1: g = all_gather(x)   2: w = wait(g)   3: c = mul(x, x)   4: d = mm(c, w)   5: output
//   work      kPinned        kLaunch, 3 ms          kWait            kKernel, 1 ms      kKernel, 2 ms     kPinned
//
// Nodes are named by their place in the order that the step has (cost/step_model.h). `inputs` names
// everything that must execute before a node: what it takes values from, what must stay in order
// for the sake of storage, random numbers and host reads, calls that nobody knows and what is
// around them, and, where asked for, the launch before it on its group and the forward before
// recomputation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/step_model.h"
#include "ir/graph.h"
#include "passes/schedule/decision.h"

namespace epweave {

enum class PlaceWork : std::uint8_t {
  kPinned,   // inputs, lookups in meshes and the output: keep their place at the ends
  kView,     // costs nothing: executes in front of its first user
  kEager,    // costs nothing, and would keep storage alive, frees some, or has no user: as soon as it can
  kStorage,  // an allocation: in front of its first user
  kKernel,   // on the compute stream
  kLaunch,   // on the stream of its group
  kWait,     // joins the compute stream to the end of its launch
};

struct ScheduleProblem {
  // By node.
  std::vector<PlaceWork> work;
  std::vector<double> seconds;
  // The place in the graph of a rank with whole shards: lookups in meshes and what pads or cuts
  // short shards alone are none there.
  std::vector<Place> number;
  std::vector<std::uint32_t> group;  // of launches
  std::vector<Place> launch;         // of waits
  std::vector<std::int16_t> part;    // of a divided region; 0 elsewhere
  std::vector<bool> is_backward;
  // Nodes that do the same in modules of the same name, numbers aside, have one role: the query
  // projection of each layer's attention. What is a good order in one layer is one in all.
  std::vector<std::uint32_t> role;
  std::uint32_t roles = 0;
  PlaceLists inputs, users;
  PlaceLists touches;  // storages that must live while the node runs, its own results included
  std::uint32_t groups = 0;

  // By storage. What the caller passes in is not among them.
  std::vector<Place> home;  // the node that makes it
  std::vector<std::int64_t> bytes;
  std::vector<bool> stays;  // to the end: the step returns it
  PlaceLists touchers;      // the inverse of `touches`
  std::int64_t input_bytes = 0;

  std::size_t size() const { return work.size(); }
  std::size_t scheduled() const { return number.empty() ? 0 : number.back() + std::size_t{1}; }
  bool is_timed(Place i) const { return work[i] == PlaceWork::kKernel || work[i] == PlaceWork::kLaunch; }
};

enum class LaunchOrder : std::uint8_t {
  kFree,
  kKept,     // of each group
  kAllKept,  // of all groups together
};
enum class RecomputeOrder : std::uint8_t { kBehindForward, kFree };
struct ScheduleRules {
  LaunchOrder launches = LaunchOrder::kFree;
  RecomputeOrder recompute = RecomputeOrder::kBehindForward;
};

// The step has its lookups in meshes behind its inputs (hoist_rank_nodes).
ScheduleProblem make_schedule_problem(const Graph& graph, const DecisionModel& decision,
                                      const ScheduleRules& rules);

}  // namespace epweave
