#include "ops/number_calls.h"

#include <utility>

#include "ops/number_ops.h"

namespace epweave {

NumberUse number_use_of(const OpInfo& op) {
  static constexpr std::pair<std::string_view, NumberUse> kPackets[] = {{"aten.add.", NumberUse::kAdded},
                                                                        {"aten.ge.", NumberUse::kAtLeast},
                                                                        {"aten.gt.", NumberUse::kAbove},
                                                                        {"aten.lt.", NumberUse::kBelow},
                                                                        {"aten.le.", NumberUse::kAtMost}};
  if (op.family != OpFamily::kElementwise) return NumberUse::kNone;
  if (subtracted_operand(op) == 1 && !op.writes) return NumberUse::kSubtracted;
  for (const auto& [packet, use] : kPackets)
    if (op.target.starts_with(packet)) return use;
  return NumberUse::kNone;
}

Conjunction conjunction_of(const OpInfo& op) {
  // With their forms in place.
  static constexpr std::pair<std::string_view, Conjunction> kPackets[] = {
      {"aten.__and__", Conjunction::kBoth},     {"aten.__or__", Conjunction::kEither},
      {"aten.bitwise_and", Conjunction::kBoth}, {"aten.bitwise_or", Conjunction::kEither},
      {"aten.logical_and", Conjunction::kBoth}, {"aten.logical_or", Conjunction::kEither}};
  for (const auto& [packet, conjunction] : kPackets)
    if (op.target.starts_with(packet)) return conjunction;
  return Conjunction::kNone;
}

bool is_product(const OpInfo& op) {
  return op.target.starts_with("aten.mul.");
}

bool is_negation(const OpInfo& op) {
  return op.target.starts_with("aten.bitwise_not") || op.target.starts_with("aten.logical_not");
}

}  // namespace epweave
