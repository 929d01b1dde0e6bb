// A device without a GPU: the same kernels, run by the host. For tests. Two kinds:
//
// The lazy one: work waits in its stream until something waits for it, and only what that needs is
// run. An executor that forgets an event reads memory that was not written yet, on every run.
//
// The concurrent one: each stream is a thread that runs its work as soon as it may. Needed where
// streams wait for other processes.
//
// Both capture: work becomes a graph and is not run. They then refuse what CUDA refuses, and more:
// whatever the capturing thread does but launching, filling and calling on that stream fails, and
// with it the capture.
//
// Work that is held back is begun when it is let go, whatever the time. Meanwhile they refuse all
// that may wait for it, and to hold anything back while other work is underway.
#pragma once

#include <memory>

#include "replay/kernels/device/device_api.h"
#include "replay/kernels/device/emulated_memory.h"

namespace epweave::replay::device {

enum class Emulation : std::uint8_t { kLazy, kConcurrent };
std::unique_ptr<DeviceApi> make_emulated_device(Emulation kind = Emulation::kLazy,
                                                HostAccess access = HostAccess::kAlways);

// What such a device gives to other libraries as a stream: one that takes the place of NCCL or
// cuBLASLt queues its work there. Work that is captured runs as often as the graph is launched.
struct EmulatedWork {
  void (*run)(void* argument);
  void (*destroy)(void* argument);  // once it runs no more; null: nothing to do
  void* argument;
};
struct EmulatedStream {
  void (*enqueue)(EmulatedStream* stream, const EmulatedWork& work);
};

}  // namespace epweave::replay::device
