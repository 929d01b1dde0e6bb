// The types of a graph's nodes when its token count has a symbol: what scales with the count (of
// placement/scaling/scaling.h) is a multiple of the symbol, laid out as a call's arguments say.
//
//   %e = embedding(%w, %tokens) : [8, 4]     [s0, 4]       of s0 tokens
//   %v = reshape(%e, [8, 2, 2])              [s0, 2, 2]
#pragma once

#include <span>
#include <string_view>

#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/types/layout.h"
#include "placement/scaling/scaling.h"

namespace epweave {

// A symbol that counts rows of so many tokens each.
struct TokenSymbol {
  StringId name;
  std::int64_t tokens = 1;

  // The extent factor * token count.
  ExprId extent(Facts& facts, Rational factor) const;
};

class SymbolTypes {
 public:
  // `graph` is `before` with the symbol in its table; nodes are given their types by the caller, in
  // the order of execution.
  SymbolTypes(const Graph& before, Graph& graph, const ScalingFactors& factors, TokenSymbol symbol);

  // `has_new_sizes`: of a call among whose arguments numbers became nodes. Throws PassError
  // "symbolize.type" and "symbolize.no-type".
  TypeId find(NodeId id, bool has_new_sizes);
  // Extents that are numbers on one side of an operation and scale on the other.
  std::size_t borders() const { return borders_; }
  ExprId extent(Rational factor) { return symbol_.extent(facts_, factor); }
  // Of a call of the new graph, what its type rule says.
  TypeId infer(const Node& call);

 private:
  void refuse_untyped_input(NodeId id);
  bool has_new_input(NodeId id);
  TypeId merge(NodeId id, std::size_t element, TypeId recorded, TypeId inferred);
  TypeId merge_tensor(NodeId id, std::size_t element, TypeId recorded, const TensorType* inferred);
  TypeId merge_number(TypeId recorded, TypeId inferred);
  bool merge_extent(NodeId id, std::size_t dim, ExprId before, ExprId inferred, ExprId& after);
  bool is_traced_number(ExprId recorded, ExprId inferred);
  bool is_multiple(ExprId extent);
  bool mentions_symbols(ExprId extent) const { return !context_.exprs.symbols(extent).empty(); }
  bool has_token(std::span<const ExprId> extents) const;
  Dims laid_out(NodeId id, const TensorType& before, std::span<const ExprId> sizes);
  [[noreturn]] void fail_type(NodeId id, std::string_view problem);

  const Graph& before_;
  Graph& graph_;
  Context& context_;
  Body& body_;
  const ScalingFactors& factors_;
  TokenSymbol symbol_;
  Facts facts_, facts_before_;
  std::size_t borders_ = 0;
};

}  // namespace epweave
