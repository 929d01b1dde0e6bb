// How the bits of B's outputs relate to A's, from the claims of the nodes that they need: parts are
// computed as by running a module on each part, sums of parts regroup a floating-point sum.
#pragma once

#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/storage_writers.h"
#include "compare/rewrite/verify_rewrite.h"

namespace epweave {

// The results, and the updates of inputs.
std::vector<RewriteOutput> classify_outputs(const RewriteClaims& claims, const StorageWriters& writers);

}  // namespace epweave
