// Convolutions, of products: the elements under each window are a column of a matrix.
//
// An element of the result is one chain of fused multiply-adds over the channels of its group and
// the places of a window, in that order (host/kernels.h, "product"); of a gradient of the weights,
// over the batch and the windows. A bias is added to the finished product.
#pragma once

#include <functional>

#include "replay/kernels/kernel.h"

namespace epweave::replay::shared {

// out[b] = x[b] y[b] of a device: of three dimensions.
using MultiplyBatches = std::function<void(const Tensor& x, const Tensor& y, const Tensor& out)>;

Value convolution(KernelCall& call, const MultiplyBatches& multiply);
Value convolution_backward(KernelCall& call, const MultiplyBatches& multiply);

}  // namespace epweave::replay::shared
