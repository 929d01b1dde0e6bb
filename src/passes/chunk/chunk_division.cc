#include "passes/chunk/chunk_division.h"

#include <numeric>

namespace epweave {

PolyId Division::rows(ExprPool& pool, StringId symbol, std::size_t part) const {
  if (equal.contains(symbol)) return pool.scale(pool.poly_symbol(symbol), Rational{1, parts});
  return pool.sub(first_row(pool, symbol, part + 1), first_row(pool, symbol, part));
}

PolyId Division::first_row(ExprPool& pool, StringId symbol, std::size_t part) const {
  const PolyId tokens = pool.poly_symbol(symbol);
  if (part == count()) return tokens;
  if (!sizes.empty())
    return pool.poly_number(
        std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(part), std::int64_t{0}));
  const auto number = static_cast<std::int64_t>(part);
  if (equal.contains(symbol)) return pool.scale(tokens, Rational::of(number, parts));
  return pool.floordiv(pool.scale(tokens, Rational{number, 1}), pool.poly_number(parts));
}

}  // namespace epweave
