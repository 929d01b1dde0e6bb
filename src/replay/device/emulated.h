// A device without a GPU: the same kernels, run by the host. For tests.
//
// It is lazy. Work waits in its stream until something waits for it, and only what that needs is run: an
// executor that forgets an event reads memory that was not written yet, on every run.
#pragma once

#include <memory>

#include "replay/device/device_api.h"

namespace epweave::replay::device {

std::unique_ptr<DeviceApi> make_emulated_device();

}  // namespace epweave::replay::device
