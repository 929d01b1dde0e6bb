#include "assumption_kinds.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "base/counted.h"
#include "folding.h"

namespace epweave::cli {
namespace {

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// "in each part, 0 <= u" for "in each part, 0 <= u4", "rows of %" for "rows of %getitem_12":
// symbols without their numbers, nodes without their names.
std::string drop_names(const std::string& text) {
  std::string kind;
  for (std::size_t i = 0; i < text.size(); ++i) {
    kind += text[i];
    const bool is_symbol = (text[i] == 'u' || text[i] == 's') && (i == 0 || !is_word(text[i - 1]));
    while (is_symbol && i + 1 < text.size() && is_digit(text[i + 1])) ++i;
    const bool is_node = text[i] == '%';
    while (is_node && i + 1 < text.size() && is_word(text[i + 1])) ++i;
  }
  return kind;
}

}  // namespace

std::vector<AssumptionKind> group_assumptions(const std::vector<std::string>& assumptions) {
  std::vector<FoldableRow> rows;
  rows.reserve(assumptions.size());
  for (const std::string& text : assumptions) rows.push_back({"", drop_names(text)});
  std::vector<AssumptionKind> kinds;
  for (const FoldedRows& fold : fold_rows(rows))
    kinds.push_back({assumptions[fold.members.front()], fold.members.size()});
  return kinds;
}

std::string count_assumptions(std::size_t kinds, std::size_t all) {
  if (all == 0) return "without an assumption";
  if (kinds == all) return "under " + counted(all, "assumption");
  return fmt::format("under {} of assumption ({} in all)", counted(kinds, "kind"), all);
}

}  // namespace epweave::cli
