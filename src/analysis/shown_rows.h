// Which rows of another value a value shows, as the arguments of its call say.
//
//   %s = split_with_sizes(%x, [3, 5], 0); %p = getitem(%s, 1)     of %x along dimension 0, from row 3 on
//   %r = slice(%x, 1, 2, 6): f32[8, 4]                            of %x along dimension 1, from row 2 on
//
// How many, the extent recorded of it says.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

struct ShownRows {
  NodeId of;
  std::size_t dim = 0;
  ExprId start;
};

// Of a graph that stays as it is. Takes time in the pieces of a split once, not for each of them.
class ShownRowsFinder {
 public:
  explicit ShownRowsFinder(const Graph& graph) : graph_(graph) {}

  // None: it is neither a piece of a split nor a slice of neighbouring rows, or the facts do not
  // say that the slice begins and ends within the value.
  std::optional<ShownRows> find(Facts& facts, NodeId id);

 private:
  struct SplitStarts {
    NodeId of;
    std::size_t dim = 0;
    std::vector<ExprId> starts;  // of its pieces; empty: its arguments do not say
  };
  const SplitStarts& read_split(NodeId split);

  const Graph& graph_;
  std::map<NodeId, SplitStarts> splits_;
};

// Of a piece of a split, or a slice: what is cut.
NodeId find_cut_operand(const Graph& graph, NodeId id);

// A split that shows its operand: the extent of each piece along the dimension, as far as its
// arguments say. Of pieces of one size, that size of each, though the last may be smaller.
struct SplitRows {
  NodeId of;
  std::size_t dim = 0;
  std::vector<ExprId> extents;
};
std::optional<SplitRows> find_split_rows(const Graph& graph, NodeId split);

// The dimension that a call's argument for `dim` names, from the front; without one, 0. None: it is
// no literal, or no dimension of a value of so many.
std::optional<std::size_t> find_dim(const Context& context, const Node& node, std::size_t rank);

}  // namespace epweave
