// What `epweave verify A B` finds, for other commands.
#pragma once

#include "compare/rewrite/verify_rewrite.h"

namespace epweave::cli {

// The proof's violations, and what B breaks on its own. The graphs share a context and have a sound
// structure.
RewriteReport check_rewrite(const Graph& a, const Graph& b);

}  // namespace epweave::cli
