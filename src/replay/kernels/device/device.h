// Devices that graphs are run on: a GPU, and the emulated one.
#pragma once

#include <memory>

#include "replay/kernels/device/emulated.h"
#include "replay/run/rank_device.h"

namespace epweave::replay::device {

// How a device computes.
struct MathMode {
  Math math = Math::kPortable;
  PinRows pin = PinRows::kNo;
};

// The GPU of this number, through libepweave_cuda.so: beside the program, in ../lib, or where
// EPWEAVE_CUDA says. Throws PassError: replay.no-device if there is no such object, no driver, or
// no GPU that the kernels are built for; replay.stale-device if the object is of other device
// sources or flags than this program. Native math needs cuBLASLt (cublas/cublaslt_library.h).
std::unique_ptr<Device> open_cuda_device(int ordinal, const MathMode& mode = {});

// The same kernels, run by the host, for tests; see emulated.h. Fails where
// EPWEAVE_EMULATED_FAILURE says (failing_device.h).
std::unique_ptr<Device> open_emulated_device(Emulation kind = Emulation::kLazy, const MathMode& mode = {});

}  // namespace epweave::replay::device
