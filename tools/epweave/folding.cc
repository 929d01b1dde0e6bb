#include "folding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "base/parse_number.h"

namespace epweave::cli {
namespace {

// "layers.3.moe": what is before, the number, and what is behind.
struct NumberedPath {
  std::string_view before, after;
  std::uint64_t number = 0;
  bool has_number = false;
};

NumberedPath find_number(std::string_view path) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (const auto number = parse_number<std::uint64_t>(path.substr(begin, end - begin)))
      return {path.substr(0, begin), path.substr(end), *number, true};
    begin = end + 1;
  }
  return {path, "", 0, false};
}

// "1,3..60".
std::string print_ranges(std::vector<std::uint64_t> numbers) {
  std::ranges::sort(numbers);
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] <= numbers[last] + 1) ++last;
    text += text.empty() ? "" : ",";
    text += fmt::format("{}", numbers[i]);
    if (numbers[last] != numbers[i]) text += fmt::format("..{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<FoldedRows> fold_rows(const std::vector<FoldableRow>& rows) {
  std::vector<FoldedRows> folds;
  std::unordered_map<std::string, std::size_t> known;
  std::vector<std::vector<std::uint64_t>> numbers;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NumberedPath path = find_number(rows[i].path);
    const auto [found, is_new] = known.try_emplace(
        fmt::format("{}\n{}\n{:d}\n{}", path.before, path.after, path.has_number, rows[i].content),
        folds.size());
    if (is_new) {
      folds.push_back({rows[i].path, {}});
      numbers.emplace_back();
    }
    folds[found->second].members.push_back(i);
    numbers[found->second].push_back(path.number);
  }
  for (std::size_t i = 0; i < folds.size(); ++i) {
    const NumberedPath path = find_number(folds[i].path);
    const std::string ranges = print_ranges(numbers[i]);
    if (path.has_number && ranges.find_first_of(",.") != ranges.npos)
      folds[i].path = fmt::format("{}{{{}}}{}", path.before, ranges, path.after);
  }
  return folds;
}

}  // namespace epweave::cli
