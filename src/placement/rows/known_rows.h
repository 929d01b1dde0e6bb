// What is known of the order of rows, at one node after the other (frames.h).
#pragma once

#include <cstdint>

#include "analysis/frame_terms.h"
#include "analysis/value_numbers.h"
#include "base/id.h"
#include "ir/graph.h"
#include "placement/placement.h"

namespace epweave {

// Of an operand's rows.
struct OperandRows {
  enum class Order : std::uint8_t { kNoRows, kAny, kUnknown, kKnown };
  Order order = Order::kNoRows;
  FrameId frame;  // of kKnown
  NodeId node;
  bool is_known() const { return order == Order::kKnown; }
  bool is_unknown() const { return order == Order::kUnknown; }
  bool is_any() const { return order == Order::kAny; }
};

class KnownRows {
 public:
  // All must outlive it.
  KnownRows(const Graph& graph, const Placements& placements, const ValueNumbers& numbers,
            FrameId token_order)
      : context_(*graph.context),
        body_(graph.step()),
        placements_(placements),
        contents_(numbers, *placements.effects),
        token_order_(token_order) {}

  // Operands are seen from this node's region from here on.
  void enter(NodeId id) { region_ = placements_.region[id]; }
  // Each node of the body, behind what is set of it.
  void leave(NodeId id);

  OperandRows of(NodeId input) const;
  OperandRows of(Arg arg) const { return arg.is_node() ? of(arg.as_node()) : OperandRows(); }
  FrameId frame(Arg arg) const { return of(arg).frame; }
  const Placement& placement(NodeId value) const { return placements_.seen_from(value, region_); }
  const Placement& placement(Arg arg) const;
  // No node has written its storage since it was made.
  bool is_as_made(NodeId value) const { return contents_[value] == content_when_made_[value]; }

  // What a node makes: rows in this order (none: not known), or all alike.
  void set(NodeId id, FrameId frame) { frame_.at(id) = frame; }
  void set_alike(NodeId id) { alike_.insert(id); }
  bool are_alike(NodeId id) const { return alike_.contains(id); }
  // The pick or write, by one index, that left nothing known of a value's rows.
  void set_lost(NodeId id, NodeId at) { lost_at_.at(id) = at; }
  NodeId lost_at(NodeId id) const { return lost_at_[id]; }

 private:
  const Context& context_;
  const Body& body_;
  const Placements& placements_;
  StorageContents contents_;
  SideTable<NodeId, std::uint32_t> content_when_made_;  // of a value's storage
  const FrameId token_order_;
  RegionId region_;
  SideTable<NodeId, FrameId> frame_;
  SideTable<NodeId, NodeId> lost_at_;
  IdSet<NodeId> alike_;
};

}  // namespace epweave
