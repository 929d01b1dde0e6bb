#include "replay_progress.h"

#include <fmt/format.h>

namespace epweave::cli {

replay::Progress ReplayProgress::function() {
  return [this](std::string_view run, std::size_t done, std::size_t steps) { report(run, done, steps); };
}

void ReplayProgress::report(std::string_view run, std::size_t done, std::size_t steps) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string text = fmt::format("{}{}{} % of {} steps, {:.0f} s", run, run.empty() ? "" : ": ",
                                       done * 100 / steps, steps, seconds);
  if (console_.shows_progress() && !console_.verbose()) return console_.progress(text);
  if (seconds < next_line_) return;
  console_.info(text);
  next_line_ = seconds * 1.5;
}

}  // namespace epweave::cli
