// How far a run is. The library prints nothing: who runs a graph gives a function.
//
//   options.progress = [](std::string_view run, std::size_t done, std::size_t steps) { ... };   // "B", 4160, 8320
//
// It is called on the ranks' threads, one at a time, about a hundred times a run, and when the run
// is over.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace epweave::replay {

// `run`: which of several; empty where there is one. Steps of all ranks.
using Progress = std::function<void(std::string_view run, std::size_t done, std::size_t steps)>;

class StepCounter {
 public:
  StepCounter(const Progress& progress, std::string run, std::size_t steps)
      : progress_(progress), run_(std::move(run)), steps_(steps) {}

  // A step is done.
  void advance() {
    if (!progress_) return;
    const std::size_t done = ++done_;
    if (done * 100 / steps_ == (done - 1) * 100 / steps_) return;
    const std::lock_guard lock(mutex_);
    if (done <= reported_) return;  // a later one was faster
    reported_ = done;
    progress_(run_, done, steps_);
  }

 private:
  const Progress& progress_;
  std::string run_;
  std::size_t steps_;
  std::atomic<std::size_t> done_{0};
  std::mutex mutex_;
  std::size_t reported_ = 0;
};

}  // namespace epweave::replay
