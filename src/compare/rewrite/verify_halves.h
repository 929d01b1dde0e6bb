// Do two graphs, F and then B, compute what a joint graph G computes?
//
// F and B are put behind one another: each input of B becomes what its role says,
//
//   role saved       F's output of role saved with the same name
//   role tangent     G's seed of that name (analysis/seeds.h): the caller passes what G computes there
//   other roles      F's input with the same role, name and fqn
//
// and the outputs of both, by their roles, become the outputs of G: of one role, those of each half
// in order, forward's first but where only backward's claims to be G's. That is a rewrite of G
// (verify_rewrite.h), in which B computes some calls of F again (repeats.h); it is proved as any
// other. A node without provenance claims to be G's of its name, or what that was computed of once
// more where F has it, too.
//
//   halves-input     an input of F has not the role of what it stands for, or that of another; an
//                    input of B is neither something that F returns or takes, nor a seed, or has
//                    another type
//   halves-output    the outputs of F and B are not those of G, each once; F returns a saved name
//                    twice
//   rewrite-*        what B or F computes is not what G computes (verify_rewrite.h)
#pragma once

#include "compare/rewrite/verify_rewrite.h"

namespace epweave {

// F and B behind one another, with the roles of G. The graphs share a context and have a sound
// structure.
Graph join_halves(const Graph& joint, const Graph& forward, const Graph& backward,
                  std::vector<Violation>& violations);
RewriteReport verify_halves(const Graph& joint, const Graph& forward, const Graph& backward);

}  // namespace epweave
