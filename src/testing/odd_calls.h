// Calls that chunk is to refuse, or to divide right: one of them makes a random step odd.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "testing/dice.h"
#include "testing/step_builder.h"

namespace epweave {

// What a step has at the end of a module's forward code.
struct OddContext {
  NodeId tokens;   // i64[u0], numbers below 16
  NodeId stream;   // f32[u0, 8], from outside the module
  NodeId rows;     // f32[u0, 8], made in it
  NodeId weight;   // f32[12, 12]
  NodeId counter;  // f32[2], a buffer; updated by the module if it routes
  NodeId slots;    // f32[u0, 8], sorted; none: the module does not route, or has several slots for a token
  NodeId order;    // i64[u0], the order of the slots
  std::string_view module, outside;
};

inline constexpr std::size_t kOddCalls = 32;
// Behind these, of slots that an inverse of another order puts back.
inline constexpr std::size_t kOddInverses = 2;

// The `which`-th of them; its result, or none where the context lacks what it needs.
std::optional<NodeId> make_odd_call(StepBuilder& build, const OddContext& context, std::size_t which);

}  // namespace epweave
