// A device that fails as a GPU does, for tests of what is reported then. Once a kernel has crashed,
// CUDA refuses every call of the process; the calls that only queue work say so no earlier than one
// that waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

// "call 12": the device is lost at its 12th call. "launch 12": the 12th kernel crashes; the host
// learns it at the launch where CUDA_LAUNCH_BLOCKING is 1, else at the next call that waits.
inline constexpr const char* kFailureVariable = "EPWEAVE_EMULATED_FAILURE";

struct DeviceFailure {
  enum class At : std::uint8_t { kCall, kLaunch } at = At::kCall;
  std::uint64_t number = 1;  // from 1
};
// Null or empty: none. Throws UsageError for what is neither of the two forms.
std::optional<DeviceFailure> read_failure(const char* text);

// The device until it fails. What is queued after the failure is not run.
std::unique_ptr<DeviceApi> make_failing_device(std::unique_ptr<DeviceApi> device,
                                               const DeviceFailure& failure);

}  // namespace epweave::replay::device
