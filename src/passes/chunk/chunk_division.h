// How the tokens are divided into parts.
//
//   parts=4             u//4 rows each, where 4 divides u
//   parts=3             u//3, 2*u//3 - u//3, u - 2*u//3: whole rows, as equal as can be
//   sizes=[700,324]     700 and u - 700
//
// Every extent of a part follows from these: c rows per token give c times as many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/facts.h"

namespace epweave {

struct Division {
  std::int64_t parts = 2;
  std::vector<std::int64_t> sizes = {};  // of all parts, in order; empty: as equal as can be
  IdSet<StringId> divided = {};          // the token symbols that are divided so
  IdSet<StringId> equal = {};            // those of them that `parts` divides

  std::size_t count() const { return static_cast<std::size_t>(parts); }
  // The number of rows of part `part`, of the token symbol's many.
  PolyId rows(ExprPool& pool, StringId symbol, std::size_t part) const;
  // The first of them; part `parts` begins behind the last row.
  PolyId first_row(ExprPool& pool, StringId symbol, std::size_t part) const;

  friend bool operator==(const Division& a, const Division& b) {
    return a.parts == b.parts && a.sizes == b.sizes;
  }
};

}  // namespace epweave
