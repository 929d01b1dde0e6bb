// A device without a GPU: the same kernels, run by the host. For tests. Two kinds:
//
// The lazy one: work waits in its stream until something waits for it, and only what that needs is run. An
// executor that forgets an event reads memory that was not written yet, on every run.
//
// The concurrent one: each stream is a thread that runs its work as soon as it may. Needed where streams wait for
// other processes.
#pragma once

#include <memory>

#include "replay/device/device_api.h"

namespace epweave::replay::device {

enum class Emulation : std::uint8_t { kLazy, kConcurrent };
std::unique_ptr<DeviceApi> make_emulated_device(Emulation kind = Emulation::kLazy);

// What such a device gives to other libraries as a stream: a library that emulates NCCL queues its work there.
struct EmulatedStream {
  void (*enqueue)(EmulatedStream* stream, void (*run)(void*), void* argument);
};

}  // namespace epweave::replay::device
