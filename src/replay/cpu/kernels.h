// The CPU's kernels (portable math), one row per op.
#pragma once

#include <span>

#include "replay/kernel.h"

namespace epweave::replay {

std::span<const KernelRow> cpu_kernel_rows();

}  // namespace epweave::replay
