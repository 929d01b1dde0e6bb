// What makes numbers of rows, and what some elementwise ops make of them, where 0 .. c*n-1 number c
// rows for each of n.
//
//   floor_divide(order, 3)     which of the n
//   floor_divide(order, 1)     order
//   remainder(order, 3)        which of its three
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

enum class NumberRule : std::uint8_t { kNone, kQuotient, kRemainder };

// Of the first operand by the second. A quotient is rounded if its dtype is an integer's.
NumberRule number_rule(const OpInfo& op);

// The value that a value's numbers are those of, where quotients of integers by 1 lie between;
// none: one of them, or the value, is written.
NodeId undivided_numbers(const Context& context, const Body& body, NodeId value,
                         const std::function<bool(NodeId)>& is_written);

// A start and what a step adds for each place: arange, not linspace.
bool is_arange(const OpInfo& op);

// Whether a call makes 0, 1, 2, ..
bool counts_from_zero(const Context& context, const Node& node);

// Whether a call makes numbers of rows of its operand, by what that says of each: as often as it
// counts them (repeat_interleave), or of those that are not zero (nonzero).
bool numbers_chosen_rows(const OpInfo& op);

// Which operand a difference of two tensors subtracts; none: it is no difference.
std::optional<std::size_t> subtracted_operand(const OpInfo& op);

// Whether a parameter is what a new sum or difference adds to a tensor: also a number.
bool adds_param(const OpInfo& op, std::size_t param);

}  // namespace epweave
