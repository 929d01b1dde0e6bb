// The rank's place in the groups on which gathers are merged, in a graph that holds for all ranks:
// there it is no number, and the merged launch's part of its buffer follows it.
//
//   %coordinate_tp = _runtime_compute_coordinate_on_dim(%_ranks_by_tp, 1) : SymInt(u0)
//   %own = slice(%buffer, 0, 512 * u0, 512 * u0 + 512)
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "ir/graph.h"
#include "passes/bucket/mergeable.h"

namespace epweave {

// Nodes of the step, by stride and extent of the axis (Mergeable::axis).
using GroupCoordinates = std::map<std::pair<std::uint32_t, std::uint32_t>, NodeId>;

// Writes them behind the inputs of a graph that holds for all ranks, for whatever gathers `scope`
// finds to merge. New nodes say that `pass` added them.
GroupCoordinates write_group_coordinates(Graph& graph, MergeScope scope, std::string_view pass);

// Takes out those of gathers that stay as they are.
void drop_unread_coordinates(Graph& graph, const GroupCoordinates& coordinates);

}  // namespace epweave
