// Losses of predictions against targets: terms by element, and their sum or mean (ops/loss_call.h).
#include "replay/kernels/ops/loss_call.h"

#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {
namespace {

Value total_of(KernelCall& call, const Tensor& terms, cpu::Total total) {
  Scratch scratch(call);
  const Scratch::Sum sum = total == cpu::Total::kMean ? Scratch::Sum::kMean : Scratch::Sum::kTotal;
  const Tensor all = as_matrix(scratch.dense(terms, floating_dtype(terms.dtype)), 1, terms.numel());
  return store_result(call, 0, terms.dtype, {}, scratch.sum_rows(all, sum));
}

}  // namespace

std::span<const KernelRow> loss_rows() {
  return cpu::kLossRows<total_of>;
}

}  // namespace epweave::replay::shared
