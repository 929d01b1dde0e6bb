// What the programs that judge mutants count and print: how many pairs came to each fate, and how
// often what else was counted.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "mutant_judge.h"

namespace epweave {

// By what, how often.
using Counts = std::map<std::string, std::size_t>;
// A line for each, behind a title; nothing where none was counted.
void print_counts(std::string_view title, const Counts& counts);

class FateTally {
 public:
  static bool is_finding(Fate fate) { return fate == Fate::kWrong || fate == Fate::kCrashed; }

  void add(Fate fate) { ++fates_[static_cast<std::size_t>(fate)]; }
  std::size_t findings() const;
  // Whether so many seconds have passed since this was made; 0: there is no limit.
  bool is_over(double seconds) const { return seconds > 0 && elapsed() > seconds; }
  // "WHAT: 3 no step, .., 0 wrong; 12 s"
  void print(std::string_view what) const;

 private:
  double elapsed() const;

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::array<std::size_t, kFates> fates_{};
};

}  // namespace epweave
