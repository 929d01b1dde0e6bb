// Types of calls, as infer_type gives them, each computed once: the layers of a model repeat the
// same calls on values of the same types.
//
//   %a = mm(x: bf16[8, 4], w: bf16[4, 2])     by its rule
//   %b = mm(y: bf16[8, 4], v: bf16[4, 2])     known: the same op and arguments, but for values of equal types
#pragma once

#include <vector>

#include "base/word_table.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class TypeMemo {
 public:
  // For calls of one body, and as long as the facts say the same.
  explicit TypeMemo(Facts& facts) : facts_(facts) {}

  // Throws TypeMismatch.
  TypeId infer(const Graph& graph, const Body& body, const Node& node);

  Facts& facts() const { return facts_; }

 private:
  // Whether the call's type follows from what push_key pushes; then it is the key.
  bool push_key(const Context& context, const Body& body, const Node& node);

  Facts& facts_;
  WordTable keys_;
  std::vector<TypeId> types_;  // of each key; none until the rule gave one
};

}  // namespace epweave
