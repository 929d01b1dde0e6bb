// What `epweave verify A B` finds, for other commands.
#pragma once

#include "compare/rewrite/verify_rewrite.h"

namespace epweave::cli {

// The proof's violations, and what B breaks on its own. The graphs share a context and have a sound
// structure.
RewriteReport check_rewrite(const Graph& a, const Graph& b);
// The same of two halves of a joint graph (compare/rewrite/verify_halves.h).
RewriteReport check_halves(const Graph& joint, const Graph& forward, const Graph& backward);

}  // namespace epweave::cli
