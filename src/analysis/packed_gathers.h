// What a merged gather gives of each tensor that was packed for it: the same as a gather of that
// tensor alone.
//
//   %b = pack([%p, %q])                       elements of %p, then of %q: or a cat of their views
//   %g = all_gather(%b, 2)                    of rank 0, then of rank 1
//   %c = split(view(%g, [2, -1]), [8, 4], 1)
//   %y = view(%c[0], [4, 4])                  is all_gather(%p: [2, 4], 2)
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/graph.h"

namespace epweave {

class PackedGathers {
 public:
  explicit PackedGathers(const Graph& graph) : context_(*graph.context), body_(graph.step()) {}

  struct Piece {
    NodeId tensor, launch;  // the launch of the merged gather
  };
  // Of each node, in order: whether it is the gather of one tensor.
  std::optional<Piece> visit(NodeId id);

 private:
  // What each rank sends: tensors one behind the other.
  struct Sent {
    NodeId tensor;
    std::int64_t bytes = 0;
  };
  using Packed = std::vector<Sent>;
  struct Gathered {
    const Packed* packed = nullptr;
    NodeId launch;
  };

  void pack(NodeId id, const Node& node);
  void pass_packed(NodeId id, Arg from);
  void gather(NodeId id, const Node& node);
  void split(NodeId id, const Node& node);
  std::optional<Piece> pass(NodeId id, const Node& node);
  std::optional<Piece> as_gather(NodeId id, Piece piece) const;

  Arg named(const Node& node, std::string_view param) const;
  std::optional<std::int64_t> count(NodeId id) const;  // of elements
  std::optional<std::int64_t> bytes_of_element(NodeId id) const;
  NodeId source_of(NodeId id) const;  // of a flat view

  const Context& context_;
  const Body& body_;
  std::map<NodeId, Packed> packed_;
  std::map<NodeId, Gathered> gathered_;
  std::map<NodeId, std::vector<Piece>> columns_;  // of a split
  std::map<NodeId, Piece> pieces_;                // also by the buffer into which one is written
};

}  // namespace epweave
