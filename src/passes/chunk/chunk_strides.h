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
#include <string_view>
#include <vector>

#include "analysis/aliases.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "passes/chunk/chunk_writer.h"
#include "placement/placement.h"

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

// What of a chunked graph lies otherwise in memory than it did, because it is a join or made of
// one, and which joins must have the strides of what they rejoin. That shows when their readers
// are written: the graph is then made once more.
class JoinStrides {
 public:
  // `strided`: values whose joins have the strides that they had. All must outlive this.
  JoinStrides(const Graph& graph, const Graph& chunked, const Placements& placements, ChunkWriter& writer,
              const IdSet<NodeId>& strided)
      : graph_(graph),
        chunked_(chunked),
        placements_(placements),
        writer_(writer),
        readers_(graph, chunked, *placements.effects, writer.facts()),
        strided_(strided) {}

  bool keeps(NodeId value) const { return strided_.contains(value); }
  // What else must have been in `strided`, once the graph is written: then it is none.
  const std::vector<NodeId>& missed() const { return missed_; }

  // That a value of this type stands for the whole of another, as a join of its parts or not.
  void note_whole(NodeId id, TypeId type);
  void note_join(NodeId id) { joined_.insert(id); }
  // Whether the whole of a value has another type than it had.
  bool is_retyped(NodeId id) const { return retyped_.contains(id); }
  // The type of a whole node whose operands' types changed. What is no view of a dense join is one
  // once the join has its strides.
  TypeId retype(NodeId id);

  // Joins that the node, whole as `made`, sees to be dense must have strides. Throws PassError
  // where they cannot.
  void check_reader(NodeId id, NodeId made);
  // Of a call that addresses the storage of its operand: the value that has that storage; none:
  // another call.
  NodeId find_addressed(NodeId id) const { return readers_.find_addressed(id); }
  // Throws PassError where the call, as it is written, addresses another storage than `whole`.
  void require_shows(NodeId id, NodeId whole) const;
  // Throws PassError where a part of the node is a view and it is a copy, or the other way around,
  // and that shows.
  void require_shows_alike(NodeId id, NodeId part);

 private:
  std::vector<NodeId> list_joins_behind(NodeId id) const;
  bool can_have_strides(NodeId joined);
  [[noreturn]] void fail_strides(NodeId joined, NodeId reader) const;
  [[noreturn]] void fail(NodeId reader, std::string_view why) const;

  const Graph& graph_;
  const Graph& chunked_;
  const Placements& placements_;
  ChunkWriter& writer_;
  StrideReaders readers_;
  const IdSet<NodeId>& strided_;
  std::vector<NodeId> missed_;
  IdSet<NodeId> joined_;   // values whose whole is a join
  IdSet<NodeId> retyped_;  // values whose whole has another type than they had
};

// The order of the dimensions, outermost first, in which a dense value of this type lies in memory;
// none: it is not dense.
std::optional<std::vector<std::int64_t>> find_memory_order(Facts& facts, const TensorType& type);

}  // namespace epweave
