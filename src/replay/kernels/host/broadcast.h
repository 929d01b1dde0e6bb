// How a tensor's elements are repeated to fill larger sizes.
#pragma once

#include <span>

#include "replay/values/tensor.h"

namespace epweave::replay::cpu {

// Strides of the tensor broadcast to `sizes` (aligned at the last dimension), one for each of them.
// Throws KernelError where it does not broadcast.
void broadcast_strides(const Tensor& tensor, std::span<const std::int64_t> sizes,
                       std::span<std::int64_t> strides);

}  // namespace epweave::replay::cpu
