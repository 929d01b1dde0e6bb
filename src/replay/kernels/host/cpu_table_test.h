// The CPU's kernels, made once. For tests.
#pragma once

#include "replay/kernels/host/kernels.h"

namespace epweave::replay {

inline const KernelTable& table() {
  static const KernelTable filled = make_cpu_kernels();
  return filled;
}

}  // namespace epweave::replay
