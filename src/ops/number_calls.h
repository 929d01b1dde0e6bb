// Calls that shift a tensor of whole numbers by a number, or compare it with one: where the place
// of a shard stands in code that looks up ids.
//
//   sub(%ids, 1024)   shifted by -1024        ge(%ids, 1024)   at least 1024        lt(%ids, 2048)   below 2048
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace epweave {

enum class NumberUse : std::uint8_t { kNone, kSubtracted, kAdded, kAtLeast, kAbove, kBelow, kAtMost };

// What the call does with its second argument, where that is a number.
NumberUse number_use_of(const OpInfo& op);

inline bool is_shift(NumberUse use) {
  return use == NumberUse::kSubtracted || use == NumberUse::kAdded;
}
inline bool is_bound(NumberUse use) {
  return use != NumberUse::kNone && !is_shift(use);
}

// Whether the call holds where both operands do, or where one of them does.
enum class Conjunction : std::uint8_t { kNone, kBoth, kEither };
Conjunction conjunction_of(const OpInfo& op);
bool is_product(const OpInfo& op);

// Whether a comparison holds from its number on, not up to it.
inline bool is_from_below(NumberUse use) {
  return use == NumberUse::kAtLeast || use == NumberUse::kAbove;
}
// The number that a comparison has for the bound 0: -1 where it says more than, or at most, that.
inline std::int64_t number_of_bound_0(NumberUse use) {
  return use == NumberUse::kAbove || use == NumberUse::kAtMost ? -1 : 0;
}
// Whether it holds where its operand does not.
bool is_negation(const OpInfo& op);

}  // namespace epweave
