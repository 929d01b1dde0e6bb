// In-place writes of a divided region: into what all parts share only as a sum over the parts,
// otherwise only into what each part has of its own.
//
//   add_(%buf, %counts)      %buf is from outside, %counts Partial: carried from part to part; who reads
//                            %buf in the region would see it between the parts' updates: refused
//   add_(%h, %rows)          both Split(0) of the region: each part its rows
//
// What is refused throws PlacementRefusal.
#pragma once

#include <vector>

#include "placement/placement.h"

namespace epweave {

struct ReliedOn;

class RegionUpdates {
 public:
  // `placements`: of the nodes so far; a write that tells rows apart, which were equal, changes
  // that of the value.
  RegionUpdates(const Graph& graph, Placements& placements)
      : graph_(graph), step_(graph.step()), placements_(placements) {}

  // Of each node of the step, behind the others.
  void note_writes(NodeId id);
  // A divided node and its placement.
  void note_placed(NodeId id, const Placement& placement);

  // A part must not see a buffer between the parts' updates.
  void check_before(NodeId id, RegionId region) const;
  // What a rule says of a value for what made it holds until something writes the value.
  void check_content(const ReliedOn& relied_on) const;
  // What a node of this placement writes.
  void check_after(NodeId id, const Placement& placement, RegionId region);

 private:
  void end_equal_rows(NodeId value, const Placement& written);
  bool has_place_of(NodeId value, const Placement& written) const;

  const Graph& graph_;
  const Body& step_;
  Placements& placements_;
  SideTable<NodeId, RegionId> updated_in_;             // the region that updates a buffer
  SideTable<NodeId, NodeId> written_by_;               // storage: the first node that writes it, so far
  SideTable<NodeId, std::vector<NodeId>> equal_rows_;  // storage: its values in any order, so far
};

}  // namespace epweave
