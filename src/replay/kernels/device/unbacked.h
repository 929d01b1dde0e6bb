// A device without memory: it gives addresses that nobody may look at, and runs nothing. Kernels on
// it ask for what they would ask for on any device.
#pragma once

#include <memory>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {

// What the host reads of it are bytes of 1: every element of a bool mask is true.
std::unique_ptr<DeviceApi> make_unbacked_device();

}  // namespace epweave::replay::device
