// The entry points of scaled dot product attention, over the two functions that a device has of its
// own: what attends, and its gradients.
//
//   constexpr auto kRows = attention_rows<dot_product, dot_product_backward>();
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "replay/kernels/ops/attention_call.h"

namespace epweave::replay::shared {

using DotProductFn = cpu::DotProductResult (*)(KernelCall& call, const cpu::DotProductParams& at);
// Of query, key and value.
using DotProductBackwardFn = std::vector<Value> (*)(KernelCall& call, const cpu::DotProductParams& at);

template <DotProductFn kAttend, const cpu::DotProductParams& kParams>
Value attend_fused(KernelCall& call) {
  return cpu::fused_attention_result(call, kAttend(call, kParams));
}
template <DotProductFn kAttend, const cpu::DotProductParams& kParams>
Value attend_efficient(KernelCall& call) {
  return cpu::efficient_attention_result(call, kAttend(call, kParams));
}
template <DotProductFn kAttend, const cpu::DotProductParams& kParams>
Value attend_on_cpu(KernelCall& call) {
  cpu::DotProductResult result = kAttend(call, kParams);
  return Value::tuple({std::move(result.out), std::move(result.lse)});
}
template <DotProductBackwardFn kDifferentiate, const cpu::DotProductParams& kParams>
Value differentiate(KernelCall& call) {
  return Value::tuple(kDifferentiate(call, kParams));
}
template <DotProductBackwardFn kDifferentiate, const cpu::DotProductParams& kParams>
Value differentiate_with_bias(KernelCall& call) {
  return cpu::gradients_and_bias(call, kDifferentiate(call, kParams));
}

template <DotProductFn kAttend, DotProductBackwardFn kDifferentiate>
constexpr std::array<KernelRow, 10> attention_rows() {
  return {{
      {"aten._scaled_dot_product_cudnn_attention.default", attend_fused<kAttend, cpu::kCudnn>},
      {"aten._scaled_dot_product_cudnn_attention_backward.default",
       differentiate<kDifferentiate, cpu::kCudnnBackward>},
      {"aten._scaled_dot_product_efficient_attention.default", attend_efficient<kAttend, cpu::kEfficient>},
      {"aten._scaled_dot_product_efficient_attention_backward.default",
       differentiate_with_bias<kDifferentiate, cpu::kEfficientBackward>},
      {"aten._scaled_dot_product_flash_attention.default", attend_fused<kAttend, cpu::kFlash>},
      {"aten._scaled_dot_product_flash_attention_backward.default",
       differentiate<kDifferentiate, cpu::kFlashBackward>},
      {"aten._scaled_dot_product_flash_attention_for_cpu.default", attend_on_cpu<kAttend, cpu::kCpu>},
      {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
       differentiate<kDifferentiate, cpu::kCpuBackward>},
      {"aten._scaled_dot_product_fused_attention_overrideable.default",
       attend_fused<kAttend, cpu::kOverrideable>},
      {"aten._scaled_dot_product_fused_attention_overrideable_backward.default",
       differentiate_with_bias<kDifferentiate, cpu::kOverrideableBackward>},
  }};
}

}  // namespace epweave::replay::shared
