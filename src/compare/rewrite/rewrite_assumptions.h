// What the second of two graphs rests on that the first does not say: what its symbol table assumes, what its passes
// noted as assumptions, and the numbers for which it was made.
//
//   u0 = 1024        chunk assumed it, or B's inputs have that extent where A's have u0
#pragma once

#include <string>
#include <vector>

#include "compare/rewrite/numbers.h"
#include "ir/graph.h"

namespace epweave {

// Each once, as text.
std::vector<std::string> list_assumptions(const Graph& a, const Graph& b, const Numbers& numbers);

}  // namespace epweave
