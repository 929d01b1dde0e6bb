// Chains of rewrites: A became B, B became C, each by its own `epweave rewrite`. The provenance of
// both B and C names nodes of A; to compare B with C it must name nodes of B.
//
//   A: %mm      B: %mm_chunk0 (part 0 of %mm), ...      C: %mm_chunk0 (part 0 of %mm, then moved)
//   rebased C: %mm_chunk0 (is %mm_chunk0 of B)
//
// A node of C is the node of B with its name if both are the same thing of A (the same origin,
// role and part); else what stands for it in B are the nodes that are its origins there as a
// whole. What C computes again is a copy of the node of B that is that; parts of what B computes
// again are parts of that copy. What C made in the place of what B made (the wait of a bucket that
// is in another bucket) is said to be that, moved; memory that C made and merged values into stays
// C's own, and stands for them. Of several nodes of B for one of A, the one that C merged into a
// node is the one in whose place C takes it. What cannot be said this way is left without origins,
// so that nothing is taken for granted.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// Whether both graphs were made from one graph, by what their origins say.
bool share_origins(const Graph& b, const Graph& c);

// C with provenance and origins that name nodes of B. They share a context and origins.
Graph rebase_provenance(const Graph& b, const Graph& c);

}  // namespace epweave
