#include "assumption_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "analysis/row_assumptions.h"
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

struct AssumptionReason {
  std::string_view phrase;  // in what is assumed
  std::string_view why, spelling;
};

constexpr std::string_view kPutBack =
    "`order = ids.argsort()`, rows picked by it and put back by `rows[order.argsort()]`";
constexpr std::string_view kCounted =
    "`counts = zeros(tokens, experts).scatter(1, ids, 1).sum(0)` of the ids that are sorted; sizes are sums "
    "of neighbours in it, sent to the other ranks by equal shares, and `offs=counts.cumsum(0)`";

// The first phrase that is in an assumption says its reason.
constexpr std::array kReasons = std::to_array<AssumptionReason>({
    {"are those of the same tokens in each part",
     "the order of one of them is not known: data chose the rows, or numbers that may name a row twice",
     kPutBack},
    {"together have each of its rows once",
     "a sum takes rows in an order that is not known: some may be left out in a part, or be there twice",
     kPutBack},
    {"are those of the same tokens on all ranks",
     "a sum over ranks takes rows in an order that each rank may have for itself", ""},
    {"is the same on all ranks that rows are sent to",
     "rows meet a value of the rank that received them, which may be another on each", ""},
    {"are added up over the ranks that its rows are sent to",
     "the sum is one rank's, of rows that other ranks sent", ""},
    {"rows come back by the numbers by which they went",
     "the numbers that they come back by are not followed to those by which they went", ""},
    {kSplitSizesMayNotCount, "the sizes are not followed to counts of the rows that are sent", kCounted},
    {kGroupSizesCountRows, "the group sizes are not followed to counts of the rows that are multiplied",
     kCounted},
    {"are joined in the order of the whole", "rows in blocks are joined, and their order is not followed",
     ""},
    {"as when traced", "it holds for the sizes that were traced, and nothing says so of others", ""},
});

const AssumptionReason& find_reason(std::string_view assumption) {
  static constexpr AssumptionReason kNone{};
  const auto found = std::ranges::find_if(kReasons, [&](const AssumptionReason& reason) {
    return assumption.find(reason.phrase) != assumption.npos;
  });
  return found == kReasons.end() ? kNone : *found;
}

// "in each part, 0 <= u" for "in each part, 0 <= u4", "rows of %" for "rows of %getitem_12":
// symbols without their numbers, nodes without their names, be they behind %, in quotes, or what
// the line begins with ("_grouped_mm_3 is right in parts").
std::string drop_names(const std::string& text) {
  const std::size_t subject = text.find(" is right in parts, though ");
  std::string kind;
  bool is_quoted = false;
  for (std::size_t i = subject == text.npos ? 0 : subject; i < text.size(); ++i) {
    const bool opens = text[i] == '\'' && (i == 0 || text[i - 1] == ' ');  // no apostrophe
    is_quoted = opens || (is_quoted && text[i] != '\'');
    if (is_quoted && !opens) continue;
    kind += text[i];
    const bool is_symbol = (text[i] == 'u' || text[i] == 's') && (i == 0 || !is_word(text[i - 1]));
    while (is_symbol && i + 1 < text.size() && is_digit(text[i + 1])) ++i;
    const bool is_node = text[i] == '%';
    while (is_node && i + 1 < text.size() && is_word(text[i + 1])) ++i;
  }
  return kind;
}

// A long sum: "u1 + u2 + .. + u64".
std::string shorten_side(const std::string& text) {
  constexpr std::size_t kMost = 60, kHead = 2;
  constexpr std::string_view kPlus = " + ";
  std::vector<std::size_t> signs;
  for (std::size_t at = text.find(kPlus); at != std::string::npos; at = text.find(kPlus, at + 1))
    signs.push_back(at);
  if (text.size() <= kMost || signs.size() <= kHead) return text;
  return fmt::format("{} + ..{}", text.substr(0, signs[kHead - 1]), text.substr(signs.back()));
}

// Sums over many ranks in one line: "u1 + u2 + .. + u64 = 4*u0". Other text stays as it is.
std::string shorten_sum(const std::string& text) {
  constexpr std::string_view kEqual = " = ";
  const std::size_t at = text.find(kEqual);
  if (at == std::string::npos || text.find(kEqual, at + 1) != std::string::npos) return text;
  return fmt::format("{}{}{}", shorten_side(text.substr(0, at)), kEqual,
                     shorten_side(text.substr(at + kEqual.size())));
}

}  // namespace

std::vector<AssumptionKind> group_assumptions(const std::vector<std::string>& assumptions) {
  std::vector<FoldableRow> rows;
  rows.reserve(assumptions.size());
  for (const std::string& text : assumptions) rows.push_back({"", drop_names(text)});
  std::vector<AssumptionKind> kinds;
  for (const FoldedRows& fold : fold_rows(rows)) {
    const std::string& first = assumptions[fold.members.front()];
    const AssumptionReason& reason = find_reason(first);
    kinds.push_back({shorten_sum(first), fold.members.size(), reason.why, reason.spelling});
  }
  return kinds;
}

std::string count_assumptions(std::size_t kinds, std::size_t all) {
  if (all == 0) return "without an assumption";
  if (kinds == all) return "under " + counted(all, "assumption");
  return fmt::format("under {} of assumption ({} in all)", counted(kinds, "kind"), all);
}

}  // namespace epweave::cli
