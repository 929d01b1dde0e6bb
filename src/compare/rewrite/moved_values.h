// Values of the first graph as what they are moved from: calls that only move are followed to what
// they move.
//
//   %w = wait(all_gather(cast(%p)))     elements of %p, cast, of each rank
#pragma once

#include <map>
#include <optional>

#include "analysis/aliases.h"
#include "analysis/write_places.h"
#include "compare/rewrite/moved_groups.h"
#include "compare/rewrite/movement.h"
#include "compare/rewrite/numbers.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

// The same elements in the same order, in new memory.
bool copies(const Node& node);
// The same elements in the same order, where they are.
bool keeps_order(const Node& node);
// A launch with one result in memory of its own.
bool is_functional_launch(const Node& node);
// l = reduce_scatter_tensor_coalesced([x, y], ..): each operand by itself.
bool is_launch_of_each(const Node& node);

class MovedValues {
 public:
  MovedValues(const RewriteClaims& claims, Numbers& numbers, MovedGroups& groups, MovementTerms& terms,
              const Effects& effects);

  const Sequence& of(NodeId id);

 private:
  Sequence leaf(NodeId id);
  NodeId moved_operand(NodeId id);
  bool is_written_before(NodeId value, NodeId reader);
  std::optional<Sequence> move(NodeId id);

  const RewriteClaims& claims_;
  Numbers& numbers_;
  MovedGroups& groups_;
  MovementTerms& terms_;
  const Context& context_;
  const Body& body_;
  LaterWrites later_writes_;
  std::optional<WritePlaces> writes_;  // once asked for, with the places
  IdVector<NodeId, std::uint32_t> place_;
  std::map<NodeId, Sequence> known_;
};

}  // namespace epweave
