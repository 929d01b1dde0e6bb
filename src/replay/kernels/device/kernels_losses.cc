// Losses on the device: terms by element, and their sum or mean.
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/reduction.h"
#include "replay/kernels/ops/loss_call.h"

namespace epweave::replay::device {
namespace {

Value total_of(KernelCall& call, const Tensor& terms, cpu::Total total) {
  Scratch scratch(call);
  const Rows rows =
      rows_of(scratch, terms, {std::vector<bool>(terms.rank(), true), false}, computed_dtype(terms.dtype));
  const Scratch::Sum sum = total == cpu::Total::kMean ? Scratch::Sum::kMean : Scratch::Sum::kTotal;
  return store_result(call, 0, terms.dtype, rows.sizes, scratch.sum_rows(rows.matrix, sum));
}

}  // namespace

std::span<const KernelRow> loss_rows() {
  return cpu::kLossRows<total_of>;
}

}  // namespace epweave::replay::device
