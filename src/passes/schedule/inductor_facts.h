// A step as PyTorch's overlap scheduler classifies it.
//
//   node    p (input)    g = all_gather(p)    w = wait(g)    y = mm(x, w)    z = _grouped_mm(..)    r = reduce_scatter(z)
//   role    kInput       kLaunch              kWait          kCompute        kOther                 kLaunch
//
// Nodes are named by their place (cost/step_model.h).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "cost/step_model.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

enum class InductorRole : std::uint8_t {
  kRank,     // a lookup in a mesh: stands behind the inputs on each rank, and is not scheduled
  kInput,    // of the step
  kCompute,  // PyTorch's flop counter has a formula: products and attention, but no grouped products
  kLaunch,   // a collective that a kWait waits for
  kWait,     // takes a collective's result, or an element of it
  kOther,
};

inline constexpr std::uint32_t kNeverNeeded = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t kNoBucketKey = std::numeric_limits<std::uint32_t>::max();

// All numbers of collectives are positions in InductorFacts::collectives.
struct InductorCollective {
  Place start = kNoPlace, wait = kNoPlace;  // the first of its waits
  std::uint32_t group = 0;                  // position in StepModel::step_groups
  std::uint32_t key = 0;  // kind, group, reduction, dtype: collectives that might share a bucket
  std::uint32_t bucket = kNoBucketKey;  // the same without the kind; none: never in a bucket
  bool is_gather = false;
  std::int64_t bytes = 0;  // of operands and results; half of them of an all-reduce
  double ms = 0;
  double latency_ms = 0;  // of an empty message
};

struct InductorFacts {
  // By place.
  std::vector<InductorRole> roles;
  std::vector<double> ms;
  std::vector<std::uint32_t> collective;  // of launches and waits; kNoPlace elsewhere
  std::vector<bool> is_cheap;             // a view, or pointwise
  std::vector<bool> blocks_path;  // communication that is no kLaunch or kWait, or a call without a row
  std::vector<std::uint32_t>
      needed_by;  // the first compute node that needs it (or it is), from 0; kNeverNeeded
  std::vector<bool> is_needed_by_scatter;     // some reduce-scatter needs it
  std::vector<std::uint32_t> compute_before;  // how many compute nodes stand up to the last that it needs
  std::vector<std::uint32_t>
      value_inputs;  // how many nodes it takes values from, lookups in meshes not counted
  PlaceLists value_users;

  std::vector<InductorCollective> collectives;  // in the order of their first waits
  std::uint32_t keys = 0;
  std::uint32_t computes = 0;
};

// Of gathers the dtype counts in their keys, or not.
enum class GatherKey : std::uint8_t { kByDtype, kAnyDtype };

InductorFacts find_inductor_facts(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  GatherKey gathers);

}  // namespace epweave
