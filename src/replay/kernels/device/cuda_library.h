// Loads the CUDA device's shared object, libepweave_cuda.so.
#pragma once

#include <memory>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

// Throws PassError: replay.no-device, or replay.stale-device for a shared object of other sources
// or flags.
std::unique_ptr<DeviceApi> load_cuda_device(int ordinal);

}  // namespace epweave::replay::device
