#include "placement/rows/known_rows.h"

namespace epweave {

void KnownRows::leave(NodeId id) {
  contents_.note_writes_of(id);
  if (placements_.region[id] && placements_.is_divided(id)) content_when_made_.at(id) = contents_[id];
}

OperandRows KnownRows::of(NodeId input) const {
  using Order = OperandRows::Order;
  const Placement& p = placement(input);
  if (are_alike(input) && is_as_made(input) && placements_.shares_parts(input, region_))
    return {Order::kAny, {}, input};
  if (p.is(PlacementKind::kSplit)) return {Order::kKnown, token_order_, input};
  const bool is_tensor = tensor_of(context_, body_.nodes[input].type) != nullptr;
  const bool is_own = (p.is_local() && is_tensor) || p.is(PlacementKind::kTuple);
  if (!is_own) return {Order::kNoRows, {}, input};
  if (frame_[input] && is_as_made(input)) return {Order::kKnown, frame_[input], input};
  return {p.is_local() ? Order::kUnknown : Order::kNoRows, {}, input};
}

const Placement& KnownRows::placement(Arg arg) const {
  static const Placement kWhole;
  return arg.is_node() ? placement(arg.as_node()) : kWhole;
}

}  // namespace epweave
