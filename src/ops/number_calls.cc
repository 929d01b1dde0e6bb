#include "ops/number_calls.h"

#include <utility>

namespace epweave {

NumberUse number_use_of(const OpInfo& op) {
  static constexpr std::pair<std::string_view, NumberUse> kPackets[] = {
      {"aten.sub.", NumberUse::kSubtracted}, {"aten.add.", NumberUse::kAdded},
      {"aten.ge.", NumberUse::kAtLeast},     {"aten.gt.", NumberUse::kAbove},
      {"aten.lt.", NumberUse::kBelow},       {"aten.le.", NumberUse::kAtMost}};
  if (op.family != OpFamily::kElementwise) return NumberUse::kNone;
  for (const auto& [packet, use] : kPackets)
    if (op.target.starts_with(packet)) return use;
  return NumberUse::kNone;
}

}  // namespace epweave
