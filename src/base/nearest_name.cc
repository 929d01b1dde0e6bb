#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace epweave {
namespace {

constexpr std::size_t kLeastPart = 3;  // of a name, to tell it by

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (2 * distance >= name.size() || distance >= std::min(least, candidate.size())) continue;
    least = distance;
    nearest = candidate;
  }
  if (!nearest.empty() || name.size() < kLeastPart) return nearest;
  for (std::string_view candidate : known)
    if (candidate.find(name) != candidate.npos && (nearest.empty() || candidate.size() < nearest.size()))
      nearest = candidate;
  return nearest;
}

}  // namespace epweave
