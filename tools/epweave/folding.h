// Rows that say the same of numbered modules, in one: "layers.{3..60}.moe" for layers.3.moe to
// layers.60.moe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace epweave::cli {

struct FoldableRow {
  std::string path;     // "layers.3.moe"; its first component that is a number is what rows may differ in
  std::string content;  // all else that must be equal
};

struct FoldedRows {
  std::string path;                  // "layers.{3..60}.moe"; of one row: its own
  std::vector<std::size_t> members;  // places among the rows given, in their order
};

// In the order of their first rows.
std::vector<FoldedRows> fold_rows(const std::vector<FoldableRow>& rows);

}  // namespace epweave::cli
