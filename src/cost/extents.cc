#include "cost/extents.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

Count times(Count a, Count b) {
  std::int64_t product = 0;
  return a && b && !__builtin_mul_overflow(*a, *b, &product) ? Count(product) : std::nullopt;
}

Count plus(Count a, Count b) {
  std::int64_t sum = 0;
  return a && b && !__builtin_add_overflow(*a, *b, &sum) ? Count(sum) : std::nullopt;
}

Extents::Extents(const Graph& graph)
    : graph_(graph), context_(*graph.context), body_(graph.step()), facts_(graph) {
  for (NodeId id : body_.order)
    if (is_launch(body_.nodes[id])) balance(body_.nodes[id]);
  numbers_.clear();  // what had no number before may have one now
}

void Extents::balance(const Node& node) {
  const auto sends = node.op->find_param("input_split_sizes");
  const auto receives = node.op->find_param("output_split_sizes");
  if (!sends || !receives) return;
  const Arg sent = arg_of(context_, node, 0);
  if (!sent.is_node()) return;
  const TensorType* rows = tensor_of(context_, body_.nodes[sent.as_node()].type);
  if (rows == nullptr || rows->sizes.empty()) return;
  for (const std::size_t position : {*sends, *receives}) {
    const Arg sizes = arg_of(context_, node, position);
    // Rows that came back from another exchange are shares themselves.
    const Count count = number(rows->sizes[0]);
    if (count) share(sizes, *count);
  }
  if (const Count count = number(rows->sizes[0])) share_result(node, *count);
}

void Extents::share_result(const Node& node, std::int64_t rows) {
  const TensorType* result = tensor_of(context_, node.type);
  if (result == nullptr || result->sizes.empty() || number(result->sizes[0])) return;
  const std::vector<StringId> symbols = graph_.context->exprs.symbols(result->sizes[0]);
  for (StringId symbol : symbols) give(symbol, rows / static_cast<std::int64_t>(symbols.size()));
}

void Extents::give(StringId symbol, std::int64_t rows) {
  if (facts_.hint(symbol) || !shares_.emplace(symbol, rows).second) return;
  numbers_.clear();
}

void Extents::share(Arg sizes, std::int64_t rows) {
  if (!sizes.is_list()) return;
  const auto members = static_cast<std::int64_t>(sizes.children().count);
  for (Arg size : context_.args.children(sizes)) {
    ExprId expr;
    if (size.is(ArgKind::kSymbolic)) expr = size.as_expr();
    if (size.is_node()) {
      const TypeId type = body_.nodes[size.as_node()].type;
      if (type && context_.types[type].kind == TypeKind::kScalar) expr = context_.types[type].expr;
    }
    if (!expr || number(expr)) continue;
    const Poly& poly = context_.exprs[context_.exprs.poly(expr)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
    const Atom& atom = context_.exprs[poly.terms[0].atoms[0]];
    if (atom.kind != AtomKind::kSymbol) continue;
    give(atom.name, rows / std::max<std::int64_t>(members, 1));
  }
}

Count Extents::number(ExprId extent) {
  if (!extent) return 0;
  if (const auto constant = context_.exprs.constant(extent)) return constant;
  const auto [known, is_new] = numbers_.try_emplace(extent, std::nullopt);
  if (!is_new) return known->second;
  const auto value_of = [&](StringId symbol) -> std::optional<std::int64_t> {
    if (const auto hint = facts_.hint(symbol)) return hint;
    const auto share = shares_.find(symbol);
    return share == shares_.end() ? std::nullopt : std::optional(share->second);
  };
  // Facts may say what a sum is whose symbols they do not know one by one.
  for (const PolyId poly : {context_.exprs.poly(extent), facts_.normalize(extent)}) {
    const std::optional<Rational> value = context_.exprs.evaluate(poly, value_of);
    if (value && value->is_integer()) return numbers_[extent] = value->num;
  }
  return std::nullopt;
}

Count Extents::elements(const TensorType& tensor) {
  Count product = 1;
  for (ExprId size : tensor.sizes) product = times(product, number(size));
  return product;
}

Count Extents::storage_bytes(const TensorType& tensor) {
  const std::int64_t item = info(tensor.dtype).bytes;
  if (tensor.strides.size() != tensor.sizes.size()) return times(elements(tensor), item);
  Count last = number(tensor.offset);
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const Count size = number(tensor.sizes[i]);
    if (size == 0) return 0;
    last = plus(last, times(plus(size, -1), number(tensor.strides[i])));
  }
  return times(plus(last, 1), item);
}

}  // namespace epweave
