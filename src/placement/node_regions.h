// The region that each node of a step belongs to: the code of one root in one direction, and what
// goes with it though it is in no module of it.
//
//   %s = split(%x, 4)  layers.0.moe    region "layers.0.moe", forward
//   %a = getitem(%s, 0)                goes with its tuple, a wait with its collective
//   %g = add(%p, %q)   bwd, no module  gradient accumulation, with its latest divided operand
#pragma once

#include <cstdint>

#include "analysis/module_path.h"
#include "analysis/users.h"
#include "placement/chunk_roots.h"
#include "placement/placement.h"

namespace epweave {

class NodeRegions {
 public:
  // `placements`: of the nodes in front of the one that is asked for; gets the regions. All must
  // outlive this.
  NodeRegions(const Graph& graph, JoinMode join, ModuleMatcher& matcher, const ChunkRoots& roots,
              Placements& placements)
      : graph_(graph),
        step_(graph.step()),
        join_(join),
        matcher_(matcher),
        roots_(roots),
        placements_(placements) {}

  // None: it is outside all regions. Ask for each node in the order of execution.
  RegionId find(NodeId id);
  // That a node of the region takes parts of a value from outside.
  void note_taken(NodeId value, RegionId region) { taken_by_.at(value) = region; }

 private:
  RegionId region_of_root(StringId root, bool backward);
  std::uint32_t group_of_root(StringId root);
  RegionId region_of_sums(NodeId id);
  bool counts_data(NodeId iota);
  bool is_answer(NodeId id) const;

  const Graph& graph_;
  const Body& step_;
  const JoinMode join_;
  ModuleMatcher& matcher_;
  const ChunkRoots& roots_;
  Placements& placements_;
  NodeLists users_;                                   // once asked for
  SideTable<StringId, RegionId> forward_, backward_;  // by root
  SideTable<StringId, std::uint32_t> group_of_;       // of a root, from 1 on
  std::uint32_t group_count_ = 0;
  SideTable<NodeId, std::uint32_t> asked_;  // when a node was asked for, from 1 on
  std::uint32_t asked_count_ = 0;
  SideTable<NodeId, RegionId> taken_by_;  // the region that takes an outside value in parts
};

}  // namespace epweave
