// Which sums were regrouped, and what is to be compared by bounds (sum_check.h): found on each
// rank, agreed by all, since the runs that make bounds are runs of all ranks together.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replay/check/node_judgements.h"
#include "replay/check/output_check.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// What the ranks of a process found, or all ranks together.
struct SumsFound {
  std::set<std::int64_t> sums;  // groups whose values are parts of a sum
  // Groups and outputs that a bound may decide: bytes of A's value and its bound, of all ranks of a
  // process (the process that has most).
  std::map<std::int64_t, std::int64_t> bytes, output_bytes;

  // Of a rank of this process, with what A returned there.
  void add(const Judgements& judgements, const std::vector<OutputCheck>& outputs, const RankOutputs& of_a);
  // Once all ranks of this process are added.
  void count_bytes(const PairedGraphs& graphs, const Watcher& seen_a, RankRange ranks);
  std::string encode() const;
  void add_process(std::string_view text);  // what another process's encode() gave
};

struct BoundPlan {
  BoundedNodes a, b;  // without observers
  // Whose values of A may be kept together.
  struct Lot {
    std::vector<std::size_t> groups, outputs;
  };
  std::vector<Lot> lots;  // none: nothing was regrouped
};
BoundPlan plan_bounds(const PairedGraphs& graphs, const SumsFound& found, std::size_t kept_bytes);

// All that may be followed, as recorded sizes tell, before anything is run.
struct FollowedNodes {
  IdSet<NodeId> a, b;
  bool is_any = false;
};
FollowedNodes find_followed(const Graph& a, const Graph& b);

// Whether a regrouped sum is behind a value of the group.
bool is_reached(const BoundPlan& plan, const Group& group);

}  // namespace epweave::replay
