// How the ranks of a job take what a slice by a coordinate stands for: metadata `element_of` of the
// slice, with which specialize writes a rank's own call where passes have dropped or copied it.
//
//   %y = slice(%x, 2, 8 * c, 8 + 8 * c)   element_of ["aten.split.Tensor", [8, 2], "split_1"]
//                                         getitem(%split_1, c) of %split_1 = split(%x, 8, 2)
//   %y = slice(%x, 1, 4 * c, 4 + 4 * c)   element_of ["aten.slice.Tensor", [1, 4, 9223372036854775807], "y_1"]
//                                         the last piece, which tracers spell so; the others by their bounds
#pragma once

#include <optional>
#include <set>

#include "ir/graph.h"

namespace epweave {

// `like` with the metadata, which says the call's target, its arguments behind the whole, and its
// name.
const NodeExtra* describe_element(Graph& graph, const NodeExtra* like, const Node& call);

// Without the metadata.
const NodeExtra* without_element(Context& context, const NodeExtra* extra);

// The calls that slices of a body say they stand for.
class ElementCalls {
 public:
  ElementCalls(Context& context, const Body& body);

  bool empty() const { return names_.empty(); }
  // Of the slice's own whole, in its direction and part; it has no type. Equal arguments are one
  // range.
  std::optional<Node> read(const Node& slice) const;
  // Whether a node of the body may be that call, or a piece beside it: of the same direction and
  // part, and not what another slice stands for.
  bool is_call(const Node& node, const Node& call) const;
  bool is_beside(const Node& node, const Node& call) const;

 private:
  Context& context_;
  std::set<StringId> names_;  // of the calls
};

// How many nodes each slice with the metadata adds on a rank, where that is not one: the split,
// too, or none if the pieces stand there already.
SideTable<NodeId, std::optional<std::uint32_t>> count_element_nodes(Context& context, const Body& body);

}  // namespace epweave
