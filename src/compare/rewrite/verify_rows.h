// Parts of ops that mix what lies along a dimension: a part of the rows does not have what the op needs of the
// others.
//
//   %p = _softmax(%x, 0)      %p_0 = _softmax(%x_0, 0), %x_0 half of the rows of %x     not half of %p
//
// Sums are linear, so parts of them add up to the whole; they are for the join to prove. Ops that bring rows into an
// order (sort, cumsum) are what routing is made of: that their rows are those of their tokens is taken for granted
// (verify_rewrite.h). Reports rewrite-rows.
#pragma once

#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

void check_rows(RewriteClaims& claims, Numbers& numbers, NodeId part);

}  // namespace epweave
