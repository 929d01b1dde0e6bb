// Collectives that may share one launch: gathers of parameters, reductions of gradients,
// all-reduces.
//
//   g = all_gather_into_tensor(_to_copy(%param), 4, "0"); w = wait_tensor(g)
//
// A gather counts where one input of the step is behind it; a reduce-scatter, where what follows
// its wait reads nothing else, up to the outputs. Each has one user, its wait.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "analysis/effects.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

enum class MergeKind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce };

struct Mergeable {
  NodeId launch, wait;
  NodeId operand;  // what is packed: of a gather, what its cast takes
  NodeId cast;     // of a gather: the cast that packing does; none: there is none
  MergeKind kind = MergeKind::kAllGather;
  Arg group;      // as in Launch
  Arg group_arg;  // as the launch names it
  DType dtype = DType::kFloat32;
  StringId reduction;      // none: a gather
  std::int64_t ranks = 0;  // of a gather or a reduce-scatter
  std::int64_t rank = 0;   // of a gather: this rank's place in the group ...
  // ... which in a graph that holds for all ranks is the coordinate along this axis
  std::optional<GroupRule> axis;
  std::string_view axis_name;
  // How many calls of unknown effects stand in front of the launch, and of the wait: neither moves
  // across one.
  std::uint32_t launch_stretch = 0, wait_stretch = 0;

  // Whether one launch can do both.
  friend bool can_merge(const Mergeable& a, const Mergeable& b) {
    return a.kind == b.kind && a.group == b.group && a.dtype == b.dtype && a.reduction == b.reduction &&
           a.ranks == b.ranks && a.launch_stretch == b.launch_stretch && a.wait_stretch == b.wait_stretch;
  }
};

struct Mergeables {
  std::vector<Mergeable> list;        // in the order of their launches
  std::vector<std::string> left_out;  // notes on collectives that would count but cannot be merged
};

enum class MergeScope : std::uint8_t {
  kParameters,  // gathers of one input of the step, reduce-scatters that nothing reads, all-reduces
  kAll,
};

Mergeables find_mergeables(const Graph& graph, const NodeLists& inputs, const NodeLists& users,
                           const Effects& effects, MergeScope scope = MergeScope::kParameters);

}  // namespace epweave
