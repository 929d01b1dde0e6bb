// The rows of the op table as written; ops/op.h is what readers use.
#pragma once

#include <span>
#include <string_view>

#include "ops/op.h"

namespace epweave {

enum OpFlags : unsigned {
  kNoFlags = 0,
  kEffectful = 1,
  kRandom = 2,
  kTypesOnly = 4,
  kZeros = 8,
  kUnset = 16,    // leaves the elements of its result as they are (ops/traffic.h)
  kOneSlot = 32,  // writes one rank's slot of its result
  // Its results show the first operand's storage, which torch's schema does not say: the author of
  // the graph promises that nobody writes there. The tool believes storage, not promises.
  kShowsUnsaid = 64,
  kMayCopy = 128,   // shows its operand, or is a copy, as the operand lies in memory (ops/may_copy.h)
  kUntagged = 256,  // elementwise, which torch does not tag `pointwise` (ops/memory_traits.h)
};

struct OpRow {
  std::string_view target;
  std::string_view schema;
  OpFamily family;
  Linearity linearity;
  CostClass cost;
  TypeRule type_rule = nullptr;  // ops/type_rules.h
  unsigned flags = kNoFlags;
};

std::span<const OpRow> op_rows();

// Flags that OpInfo has no member for.
bool has_flag(const OpInfo& op, OpFlags flag);

}  // namespace epweave
