// How long a rank waits for the others.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

namespace epweave::replay {

// `least`, and where it grows ten times the longest that a rank of this process was seen to take
// from one wait for the others to the next, whichever is longer. All ranks run one graph: what one
// takes is what it may expect of the others.
struct WaitLimit {
  std::chrono::milliseconds least{60'000};
  bool grows = false;

  WaitLimit() = default;
  WaitLimit(std::chrono::milliseconds fixed) : least(fixed) {}  // NOLINT(google-explicit-constructor)
};

// The same as it is now. Any thread may ask and tell it.
class Deadline {
 public:
  explicit Deadline(WaitLimit limit) : grows_(limit.grows), now_(limit.least) {}

  std::chrono::nanoseconds now() const { return now_.load(); }
  // A rank took so long between two waits.
  void took(std::chrono::nanoseconds time);
  // "60 s (--deadline)"
  std::string text() const;

 private:
  const bool grows_;
  std::atomic<std::chrono::nanoseconds> now_;
};

// What a rank takes between its waits, told to the deadline.
class WaitClock {
 public:
  // The rank waits while this lives.
  class [[nodiscard]] Wait {
   public:
    Wait(WaitClock& clock, Deadline& deadline) : clock_(clock) { deadline.took(Clock::now() - clock.since_); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() { clock_.since_ = Clock::now(); }

   private:
    WaitClock& clock_;
  };
  // So much of the time since the last wait was no time of the rank's own.
  void leave_out(std::chrono::nanoseconds time) { since_ += time; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_ = Clock::now();
};

}  // namespace epweave::replay
