// Copies that a step returns, for which a wrong rewrite returns what was copied, or one copy
// twice: the values are right, and who writes into one result changes another.
//
//   A: %c = clone(%v); output([.., %v, %c])     B: %c = view(%v, [8, 4]); output([.., %v, %c])
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"
#include "testing/dice.h"
#include "testing/graph_editor.h"
#include "testing/paired_nodes.h"

namespace epweave {

class ReturnedCopies {
 public:
  // The graphs share a context and outlive this.
  ReturnedCopies(const Graph& a, const Graph& b, const PairedNodes& paired, Dice& dice);

  // Both graphs with one or two copies of a value, which they return. False: the value that was
  // drawn is in parts, or its extents have no numbers.
  bool make();

  Graph take_a() { return editor_a_.take(); }
  Graph take_b() { return editor_b_.take(); }
  const std::string& what() const { return what_; }  // "a view for a copy of %mm_3"

 private:
  enum class How : std::uint8_t { kCopied, kShown, kOnce };

  NodeId draw_value();
  std::optional<Node> make_copy(StringId name, NodeId value);
  NodeId add_to_a(const Node& copy);
  NodeId add_to_b(Node copy, ProvenanceRole role, const NameList& origins);
  std::optional<Arg> sizes_of(NodeId value);

  const Graph& a_;
  const PairedNodes& paired_;
  Dice& dice_;
  GraphEditor editor_a_, editor_b_;
  std::string what_;
};

}  // namespace epweave
