// How the whole values of a step, taken by themselves, relate to parts of the tokens: by their
// types, and where more than the tokens is merged into a dimension, by what they are made from.
//
//   %x: [u, 256]             Split(0)
//   %n: 4 * u                Partial: the parts' numbers add up
//   %y = view(%z, [4 * u])   of %z: [4, u]: Split(0) in 4 blocks; of %z: [u, 4]: Split(0)
#pragma once

#include <cstdint>
#include <optional>

#include "ir/facts.h"
#include "placement/placement.h"
#include "placement/token_extent.h"

namespace epweave {

class OutsidePlacements {
 public:
  // `made`: gets the placements. All must outlive this.
  OutsidePlacements(const Graph& graph, TokenExtents& tokens, Facts& facts, PlacementTable& made)
      : graph_(graph), step_(graph.step()), tokens_(tokens), facts_(facts), made_(made) {}

  // Where no input has a token symbol alone, ranks share the tokens: the inputs have the rows of
  // all of them, as many as gathers make of one rank's. Call it first.
  void find_sharing_ranks();
  // Call it for each node in the order of execution.
  void infer(NodeId id);

 private:
  Placement of_type(TypeId id);
  Placement ordered(NodeId id, TypeId type_id, const Placement& placement);
  Placement element_of(const Node& getitem, const Placement& placement) const;
  std::optional<std::int64_t> rows_of(NodeId id);

  const Graph& graph_;
  const Body& step_;
  TokenExtents& tokens_;
  Facts& facts_;
  PlacementTable& made_;
  std::int64_t sharing_ranks_ = 1;        // whose rows the inputs have, one rank's behind the other's
  SideTable<TypeId, Placement> by_type_;  // of those in placed_types_
  IdSet<TypeId> placed_types_;
};

}  // namespace epweave
