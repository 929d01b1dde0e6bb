#include "fate_tally.h"

#include <fmt/format.h>

namespace epweave {

void print_counts(std::string_view title, const Counts& counts) {
  if (counts.empty()) return;
  fmt::print("{}:\n", title);
  for (const auto& [what, n] : counts) fmt::print("  {:7} {}\n", n, what);
}

std::size_t FateTally::findings() const {
  std::size_t found = 0;
  for (std::size_t i = 0; i < kFates; ++i)
    if (is_finding(Fate(i))) found += fates_[i];
  return found;
}

void FateTally::print(std::string_view what) const {
  fmt::print("{}:", what);
  for (std::size_t i = 0; i < kFates; ++i)
    fmt::print(" {} {}{}", fates_[i], name_of(Fate(i)), i + 1 < kFates ? "," : "");
  fmt::print("; {:.0f} s\n", elapsed());
}

double FateTally::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace epweave
