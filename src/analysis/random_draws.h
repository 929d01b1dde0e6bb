// Which calls draw random numbers: another call of the same gives other values, and changes what
// all later ones draw.
#pragma once

#include "ir/graph.h"

namespace epweave {

// By the call itself (ops/random_draws.h), or in a function that it is given: FlexAttention's score
// and mask functions may draw for each pair of a query and a key. `body` is the node's. An op
// without a row in the op table: false.
bool draws_random(const Graph& graph, const Body& body, const Node& node);

// A node of the step.
inline bool draws_random(const Graph& graph, const Node& node) {
  return draws_random(graph, graph.step(), node);
}

}  // namespace epweave
