#include "ticking.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace epweave::cli {

Ticking::Ticking(Console& console, std::string text) {
  console.progress(text);
  if (!console.shows_progress()) return;
  thread_ = std::jthread([this, &console, text = std::move(text)](const std::stop_token& stop) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    for (int seconds = 1;; ++seconds) {
      wake_.wait_until(lock, stop, begin + std::chrono::seconds(seconds), [] { return false; });
      if (stop.stop_requested()) return;
      if (seconds > 1) console.progress(fmt::format("{} {} s", text, seconds));
    }
  });
}

}  // namespace epweave::cli
