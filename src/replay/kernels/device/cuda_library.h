// Loads the CUDA device's shared object, libepweave_cuda.so.
#pragma once

#include <memory>
#include <string_view>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

// Whether a CUDA part of one build serves a program of another (cmake/device_build.cmake): the same
// sources and flags, and the same nvcc and its flags if the program was built where one is.
bool serves_build(std::string_view library, std::string_view program);

// Throws PassError: replay.no-device, or replay.stale-device for a shared object of other sources,
// flags or nvcc.
std::unique_ptr<DeviceApi> load_cuda_device(int ordinal);

}  // namespace epweave::replay::device
