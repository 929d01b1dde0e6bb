// Casts by which B loses precision that A keeps.
//
//   A: %g = aten.add.Tensor(%p, %q)             B: %g = aten.add.Tensor(%p, %q)
//      %u = aten.mul.Tensor(%g, %s)  float32       %h = aten._to_copy(%g, dtype=bf16)
//                                                  %i = aten._to_copy(%h, dtype=f32)
//                                                  %u = aten.mul.Tensor(%i, %s)
//
// Where sums are regrouped, values are compared before rounding, which leaves casts out, and within
// bounds that follow what B rounds. Neither shows a cast that B alone has. So casts to a coarser
// type are counted on the way to each value that both graphs have: B may have as many as A. One
// that gives a value which A computes in that type rounds as A does (the parts' sum in float32,
// then as A has it).
#pragma once

#include <set>
#include <string>

#include "replay/run/pairing.h"

namespace epweave::replay {

// Each in words, by B's node: "%h (bf16[8, 4]{4, 1}@cuda:0, before %u)".
std::set<std::string> find_added_roundings(const PairedGraphs& graphs);

}  // namespace epweave::replay
