// Which calls draw random numbers: another call of the same gives other values, and changes what
// all later ones draw.
#pragma once

#include "ir/graph.h"

namespace epweave {

// Whether a call of attention, forward or backward, drops elements: its probability is not 0.
bool has_dropout(const Context& context, const Node& node);

// By the op, and of attention's forward calls by has_dropout; not in the functions that it is given
// (analysis/random_draws.h asks both). An op without a row in the op table: false.
bool draws_itself(const Context& context, const Node& node);

}  // namespace epweave
