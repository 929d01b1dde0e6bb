// What calls of RMS norm and of the negative log likelihood say, for every device that computes
// them.
#pragma once

#include <cstdint>

#include "replay/kernels/kernel.h"

namespace epweave::replay::cpu {

// The trailing dimensions `shape` of the input are normalised together: the number of their
// elements. Throws KernelError if they are not the input's.
std::int64_t norm_length(const Tensor& input, const Extents& shape);
// Of the reciprocal root mean squares: 1 in those dimensions.
Extents rstd_sizes(const Tensor& input, const Extents& shape);
// None: the distance from 1 to the next number of the type that is computed in, float32 for the
// 16-bit floats.
double norm_epsilon(const Value& epsilon, DType input);

enum class LossReduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };
// Scores [row, class], or [class] of one row.
struct LossShape {
  std::int64_t rows = 0, classes = 0;
};
// Throws KernelError unless there is one target per row.
LossShape read_loss_shape(const Tensor& scores, const Tensor& targets);

}  // namespace epweave::replay::cpu
