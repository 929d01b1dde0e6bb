// The CPU's kernels (portable math), one row per op, each family in its file: here those that view,
// copy, make or map elements, which serve a device too, products and attention; in kernels/shared/
// those composed of its vocabulary.
//
// Orders that the bits depend on, the same for any number of rows, threads and machines:
//
//   product    mm and its relatives: element (i, j) is one chain of fused multiply-adds over k = 0,
//              1, ... from +0, in float32 for the 16-bit floats (kernels_matmul.cc)
//   sum        of n elements in row-major order of the reduced dimensions: 16 lanes, lane l adds
//              elements l, l + 16, ... in order; then lanes l and l + 8, l + 4, l + 2, l + 1 are
//              added (sum.h)
//   scatter    index_put, scatter_add, embedding backward: destinations receive their sources in
//              ascending row-major order of the index, one addition at a time, in the accumulation
//              type
//   scan       cumsum: ascending, one addition at a time, in the accumulation type
//   attention  scores as products over the head dimension; the row's maximum; exp; the row's sum in
//              the order `sum` by absolute key position; the product with the values over ascending
//              keys
//   ties       topk and sort: the lower index first; NaN is largest
#pragma once

#include <span>

#include "replay/kernels/kernel.h"

namespace epweave::replay {

// All of them.
std::span<const KernelRow> cpu_kernel_rows();

// What the CPU executor runs: all of them, and the ops on host numbers.
KernelTable make_cpu_kernels();

namespace cpu {
std::span<const KernelRow> activation_rows();
std::span<const KernelRow> attention_rows();
std::span<const KernelRow> copy_rows();
std::span<const KernelRow> factory_rows();
std::span<const KernelRow> flex_attention_rows();
std::span<const KernelRow> matmul_rows();
std::span<const KernelRow> pointwise_rows();
std::span<const KernelRow> slice_rows();
std::span<const KernelRow> view_rows();
}  // namespace cpu

}  // namespace epweave::replay
