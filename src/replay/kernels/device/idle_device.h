// A device that runs no kernel, for measuring the host: what a step takes on it is the time of the
// host's own work. Memory is zeros and what the host copies in; so of a graph whose sizes depend on
// computed values nothing can be learned.
//
//   EPWEAVE_EMULATED_KERNELS=none epweave-replay run G --device emulated --warm-up 1 --repeat 40
#pragma once

#include <memory>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

inline constexpr const char* kKernelsVariable = "EPWEAVE_EMULATED_KERNELS";

enum class Kernels : std::uint8_t { kRun, kNone };
// "none"; null or empty: they run. Throws UsageError for anything else.
Kernels read_kernels(const char* text);

std::unique_ptr<DeviceApi> make_idle_device(std::unique_ptr<DeviceApi> device);

}  // namespace epweave::replay::device
