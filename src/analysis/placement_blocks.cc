#include "analysis/placement_blocks.h"

#include <algorithm>

namespace epweave {

Placement join_blocks(ExprPool& pool, const Placement& rows, std::int64_t count) {
  Placement result = rows;
  const PolyId number = pool.poly_number(count);
  if (!rows.any_order && count != 1) result.blocks = rows.blocks ? pool.mul(rows.blocks, number) : number;
  return result;
}

std::optional<Placement> cut_blocks(ExprPool& pool, const Placement& rows, std::int64_t count) {
  if (rows.any_order || count == 1) return rows;
  if (!rows.blocks) return std::nullopt;
  const auto quotient = pool.divide_exactly(rows.blocks, pool.poly_number(count));
  if (!quotient) return std::nullopt;
  const auto& terms = pool[*quotient].terms;
  if (!std::all_of(terms.begin(), terms.end(), [](const Term& t) { return t.coefficient.is_integer(); }))
    return std::nullopt;
  Placement result = rows;
  result.blocks = pool.is_constant(*quotient, 1) ? PolyId() : *quotient;
  return result;
}

}  // namespace epweave
