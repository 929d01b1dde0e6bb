#include "replay/collectives/deadline.h"

#include <fmt/format.h>

namespace epweave::replay {

void Deadline::took(std::chrono::nanoseconds time) {
  constexpr int kSlower = 10;
  std::chrono::nanoseconds now = now_.load();
  while (grows_ && kSlower * time > now && !now_.compare_exchange_weak(now, kSlower * time)) {
  }
}

std::string Deadline::text() const {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now());
  return fmt::format("{} s (--deadline)", std::chrono::duration<double>(milliseconds).count());
}

}  // namespace epweave::replay
