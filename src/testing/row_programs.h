// Small random programs on rows of tokens, and beside each what somebody might write who divides
// the tokens into parts: right, or plausible and wrong.
//
//   A   %f = reshape(%x, [-1, 8])        B   %x_0, %x_1 = split(%x);  %f_0 = reshape(%x_0, [-1, 8]), ..
//       %o = argsort(%k)                     %o_0 = argsort(%k_0), ..
//       %y = index(%f, [%o])                 %y_0 = index(%f_0, [%o_0]), ..
//       output([%y])                         %y_j = cat([%y_0, %y_1], 0);  output([%y_j])
//
// Where random steps (random_graph.h) are of a model's form and are divided by the passes, a
// program is a few calls of any kind one behind the other, and B is written by these rules alone:
// inputs with rows of tokens are cut along them; what reads a part is made once for each part; what
// reads none is made once, or in each part; what reads all of a divided value is made once, of its
// parts joined: along the dimension in which they are smaller, or else as a sum.
//
// One program in three departs from them at one place (another part's value, another literal, the
// number of all rows, parts joined otherwise, ..).
//
// One program in four is not divided: B has A's calls at other places, again for some that read
// them, one for two of the same call, or without one of them.
//
// The same seed gives the same program.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

struct RowProgram {
  Graph a, b;  // they share a context
};

// None: the calls that were drawn make no program, or have no parts.
std::optional<RowProgram> make_row_program(std::uint64_t seed);

// Calls to draw from, in groups that are drawn as often as each other. "$" is the result and "$a",
// "$b", .. are values on the way; operands are {f} floating-point, {i} integers, {b} booleans, {t}
// any tensor, {n} a number of rows, {o} the order that a sort gives, {p} positions, {c} counts;
// {d} is a dimension, {1}, {2}, .. what the first slot took, the second, ..
std::span<const std::span<const std::string_view>> row_program_calls();

}  // namespace epweave
