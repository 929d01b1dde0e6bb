// A line of progress on a terminal that says how long it stands there, from the second second on:
//
//   [4/6] choose-chunks ... 12 s
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "common/console.h"

namespace epweave::cli {

// While one lives, nothing else may write to the console.
class Ticking {
 public:
  Ticking(Console& console, std::string text);

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // where the console shows progress; asked to stop, and joined, first
};

}  // namespace epweave::cli
