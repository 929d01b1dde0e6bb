#include "placement/placement_blocks.h"

#include <algorithm>

namespace epweave {

std::optional<PolyId> whole_quotient(ExprPool& pool, PolyId a, PolyId b) {
  const auto quotient = pool.divide_exactly(a, b);
  if (!quotient) return std::nullopt;
  const auto& terms = pool[*quotient].terms;
  const bool is_whole =
      std::all_of(terms.begin(), terms.end(), [](const Term& t) { return t.coefficient.is_integer(); });
  return is_whole ? quotient : std::nullopt;
}

std::optional<std::int64_t> count_runs(Facts& facts, ExprId extent, ExprId rows) {
  const auto quotient = whole_quotient(facts.pool(), facts.normalize(extent), facts.normalize(rows));
  return quotient ? facts.pool().constant(*quotient) : std::nullopt;
}

Placement join_blocks(ExprPool& pool, const Placement& rows, std::int64_t count) {
  Placement result = rows;
  if (count == 1) return result;
  const PolyId number = pool.poly_number(count);
  result.blocks = rows.blocks ? pool.mul(rows.blocks, number) : number;
  result.any_order = false;
  return result;
}

std::optional<Placement> cut_blocks(ExprPool& pool, const Placement& rows, std::int64_t count) {
  if (count == 1) return rows;
  Placement result = rows;
  result.blocks = {};
  if (rows.any_order) return result;
  const auto blocks = rows.blocks ? whole_quotient(pool, rows.blocks, pool.poly_number(count)) : std::nullopt;
  if (!blocks) return std::nullopt;
  if (!pool.is_constant(*blocks, 1)) result.blocks = *blocks;
  return result;
}

}  // namespace epweave
