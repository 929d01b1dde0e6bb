// The rows of the ops that a device has its own product for.
#pragma once

#include <array>

#include "replay/kernels/kernel.h"

namespace epweave::replay {

// A device's.
struct ProductKernels {
  KernelFn mm, addmm, bmm, baddbmm, mv, dot, grouped_mm, convolution, convolution_backward;
};

constexpr std::array<KernelRow, 9> product_rows(const ProductKernels& kernels) {
  return {{
      {"aten._grouped_mm.default", kernels.grouped_mm},
      {"aten.addmm.default", kernels.addmm},
      {"aten.baddbmm.default", kernels.baddbmm},
      {"aten.bmm.default", kernels.bmm},
      {"aten.convolution.default", kernels.convolution},
      {"aten.convolution_backward.default", kernels.convolution_backward},
      {"aten.dot.default", kernels.dot},
      {"aten.mm.default", kernels.mm},
      {"aten.mv.default", kernels.mv},
  }};
}

}  // namespace epweave::replay
