// Numbers values: two nodes that compute the same from the same have the same number, so that a
// recomputed copy has that of the original.
//
//   a = add(x, y);  add_(x, 1);  b = add(x, y);  c = add(x, y)      number(b) = number(c) != number(a)
//
// What storage holds after a write is another value, though it is read by the same name; where the
// same writes of the same values were made to two, they hold the same. What is known to be done
// once more (`original`) has the number of the original, also where a write hides that: a launch is
// written by its own wait.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/effects.h"
#include "base/id.h"
#include "base/word_table.h"
#include "ir/graph.h"

namespace epweave {

// What is known of a graph's nodes otherwise than from the graph: of a rewritten one, from the
// graph that it was made from. 0: nothing.
struct KnownValues {
  // Nodes with the same word are one value, whatever computes them. To a call that takes such a
  // value the word says what its storage holds, too.
  SideTable<NodeId, std::uint64_t> value;
  // Calls with the same word compute the same of equal arguments, whatever they are; of others,
  // nothing is said.
  SideTable<NodeId, std::uint64_t> call;
};

class ValueNumbers {
 public:
  ValueNumbers(const Graph& graph, const Effects& effects);
  ValueNumbers(const Graph& graph, const Effects& effects, KnownValues known);
  // `original`: of nodes that repeat another one in front of them, with the same writes.
  ValueNumbers(const Graph& graph, const Effects& effects, const IdVector<NodeId, NodeId>& original);
  // The first node that computes the value.
  NodeId operator[](NodeId id) const { return number_[id]; }

  // What a storage holds from a write on: a number, not 0, that no storage has which may hold
  // something else.
  struct Content {
    NodeId storage;
    std::uint32_t number = 0;
  };
  std::span<const Content> written_by(NodeId id) const {
    const ContentRange range = written_by_[id];
    return std::span(contents_made_).subspan(range.first, range.count);
  }

 private:
  ValueNumbers(const Graph& graph, const Effects& effects, const IdVector<NodeId, NodeId>& original,
               KnownValues known);
  // Of a call: target and arguments with every node replaced by its number and what its storage
  // holds by now.
  void push_call(WordTable& keys, NodeId id, const Node& node) const;
  // Whether its arguments say what it computes.
  bool follows_from_arguments(NodeId id, const Node& node) const;
  void note_writes_of(NodeId id, const Node& node);
  NodeId number(NodeId id, const Node& node);
  // The first node with the key that was just pushed for `id`.
  NodeId first_of_key(NodeId id);

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  KnownValues known_;  // only while values are numbered, as `keys_` and `writes_`
  IdVector<NodeId, NodeId> number_;
  WordTable keys_;
  std::vector<NodeId> first_;  // node with each key
  struct ContentRange {
    std::uint32_t first = 0, count = 0;
  };
  SideTable<NodeId, std::uint32_t> contents_;  // of storage, up to the node that is visited; 0: none wrote it
  WordTable writes_;
  std::vector<Content> contents_made_;
  SideTable<NodeId, ContentRange> written_by_;
};

// What each storage holds, for a walk in execution order: 0 until it is written.
class StorageContents {
 public:
  StorageContents(const ValueNumbers& numbers, const Effects& effects)
      : numbers_(numbers), effects_(effects) {}
  void note_writes_of(NodeId node) {
    for (const ValueNumbers::Content& content : numbers_.written_by(node))
      contents_.at(content.storage) = content.number;
  }
  // The storage of the value.
  std::uint32_t operator[](NodeId value) const { return contents_[effects_.storage_of(value)]; }

 private:
  const ValueNumbers& numbers_;
  const Effects& effects_;
  SideTable<NodeId, std::uint32_t> contents_;
};

}  // namespace epweave
