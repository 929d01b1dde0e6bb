// Losses on the CPU.
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/ops/loss_call.h"

namespace epweave::replay::cpu {
namespace {

Value total_of(KernelCall& call, const Tensor& terms, Total total) {
  return with_floating(terms.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const Buffer<C> x = dense<C>(terms);
    const C sum = ordered_sum(x.data(), terms.numel());
    Tensor out = call.make_result(0, terms.dtype, {});
    store_dense(Buffer<C>(1, total == Total::kMean ? sum / static_cast<C>(terms.numel()) : sum), out);
    return out;
  });
}

}  // namespace

std::span<const KernelRow> loss_rows() {
  return kLossRows<total_of>;
}

}  // namespace epweave::replay::cpu
