// What a rewritten graph shares with the world: its inputs and outputs, the process groups, the
// nested graphs, and what is known of symbols.
//
// Reports rewrite-inputs, rewrite-group, rewrite-nested and rewrite-symbol.
#pragma once

#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

// The same inputs and outputs, with the same roles and the same data about them: of which tensor of
// which subclass each is a piece.
void check_inputs(RewriteClaims& claims, Numbers& numbers);

// The rank whose graph it is, how many there are and how they lie in meshes, where both say so.
void check_world(RewriteClaims& claims);

// The same name is the same group, of the same mesh axes.
void check_groups(RewriteClaims& claims);

// B says of A's symbols what A says. What a rewrite assumes it lists apart from that
// (Symbol::assumptions).
void check_symbol_facts(RewriteClaims& claims, Numbers& numbers);

// A symbol of A is in B what it is in A: bound by the same node, if at all. Arguments and sizes
// that name it are compared by name.
void check_binders(RewriteClaims& claims);

// Nested graphs of A are in B, node by node in the same order.
void check_nested(RewriteClaims& claims, Numbers& numbers);

}  // namespace epweave
