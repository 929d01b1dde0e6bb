// A difference in numbers: how many nodes differ and how, and before and after by op and by module.
//
//   same 2880, divided 296 into 592 nodes, added 278 (12 of them `materialize (aten.cat.default)`), ...
//   layers.*.moe: 600 nodes before, 1174 after, 296 divided, 278 added
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "compare/diff/diff.h"

namespace epweave {

// Nodes of one op or module.
struct DiffRow {
  std::size_t before = 0, after = 0;                                        // in A, in B
  std::size_t divided = 0, added = 0, removed = 0, changed = 0, moved = 0;  // entries of the difference
  bool differs() const { return before != after || divided + added + removed + changed + moved != 0; }
};

struct DiffSummary {
  struct RowCounts {
    std::size_t added = 0, removed = 0, changed = 0;
  };
  std::size_t same = 0;
  std::array<std::size_t, kChangeKinds> counts{};  // of Change(1 << i)
  std::size_t parts = 0;                           // nodes that divided ones became
  std::size_t merged = 0;                          // removed nodes for which others stand
  std::map<std::string, std::size_t> added;        // "materialize (aten.cat.default)"
  std::map<std::string, RowCounts> tables;         // "symbol", ...
  std::map<std::string, DiffRow> ops, modules;     // "(input)"; "layers.*.moe", "(no module)"
};

DiffSummary summarize_diff(const Graph& a, const Graph& b, const GraphDiff& diff);

}  // namespace epweave
