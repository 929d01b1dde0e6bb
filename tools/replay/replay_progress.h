// How far a long replay is, on standard error: on a terminal one line that is replaced; elsewhere,
// and with -v, plain lines, few: none before ten seconds, then one each time that half as long
// again has gone by. With -q nothing.
//
//   B, run 2: 40 % of 8324 steps, 12 s
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "common/console.h"
#include "replay/run/progress.h"

namespace epweave::cli {

class ReplayProgress {
 public:
  // `runs`: how many are expected; one bar is for all of them. A run has a name where there are
  // several.
  explicit ReplayProgress(Console& console, std::size_t runs = 1) : console_(console), runs_(runs) {}
  // Between two runs: how many there are in all.
  void expect(std::size_t runs) { runs_ = runs; }
  // Must not outlive this.
  replay::Progress function();

 private:
  void report(std::string_view run, std::size_t done, std::size_t steps);

  // Percent of all runs, and what is left by the time so far. It never goes back.
  std::string overall_text(std::string_view run, double share, double seconds);

  Console& console_;
  std::size_t runs_, finished_ = 0;
  std::string current_;  // run
  double shown_ = 0;     // share of all
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double next_line_ = 10;  // seconds
};

}  // namespace epweave::cli
