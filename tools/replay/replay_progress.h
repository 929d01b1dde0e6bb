// How far a long replay is, on standard error: on a terminal one line that is replaced; elsewhere, and with -v, plain lines,
// few: none before ten seconds, then one each time that half as long again has gone by. With -q nothing.
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
  explicit ReplayProgress(Console& console) : console_(console) {}
  // Must not outlive this.
  replay::Progress function();

 private:
  void report(std::string_view run, std::size_t done, std::size_t steps);

  Console& console_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double next_line_ = 10;  // seconds
};

}  // namespace epweave::cli
