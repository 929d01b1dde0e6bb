// While one lives, the host waits for the device.
//
// Where ranks are processes, a collective on the device waits there for the other ranks: as long as
// one is there, the wait is no time of this rank's own (collectives/deadline.h). A collective's own
// time is left out with it.
#pragma once

#include <algorithm>
#include <chrono>

#include "replay/collectives/exchange.h"
#include "replay/run/executor.h"

namespace epweave::replay {

class DeviceWait {
 public:
  // `process`: null where ranks are none.
  explicit DeviceWait(const Process* process) : process_(process) {
    if (process_ == nullptr) return;
    began_ = std::chrono::steady_clock::now();
    before_ = process_->exchange->time_on_device();
  }
  ~DeviceWait() {
    if (process_ == nullptr) return;
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - began_;
    process_->transport->waited(std::min(time, process_->exchange->time_on_device() - before_));
  }
  DeviceWait(const DeviceWait&) = delete;
  DeviceWait& operator=(const DeviceWait&) = delete;

 private:
  const Process* process_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::nanoseconds before_{};
};

}  // namespace epweave::replay
