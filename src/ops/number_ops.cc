#include "ops/number_ops.h"

#include <algorithm>
#include <vector>

namespace epweave {
namespace {

NumberRule find_number_rule(const OpInfo& op) {
  if (op.find_param("rounding_mode")) return NumberRule::kQuotient;
  static constexpr std::pair<std::string_view, NumberRule> kOps[] = {
      {"aten.floor_divide.default", NumberRule::kQuotient},
      {"aten.floor_divide.Scalar", NumberRule::kQuotient},
      {"aten.remainder.Scalar", NumberRule::kRemainder},
      {"aten.remainder.Tensor", NumberRule::kRemainder},
  };
  for (const auto& [name, rule] : kOps)
    if (name == op.target) return rule;
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

}  // namespace epweave
