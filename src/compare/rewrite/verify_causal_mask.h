// Parts of scaled dot product attention with a causal mask that see the keys of all parts: the mask
// that they have instead of is_causal (passes/chunk/chunk_causal_mask.h) hides from each query the
// keys behind it.
//
//   %bias = expand(triu(full([h, u], -inf), d), [1, 1, h, u])   d: 1 + the rows of the parts before
//   attention(q_1, k, v, %bias, True, 0.0, False)
//
// becomes attention(q_1, k, v, None, True, 0.0, True), so that the rest is checked like any other
// call.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "compare/rewrite/numbers.h"
#include "ir/graph.h"

namespace epweave {

class CausalMaskCheck {
 public:
  // The graphs share a context.
  CausalMaskCheck(const Graph& a, const Graph& b, Numbers& numbers)
      : a_(a), b_(b), context_(*a.context), numbers_(numbers) {}

  // Calls of B that took keys of the parts before theirs, put back to their own.
  void set_prefix_calls(const IdSet<NodeId>* calls) { prefix_calls_ = calls; }

  // Part `part` of `parts`, B's parts of A's call `origin`, with is_causal and arguments spelled as
  // they are there. Says what is wrong with its mask or with keys of its own, or nothing; then
  // `call` is as it was where it has no mask of its own.
  std::string restore(NodeId origin, std::span<const NodeId> parts, std::size_t part, Node& call);
  // Whether a part sees the keys of its own rows alone.
  bool rests_on_own_keys() const { return rests_on_own_keys_; }

 private:
  // The extent of an operand of a call, A's or B's; none if it has no such operand.
  static std::optional<ExprId> extent(const Graph& graph, const Node& node, std::string_view param);
  bool is_causal(const Node& node) const;
  // What is wrong with it as the bias of queries from row `first_row` on.
  std::string find_fault(Arg bias, ExprId first_row, const Node& call) const;
  // What the kernel would not take of it: dtype, device, batches and heads.
  std::string find_kernel_fault(const TensorType& bias, const Node& call) const;
  // The arguments of a call of B, where the argument is one of that target.
  std::span<const Arg> call_args(Arg value, std::string_view target) const;
  bool is_number(Arg arg, ExprId number) const;
  bool is_matrix(Arg value, ExprId rows, ExprId columns) const;
  bool is_aligned(ExprId number) const;
  ExprId rounded_up(ExprId number) const;

  const Graph& a_;
  const Graph& b_;
  Context& context_;
  Numbers& numbers_;
  const IdSet<NodeId>* prefix_calls_ = nullptr;
  bool rests_on_own_keys_ = false;
};

}  // namespace epweave
