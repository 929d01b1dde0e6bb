#include "analysis/type_symbols.h"

#include <algorithm>

namespace epweave {

const std::vector<StringId>& TypeSymbols::of(TypeId id) {
  auto [found, is_new] = symbols_.try_emplace(id);
  if (is_new) found->second = collect(context_.types[id]);
  return found->second;
}

std::vector<StringId> TypeSymbols::collect(const Type& type) const {
  std::vector<StringId> symbols;
  const auto add = [&](ExprId expr) {
    if (!expr) return;
    const auto& found = context_.exprs.symbols(expr);
    symbols.insert(symbols.end(), found.begin(), found.end());
  };
  for (ExprId size : type.tensor.sizes) add(size);
  for (ExprId stride : type.tensor.strides) add(stride);
  add(type.tensor.offset);
  add(type.expr);
  for (TypeId element : type.elements)
    if (element)
      for (StringId symbol : collect(context_.types[element])) symbols.push_back(symbol);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

}  // namespace epweave
