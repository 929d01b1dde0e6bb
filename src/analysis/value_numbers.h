// Numbers values: two nodes that compute the same from the same have the same number, so that a recomputed copy
// has that of the original.
//
//   a = add(x, y);  add_(x, 1);  b = add(x, y);  c = add(x, y)      number(b) = number(c) != number(a)
//
// What storage holds after a write is another value, though it is read by the same name.
#pragma once

#include <vector>

#include "analysis/effects.h"
#include "base/hash_index.h"
#include "ir/graph.h"

namespace epweave {

// How often each storage has been written so far, for a walk in execution order.
class WriteCounts {
 public:
  explicit WriteCounts(const Effects& effects) : effects_(effects) {}
  void count_writes_of(NodeId node) {
    for (const StorageAccess& access : effects_.accesses_of(node))
      if (access.writes) ++counts_.at(access.storage);
  }
  // To the storage of the value.
  std::uint32_t operator[](NodeId value) const { return counts_[effects_.storage_of(value)]; }

 private:
  const Effects& effects_;
  SideTable<NodeId, std::uint32_t> counts_;
};

class ValueNumbers {
 public:
  ValueNumbers(const Graph& graph, const Effects& effects);
  // The first node that computes the value.
  NodeId operator[](NodeId id) const { return number_[id]; }

 private:
  // A call: target and arguments with every node replaced by its number and the writes to it, as words in one
  // array.
  struct Call {
    std::size_t begin, end;
    NodeId first;  // node that computes it
  };

  NodeId number(NodeId id, const Node& node);
  bool same(const Call& a, const Call& b) const;
  // Of `id`, whose words were just appended from `begin` on: the first node with the same.
  NodeId first_of(std::size_t begin, NodeId id);
  std::size_t append_call(const Node& node);  // returns where its words begin
  std::size_t append_graph(Arg graph);        // a nested graph, which several attributes may name
  void append(ArgKind kind, ArgRange range);

  const Context& context_;
  const Body& body_;
  WriteCounts writes_;
  IdVector<NodeId, NodeId> number_;
  std::vector<std::uint64_t> words_;
  std::vector<Call> calls_;  // distinct ones
  HashIndex call_ids_;
};

}  // namespace epweave
