// Numbers values: two nodes that compute the same from the same have the same number, so that a
// recomputed copy has that of the original.
//
//   a = add(x, y);  add_(x, 1);  b = add(x, y);  c = add(x, y)      number(b) = number(c) != number(a)
//
// What storage holds after a write is another value, though it is read by the same name: one that
// the same writes of the same values gave to the same. What is
// known to be done once more (`original`) has the number of the original, also where a write hides
// that: a launch is written by its own wait.
#pragma once

#include <vector>

#include "analysis/effects.h"
#include "base/word_table.h"
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
  // `original`: of nodes that repeat another one in front of them, with the same writes.
  ValueNumbers(const Graph& graph, const Effects& effects, const IdVector<NodeId, NodeId>& original);
  // The first node that computes the value.
  NodeId operator[](NodeId id) const { return number_[id]; }

 private:
  // Of a call: target and arguments with every node replaced by its number and what its storage
  // holds by now.
  void push_call(WordTable& keys, const Node& node) const;
  // Whether its arguments say what it computes.
  bool follows_from_arguments(const Node& node) const;
  void note_writes_of(NodeId id, const Node& node);
  NodeId number(NodeId id, const Node& node);
  // The first node with the key that was just pushed for `id`.
  NodeId first_of_key(NodeId id);

  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  IdVector<NodeId, NodeId> number_;
  WordTable keys_;
  std::vector<NodeId> first_;  // node with each key
  // Of storage that was written: 1 + the number of the last write and all before it.
  SideTable<NodeId, std::uint32_t> contents_;
  WordTable writes_;
};

}  // namespace epweave
