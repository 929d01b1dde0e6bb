// Which calls draw random numbers: another call of the same gives other values, and changes what
// all later ones draw.
#pragma once

#include "ir/graph.h"

namespace epweave {

// By the op, and of attention's forward calls by their dropout: a probability of 0 draws nothing.
// An op without a row in the op table: false.
bool draws_random(const Context& context, const Node& node);

}  // namespace epweave
