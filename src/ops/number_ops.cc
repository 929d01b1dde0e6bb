#include "ops/number_ops.h"

#include <vector>

namespace epweave {
namespace {

NumberRule find_number_rule(const OpInfo& op) {
  if (op.find_param("rounding_mode")) return NumberRule::kQuotient;
  if (op.target.starts_with("aten.floor_divide.")) return NumberRule::kQuotient;
  if (op.target.starts_with("aten.remainder.")) return NumberRule::kRemainder;
  return NumberRule::kNone;
}

}  // namespace

NumberRule number_rule(const OpInfo& op) {
  static const std::vector<NumberRule> kTable = [] {
    std::vector<NumberRule> table;
    for (const OpInfo& row : ops()) table.push_back(find_number_rule(row));
    return table;
  }();
  return kTable[op.index];
}

std::optional<std::size_t> subtracted_operand(const OpInfo& op) {
  if (op.linearity != Linearity::kSum || !op.find_param("alpha")) return std::nullopt;
  if (op.target.starts_with("aten.sub")) return 1;
  return op.target.starts_with("aten.rsub") ? std::optional<std::size_t>(0) : std::nullopt;
}

}  // namespace epweave
