// How values lie in memory, where a call of B sees it: its operands have the strides that its
// origin's have.
//
//   A: %r: [8, u]{1, 8}    %f = reshape(t(%r), [-1])    a view: mul_(%f, 2) changes %r
//   B: %r: [8, u]{u, 1}, joined                         a copy: mul_(%f, 2) does not
//
// Elsewhere strides may differ: `verify B` infers them, and what a call computes of them it
// computes of any. That whoever takes the step's results does so too is an assumption where they
// have other strides. Strides of extents of 1 and of empty tensors never matter. Reports
// rewrite-strides.
#pragma once

#include <string>
#include <vector>

#include "analysis/aliases.h"
#include "compare/rewrite/numbers.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class StrideCheck {
 public:
  // All outlive the check.
  StrideCheck(RewriteClaims& claims, Numbers& numbers, const LaterWrites& in_a, const LaterWrites& in_b);

  // Of a call, or a part of one, and of the output.
  // A piece, or a value in blocks, that may be a copy: what is written into it behind is lost.
  void check_piece(NodeId id);
  void check(NodeId id);
  // One for each result with other strides: "what takes %v does not depend on its strides: {1, u0}
  // for {8, 1}".
  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  void check_showing(NodeId id);
  void check_operands(NodeId id);
  void compare_results(NodeId output);
  void check_storage(NodeId id, NodeId x, NodeId y);
  bool lies_alike(NodeId x, NodeId y, Share share);
  bool has_equal_strides(const TensorType& x, const TensorType& y, Share share);
  NodeId find_storage(const Graph& graph, Facts& facts, NodeId id) const;
  bool is_join(NodeId b) const;

  RewriteClaims& claims_;
  Numbers& numbers_;
  const Context& context_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  Facts &facts_a_, &facts_b_;
  const LaterWrites &later_a_, &later_b_;
  std::vector<std::string> assumptions_;
};

}  // namespace epweave
