// What the second of two graphs rests on that the first does not say: what its symbol table
// assumes, what its passes noted as assumptions, and the numbers for which it was made.
//
//   u0 = 1024        chunk assumed it, or B's inputs have that extent where A's have u0
//   of u4, in each part: u4 >= 0      what A says of a number that each part of B reads for itself
//   v = u0//2                         what B alone says of a symbol of its own
#pragma once

#include <string>
#include <vector>

#include "compare/rewrite/numbers.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ir/graph.h"

namespace epweave {

// Each once, as text.
std::vector<std::string> list_assumptions(const RewriteClaims& claims, const Numbers& numbers);

}  // namespace epweave
