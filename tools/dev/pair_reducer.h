// Makes a pair of graphs small while a property of it holds: a wrong rewrite that a verifier
// accepted is to be read.
//
// Left out, in this order, as long as something can be: returned values; calls that nobody takes;
// calls of which the rewrite has the whole value, which become inputs.
#pragma once

#include <functional>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct GraphPair {
  Graph a, b;
};

GraphPair reduce_pair(GraphPair pair, const std::function<bool(const GraphPair&)>& holds);

// Writes FOLDER/NAME.a.txt and .b.txt, and prints where and how large they are.
void save_pair(const GraphPair& pair, const std::string& folder, const std::string& name);

}  // namespace epweave
