#include "compare/specialization.h"

#include <algorithm>

#include "ops/type_rules.h"

namespace epweave {

void Specialization::learn(TypeId before, TypeId after) {
  const TensorType* a = tensor_of(context_, before);
  const TensorType* b = tensor_of(context_, after);
  if (a == nullptr || b == nullptr || a->sizes.size() != b->sizes.size()) return;
  for (std::size_t i = 0; i < a->sizes.size(); ++i) {
    const Poly& poly = context_.exprs[context_.exprs.poly(a->sizes[i])];
    const auto number = context_.exprs.constant(b->sizes[i]);
    if (!number || poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
    const Atom& atom = context_.exprs[poly.terms[0].atoms[0]];
    if (atom.kind == AtomKind::kSymbol && poly.terms[0].coefficient == Rational{1, 1})
      numbers_.at(atom.name) = number;
  }
}

bool Specialization::same(ExprId before, ExprId after) {
  if (before == after) return true;
  if (!before || !after) return false;
  const auto [known, is_new] = same_.try_emplace(std::uint64_t{before.index()} << 32 | after.index(), false);
  if (is_new) known->second = decide_same(before, after);
  return known->second;
}

bool Specialization::same(TypeId before, TypeId after) {
  if (before == after) return true;
  if (!before || !after) return false;
  const Type& a = context_.types[before];
  const Type& b = context_.types[after];
  if (a.kind == TypeKind::kScalar && b.kind == TypeKind::kValue && b.value.is_int())
    return same(a.expr, context_.exprs.number(b.value.as_int()));
  if (a.kind != b.kind || a.elements.size() != b.elements.size()) return false;
  auto same_each = [&](const std::vector<ExprId>& x, const std::vector<ExprId>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [&](ExprId p, ExprId q) { return same(p, q); });
  };
  if (a.kind == TypeKind::kScalar) return same(a.expr, b.expr);
  if (a.kind == TypeKind::kTensor)
    return a.tensor.dtype == b.tensor.dtype && a.tensor.device == b.tensor.device &&
           same_each(a.tensor.sizes, b.tensor.sizes) && same_each(a.tensor.strides, b.tensor.strides) &&
           (a.tensor.offset == b.tensor.offset || same(a.tensor.offset, b.tensor.offset));
  for (std::size_t i = 0; i < a.elements.size(); ++i)
    if (!same(a.elements[i], b.elements[i])) return false;
  return a.kind != TypeKind::kValue || context_.args.equal(a.value, b.value);
}

bool Specialization::decide_same(ExprId before, ExprId after) {
  ExprPool& pool = context_.exprs;
  const PolyId special = pool.substitute(pool.poly(before), [&](StringId symbol) -> std::optional<PolyId> {
    if (!numbers_[symbol]) return std::nullopt;
    return pool.poly_number(*numbers_[symbol]);
  });
  return facts_.equal(special, pool.poly(after));
}

}  // namespace epweave
