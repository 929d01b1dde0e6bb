// Strides of joins: a `cat` is dense, the value that it rejoins may lie otherwise.
//
//   %r = relu(t(%h)): [8, u]{1, 8}
//   %r_chunk_materialized = cat([%r_chunk0, %r_chunk1], 1): [8, u]{u, 1}
//
// Nearly always that is all the same. Some calls see it: behind the join, `reshape(t(%r), [-1])` is
// a copy where it was a view, and what is written to it no longer reaches %r; `as_strided(%r, ..)`
// reads other elements. For those the join gets the strides of what it rejoins
// (PartJoins::concatenate_in_order); what cannot have them is refused.
#pragma once

#include <optional>
#include <vector>

#include "analysis/aliases.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class StrideReaders {
 public:
  // Rows of `chunked` that are rows of `graph` have the same ids. All must outlive this.
  StrideReaders(const Graph& graph, const Graph& chunked, const Effects& effects, Facts& facts)
      : graph_(graph), chunked_(chunked), effects_(effects), facts_(facts), facts_before_(graph) {}

  // Inputs of a node that is whole as `made`, as the input graph names them, whose strides are not
  // what they were, and it sees that.
  std::vector<NodeId> list_seen(NodeId id, NodeId made);
  // Whether a node that stands for `id`, or a part of it, is a view where that is a copy, or the
  // other way around, and one of them is written behind it.
  bool shows_otherwise(NodeId id, NodeId made);
  // Of a call that addresses the storage of its operand: the value that has that storage; none:
  // another call.
  NodeId find_addressed(NodeId id) const;

 private:
  bool lies_otherwise(TypeId before, TypeId after);
  bool is_equal(ExprId before, ExprId after);

  const Graph& graph_;
  const Graph& chunked_;
  const Effects& effects_;
  Facts& facts_;
  Facts facts_before_;
  std::optional<LaterWrites> later_;  // once asked for
};

// The order of the dimensions, outermost first, in which a dense value of this type lies in memory;
// none: it is not dense.
std::optional<std::vector<std::int64_t>> find_memory_order(Facts& facts, const TensorType& type);

}  // namespace epweave
