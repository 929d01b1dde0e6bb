// What a collective's contributions make for one member, in device memory: moved bytes, or sums in the
// documented order (transport.h).
#pragma once

#include "replay/device/launcher.h"
#include "replay/transport.h"

namespace epweave::replay::device {

// Queues it; the contributions must be there when the launcher's stream gets to it.
void make_result(Launcher& launcher, const Meeting& meeting, const Tensor& result);

}  // namespace epweave::replay::device
