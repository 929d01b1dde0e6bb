// Numbers in place of symbols, everywhere in a graph.
//
//   before  %c = coordinate(%ranks, 0) : SymInt(u0)   %o = mul(%c, 1024) : SymInt(1024*u0)   %ge = ge(%x, %o)
//   after   u0 = 1                                                                           %ge = ge(%x, 1024)
//
// The numbers go into types, arguments, nested graphs and the symbol table, from which the symbols
// go. A call that computes a number by now goes into its users and away. Guards that hold go away;
// one that does not is refused as "PASS.false-guard" (N-2).
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave {

using SymbolNumbers = SideTable<StringId, std::optional<std::int64_t>>;

// Who asks, for records and refusals.
struct Replacement {
  std::string_view pass;
  std::string reason;  // "u0 = 1"
  std::string remedy;
  bool fold_all = true;  // calls that computed a number before, too: mul(0, %n)
};

void replace_symbols(Graph& graph, const SymbolNumbers& numbers, const Replacement& replacement);

}  // namespace epweave
