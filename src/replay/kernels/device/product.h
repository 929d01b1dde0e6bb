// Launching products of matrices in device memory.
#pragma once

#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

// A matrix, or a batch of them along the first of three dimensions; `share` batches in a row use
// the same one.
MatrixPlace matrix_place(const Tensor& tensor, std::int64_t share = 1);

void launch_product(Launcher& launcher, const MatmulTask& task, std::int64_t batches,
                    std::initializer_list<const Tensor*> tensors);

}  // namespace epweave::replay::device
