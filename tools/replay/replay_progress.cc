#include "replay_progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace epweave::cli {

replay::Progress ReplayProgress::function() {
  return [this](std::string_view run, std::size_t done, std::size_t steps) { report(run, done, steps); };
}

std::string ReplayProgress::overall_text(std::string_view run, double share, double seconds) {
  if (run != current_) {
    finished_ += !current_.empty();
    current_ = run;
  }
  const auto total = static_cast<double>(std::max(runs_, finished_ + 1));
  shown_ = std::max(shown_, (static_cast<double>(finished_) + share) / total);
  std::string text = fmt::format("{:.0f} % ({}), {:.0f} s", 100 * shown_, run, seconds);
  if (seconds >= 5 && shown_ > 0) text += fmt::format(", about {:.0f} s left", seconds * (1 / shown_ - 1));
  return text;
}

void ReplayProgress::report(std::string_view run, std::size_t done, std::size_t steps) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string text =
      run.empty() ? fmt::format("{} % of {} steps, {:.0f} s", done * 100 / steps, steps, seconds)
                  : overall_text(run, static_cast<double>(done) / static_cast<double>(steps), seconds);
  if (console_.shows_progress() && !console_.verbose()) return console_.progress(text);
  if (seconds < next_line_) return;
  console_.info(text);
  next_line_ = seconds * 1.5;
}

}  // namespace epweave::cli
