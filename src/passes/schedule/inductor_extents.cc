#include "passes/schedule/inductor_extents.h"

#include <algorithm>

namespace epweave {

InductorExtents::InductorExtents(const Graph& graph, std::int64_t fallback)
    : context_(*graph.context), fallback_(fallback) {
  for (const Symbol& symbol : graph.symbols) symbols_.emplace(symbol.name, &symbol);
}

std::int64_t InductorExtents::bytes(const TensorType& tensor) {
  std::int64_t product = info(tensor.dtype).bytes;
  for (const ExprId size : tensor.sizes)
    if (__builtin_mul_overflow(product, number(size), &product) || product > kMost) return kMost;
  return product;
}

std::int64_t InductorExtents::number(ExprId extent) {
  if (!extent) return 0;
  if (const auto constant = context_.exprs.constant(extent)) return *constant;
  // While it is being found, symbols that replace each other in a circle find the fallback.
  const auto [known, is_new] = numbers_.try_emplace(extent, fallback_);
  if (!is_new) return known->second;
  const auto value = context_.exprs.evaluate(
      context_.exprs.poly(extent), [&](StringId symbol) { return std::optional(value_of(symbol)); });
  if (value && value->is_integer()) numbers_[extent] = std::max<std::int64_t>(value->num, 0);
  return numbers_[extent];
}

std::int64_t InductorExtents::value_of(StringId name) {
  const auto found = symbols_.find(name);
  if (found == symbols_.end()) return fallback_;
  const Symbol& symbol = *found->second;
  if (symbol.hint) return *symbol.hint;
  if (symbol.replaced_by) return number(*symbol.replaced_by);
  std::int64_t value = fallback_;
  if (symbol.lower)
    if (const auto lower = context_.exprs.constant(*symbol.lower))
      value = std::max<std::int64_t>(value, *lower);
  if (symbol.upper)
    if (const auto upper = context_.exprs.constant(*symbol.upper))
      value = std::min<std::int64_t>(value, *upper);
  return value;
}

}  // namespace epweave
