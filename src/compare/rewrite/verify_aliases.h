// Which results show the same elements, of each other, of inputs or of attributes: who writes into
// the one changes the other.
//
//   A: %y = relu(%x); %z = clone(%y); output([%y, %z])    B: output([%y, %y])    wrong: writing %z changes %y
//   A: %v = view(%x); output([%v])                        B: output([%c]), joined: an assumption
//
// What shares nothing in A shares nothing in B. What shares elements in A alone, as a value that is
// joined in B is new memory, is an assumption. A value that a rewrite moved shows memory of its own
// (verify_movement.h), or what it shows of A's. Views of one storage are told apart by their
// elements, where these have numbers. Reports rewrite-aliases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/aliases.h"
#include "compare/rewrite/movement.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

// The values that the step returns, as its output names them.
std::vector<NodeId> list_returned_values(const Graph& graph);

// The memory of each result that shows a copy which was loaded back, where the copies are taken out
// of the graph; none: what the graph says.
struct LoadedResults {
  std::vector<NodeId> of_a, of_b;
};

class AliasCheck {
 public:
  // The effects outlive the check. Those of B may take moved values for copies.
  AliasCheck(RewriteClaims& claims, const Effects& effects_a, const Effects& effects_b,
             const LoadedResults& loaded);

  void check();
  // One for each result: "nothing writes into %v or %x behind the step, which share elements in the
  // first graph alone".
  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  // What the caller has after the step: an input, an attribute or a result, in both graphs.
  struct Held {
    NodeId in_a, in_b;
    NodeId memory_a, memory_b;  // the first value of the memory that it shows
  };

  void list_held();
  void hold(NodeId a, NodeId b);
  NodeId memory_in_a(NodeId a);
  NodeId memory_in_b(NodeId b);
  bool is_new(NodeId b) const;
  bool are_grouped_alike() const;
  void check_result(std::size_t result);
  void fail(const Held& x, const Held& y);
  bool share_in_a(const Held& x, const Held& y) const;
  bool share_in_b(const Held& x, const Held& y) const;
  static bool may_meet(const TensorType* x, const TensorType* y, const ExprPool& exprs);

  RewriteClaims& claims_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  const Context& context_;
  const Effects &effects_a_, &effects_b_;
  const LoadedResults& loaded_;
  std::vector<Held> held_;        // inputs and attributes, then results
  std::size_t first_result_ = 0;  // in `held_`
  std::vector<std::string> assumptions_;
};

}  // namespace epweave
