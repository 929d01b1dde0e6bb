#include "replay/kernels/ops/normalise_call.h"

#include <limits>

namespace epweave::replay::cpu {

std::int64_t norm_length(const Tensor& input, const Extents& shape) {
  if (shape.size() > input.rank()) throw KernelError("rms_norm: normalized_shape has too many dimensions");
  std::int64_t length = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (input.sizes[input.rank() - shape.size() + i] != shape[i])
      throw KernelError("rms_norm: normalized_shape does not fit");
    length *= shape[i];
  }
  return length;
}

Extents rstd_sizes(const Tensor& input, const Extents& shape) {
  Extents sizes = input.sizes;
  for (std::size_t i = 0; i < shape.size(); ++i) sizes[sizes.size() - 1 - i] = 1;
  return sizes;
}

double norm_epsilon(const Value& epsilon, DType input) {
  if (!epsilon.is_none()) return epsilon.real();
  return input == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                  : static_cast<double>(std::numeric_limits<float>::epsilon());
}

LossShape read_loss_shape(const Tensor& scores, const Tensor& targets) {
  if (scores.rank() == 0 || scores.rank() > 2) throw KernelError("nll_loss: one or two dimensions");
  const LossShape shape{scores.rank() == 2 ? scores.sizes[0] : 1, scores.sizes.back()};
  if (targets.numel() != shape.rows) throw KernelError("nll_loss: a target per row");
  return shape;
}

}  // namespace epweave::replay::cpu
