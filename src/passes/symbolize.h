// symbolize: gives the token count of a graph a symbol, where it is a plain number, so that chunk
// can divide it.
//
//   before                                   after symbolize{inputs=[tokens:0]}
//     %tokens = placeholder : i64[8]           symbol s0 range=[8, 8] hint=8 backed assume=[Eq(s0, 8)]
//     %e = embedding(%w, %tokens) : [8, 4]     %tokens = placeholder : i64[s0]
//     %v = reshape(%e, [8, 2, 2])              %n = sym_size(%tokens, 0)
//                                              %e = embedding(%w, %tokens) : [s0, 4]
//                                              %v = reshape(%e, [%n, 2, 2])
//
// Which extents scale is inferred (placement/scaling/scaling.h), never read off numbers. What
// nothing reaches stays a number, and so does what a literal fixes: rows cut into pieces of [2, 2,
// 2, 2]. There the recorded assumption s0 = 8 makes both the same. The result computes the same for
// that token count; concretize undoes it. A graph whose token extents are symbols is left as it is.
// Numerics class: reorder.
#pragma once

#include <string>
#include <vector>

#include "passes/pass.h"

namespace epweave {

struct SymbolizeOptions {
  // "tokens:0": a user input by what it is, the last part of that, or its node's name; and the
  // dimension that counts tokens, 0 where left out. "tokens:0/2": two micro-batches lie along that
  // dimension one behind the other, and the symbol counts the tokens of one. None: those of
  // kTokenInputs that there are.
  std::vector<std::string> inputs;
};

// Throws PassError where an input is not there, or an extent would be both a number and a multiple
// of the tokens.
PassResult symbolize(const Graph& graph, const SymbolizeOptions& options);

}  // namespace epweave
