// Launching products of matrices in device memory.
#pragma once

#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

// A matrix, or a batch of them along the first of three dimensions; `share` batches in a row use
// the same one.
MatrixPlace matrix_place(const Tensor& tensor, std::int64_t share = 1);

// Which kernel makes it. All give the same bits.
TaskKind kind_of_product(const MatmulProblem& problem);

// `tensors`: all that it reads and writes.
void launch_product(Launcher& launcher, const MatmulProblem& problem,
                    std::initializer_list<const Tensor*> tensors);

}  // namespace epweave::replay::device
