// concretize: makes the token symbols of a graph numbers.
//
//   before  %arg1 : bf16[u0, 256]    %n = sym_size(%arg1, 0) : SymInt(u0)    %h = floordiv(%n, 2)
//           %v = reshape(%x, [%n, -1]) : bf16[u0, 256]
//   after   %arg1 : bf16[1024, 256]
//           %v = reshape(%x, [1024, -1]) : bf16[1024, 256]
//
// Which symbols: those that a chunker noted on placeholders (torchtitan_chunk_symbol_hints), and
// those in the extents of placeholders, each with the number it had when the graph was traced.
// Never a symbol that the graph computes (counts of routed tokens): those stay symbols, and every
// guard about them stays.
//
// The numbers go into types, arguments, nested graphs and the symbol table; recorded strides are
// kept, not computed anew, but for those of dimensions whose extent becomes 1. A call that computes
// a number by now goes into its users and away. Guards that hold go away.
//
// Numerics: reorder (bitwise by construction).
//
// Refusals: "concretize.no-hint" (N-1) for an extent without a number, "concretize.false-guard"
// (N-2) for a fact that the numbers contradict. That a token symbol is left (N-3) cannot happen.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassResult concretize(const Graph& graph);

}  // namespace epweave
