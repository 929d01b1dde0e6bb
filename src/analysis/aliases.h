// Whose storage a value shows, and what depends on how a value lies in memory.
//
//   %v = t(%x); %f = reshape(%v, [-1])    shows %x's storage where %v's strides allow it, else %f is a copy
//   %s = as_strided(%x, [8, 8], [8, 1])   other elements, where %x has other strides
//
// Two graphs with the same calls on the same values compute the same only if such calls find their
// operands laid out alike, or if it makes no difference: no one writes what is a view in one and a
// copy in the other.
#pragma once

#include "analysis/effects.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// The operand whose storage the node's value shows: of a view, an op that writes it and returns it,
// a wait, an element of a list of views, and of a reshape, which may be a copy. None: the value is
// storage of its own, or its op is unknown.
NodeId shown_operand(const Context& context, const Body& body, NodeId id);

// Whether the call is a view where the strides of its operand allow it, and a copy elsewhere.
bool may_copy(const Node& node);

enum class Showing : std::uint8_t { kView, kCopy, kUnknown };
// Whether the node shows its operand's storage, by the facts, else by the numbers that extents had
// when traced. kUnknown: these are not recorded.
Showing showing_of(Facts& facts, const Graph& graph, NodeId id);
// The same for all numbers that the extents can have: kUnknown where those of the trace alone tell.
Showing known_showing_of(Facts& facts, const Graph& graph, NodeId id);

// Where `next`, from the value on, ends. `ends`: what was found before, so that a long row is
// climbed once.
template <class Next>
NodeId climb(NodeId value, SideTable<NodeId, NodeId>& ends, const Next& next) {
  NodeId end = value;
  for (NodeId id = value; id; id = next(id)) {
    end = id;
    if (const NodeId known = ends[id]; known) {
      end = known;
      break;
    }
  }
  return ends.at(value) = end;
}

// Whose memory values show. A reshape whose strides do not tell, and any in a nested graph, counts
// as `unknown`: a view or a copy.
class MemoryRoots {
 public:
  MemoryRoots(const Graph& graph, const Body& body, Facts& facts, Showing unknown)
      : graph_(graph), body_(body), facts_(facts), unknown_(unknown) {}

  // The first value of that memory.
  NodeId of(NodeId value) {
    return climb(value, ends_, [&](NodeId id) { return shown_by(id); });
  }
  // One step on the way there; or none.
  NodeId shown_by(NodeId id);

 private:
  const Graph& graph_;
  const Body& body_;
  Facts& facts_;
  const Showing unknown_;
  SideTable<NodeId, NodeId> ends_;
};

// Whether a call may compute other elements, or stop the step, if its tensors have other strides:
// it addresses storage itself (as_strided), checks strides, draws random numbers in the order of
// storage, or is unknown.
bool reads_layout(const Graph& graph, const Node& node);
// Of those: whether it addresses elements of storage that its operand does not show.
bool addresses_storage(const Node& node);

// Which writes come behind a node, to storage that it shows. A wait, which completes a collective,
// is none.
class LaterWrites {
 public:
  explicit LaterWrites(const Effects& effects);
  bool any(NodeId id) const {
    const NodeId storage = effects_.storage_of(id);
    return last_write_[storage] > positions_[id];
  }

 private:
  const Effects& effects_;
  IdVector<NodeId, std::uint32_t> positions_;   // from 1
  IdVector<NodeId, std::uint32_t> last_write_;  // by storage; 0: none
};

}  // namespace epweave
