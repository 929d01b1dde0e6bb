#include "strict_kernels.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "ops/op.h"
#include "replay/kernels/host/kernels.h"

namespace epweave {
namespace {

using replay::Extents;
using replay::KernelCall;
using replay::KernelError;
using replay::Storage;
using replay::Tensor;
using replay::Value;

// What is to be copied, which the copy does not keep.
struct LateCopy {
  Extents sizes, strides;
  std::int64_t offset = 0;
  std::weak_ptr<Storage> from;
};

// By the memory that the copy fills. A rank runs on a thread of its own.
thread_local std::map<const Storage*, LateCopy> late_copies;

void fill_with_nan(const Storage& storage) {
  std::memset(storage.data(), 0xff, storage.bytes());
}

Value begin_copy(KernelCall& call) {
  const Tensor& source = call.tensor(0);
  Tensor result = call.make_result(0, source.dtype, source.sizes);
  fill_with_nan(*result.storage);
  late_copies[result.storage.get()] = {source.sizes, source.strides, source.offset, source.storage};
  return result;
}

Value end_copy(KernelCall& call) {
  const Tensor& result = call.tensor(0);
  if (const auto found = late_copies.find(result.storage.get()); found != late_copies.end()) {
    const LateCopy copy = std::move(found->second);
    late_copies.erase(found);
    if (const std::shared_ptr<Storage> storage = copy.from.lock()) {
      const Tensor source{result.dtype, copy.sizes, copy.strides, copy.offset, storage};
      const Tensor elements = call.make(result.dtype, copy.sizes);
      replay::gather_elements(source, elements.bytes());
      replay::scatter_elements(elements.bytes(), result);
    }
  }
  if (call.given(1) && call[1].is_tensor()) fill_with_nan(*call.tensor(1).storage);
  return result;
}

constexpr std::string_view kAttention = "aten._scaled_dot_product_efficient_attention.default";
constexpr std::int64_t kBiasAlignment = 16;  // bytes

replay::KernelFn plain_attention() {
  static const replay::KernelFn plain = replay::make_cpu_kernels().find(*find_op(kAttention));
  return plain;
}

Value attend(KernelCall& call) {
  if (call[3].is_tensor()) {
    const Tensor &query = call.tensor(0), &key = call.tensor(1), &bias = call.tensor(3);
    if (bias.dtype != query.dtype) throw KernelError("the bias has another dtype than the queries");
    const Extents sizes{query.sizes[0], query.sizes[1], query.sizes[2], key.sizes[2]};
    if (bias.sizes != sizes) throw KernelError("the bias has not the sizes of the scores");
    if (bias.strides[2] * static_cast<std::int64_t>(bias.element_bytes()) % kBiasAlignment != 0)
      throw KernelError("the rows of the bias are not aligned");
  }
  return plain_attention()(call);
}

}  // namespace

replay::KernelTable make_strict_kernels() {
  static constexpr replay::KernelRow kRows[] = {{"ao.offload.default", begin_copy},
                                                {"ao.reload.default", begin_copy},
                                                {"ao.wait_tensor.default", end_copy},
                                                {kAttention, attend}};
  replay::KernelTable kernels = replay::make_cpu_kernels();
  kernels.add(kRows);
  return kernels;
}

}  // namespace epweave
