// Parts of FlexAttention calls: what they differ in from the whole call beyond their operands.
//
// A part of the queries keeps their blocks of the block tables, and its score and mask functions
// count rows from its first one (passes/chunk/chunk_attention.h). Each of these is recognised and
// checked here, and put back as it is in the whole call, so that the rest is checked like any other
// call:
//
//   flex_attention(q_1, k, v, score, (h, u, slice(t, 2, 4, 8).., mask_chunk1), (), (doc, h))
//   becomes flex_attention(q_1, k, v, score, (h, u, t.., mask), (), (doc,))
//
// Of a part that took the keys of parts 0 to k (prefix_keys.h), the tables list blocks of these and
// the functions count queries alone. Then the mask must hide from each query the keys behind it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/flex_attention.h"
#include "compare/rewrite/conditions.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class AttentionCheck {
 public:
  // The graphs share a context.
  explicit AttentionCheck(const RewriteClaims& claims);
  // Calls of B that took keys of the parts before theirs, put back to their own.
  void set_prefix_calls(const IdSet<NodeId>* calls) { prefix_calls_ = calls; }

  struct Restored {
    Node call;
    std::vector<std::string> problems;
  };
  // What the parts that were put back rest on: the numbers that extents had when traced, by which
  // rows are counted; keys of the part's own; blocks that no mask function is applied to.
  const std::vector<std::string>& assumptions() const { return assumptions_; }
  // `parts`: B's parts of A's call `origin`, first to last. Other calls than FlexAttention's come
  // back as they are.
  Restored restore(NodeId origin, std::span<const NodeId> parts, std::size_t part);

 private:
  struct Rows {
    std::int64_t begin = 0, end = 0;
    friend bool operator==(const Rows&, const Rows&) = default;
  };
  struct Division;
  struct Tables {
    NodeId counts, indices;
  };

  std::optional<Division> divide(NodeId origin, std::span<const NodeId> parts, std::size_t part);
  // The number of rows of a call's operand in A or B.
  std::optional<std::int64_t> extent(const Graph& graph, const Node& node, std::string_view param,
                                     std::size_t dim);
  // Each operand has less than all of the dimension along which the part has some of the queries,
  // and all of any other: the functions and the tables count what they were made for.
  void check_cuts(const Node& whole, const Node& call, std::optional<std::size_t> divided);
  bool is_cut(ExprId whole, ExprId piece);
  void refuse(Condition broken, std::string problem);
  void assume(std::string text);
  void assume_numbers(const Node& call);
  bool is_number(Arg arg, std::int64_t number, const Body& body);
  void check_causal(const Division& division);
  void check_batch_tables(const Division& division);
  void check_captured(NodeId origin, const Division& division, const Node& call);
  bool is_share(Arg whole, Arg taken);
  void restore_tables(const Division& division, std::vector<Arg>& mask);
  std::optional<Tables> without_columns(Tables tables, Rows columns);
  std::optional<NodeId> without_rows(NodeId table, Rows rows);
  bool is_kept(NodeId node, const Tables& tables, Rows columns);
  // Whether the function is the original with rows counted from a first row, its last parameter.
  bool is_rebased(const FlexFunction& original, const FlexFunction& function, const Division& division);
  void restore_functions(const Division& division, Node& call, std::vector<Arg>& mask);
  // The arguments by position of a call of B, if it is one of that target with these keywords and
  // no others.
  using Keyword = std::pair<std::string_view, Arg>;
  std::span<const Arg> call_args(NodeId node, std::string_view target,
                                 std::span<const Keyword> keywords = {}) const;

  const RewriteClaims& claims_;
  const Graph& a_;
  const Graph& b_;
  Context& context_;
  Facts &facts_a_, &facts_b_;
  std::vector<std::string> problems_;
  const IdSet<NodeId>* prefix_calls_ = nullptr;
  std::vector<std::string> assumptions_;  // each once
};

}  // namespace epweave
