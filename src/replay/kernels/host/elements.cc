#include "replay/kernels/host/elements.h"

#include <algorithm>
#include <cstring>

#include "ir/types/dimension.h"
#include "replay/kernels/host/broadcast.h"
#include "replay/kernels/host/vector_math.h"
#include "replay/kernels/shared/queue.h"

namespace epweave::replay::cpu {
namespace {

using math::bf16_from_float;
using math::float_from_bf16;
using math::float_from_fp16;
using math::fp16_from_float;
using math::wrap;

template <class S, class C, class Decode>
void load_as(const std::byte* from, std::int64_t stride, std::int64_t n, C* to, const Decode& decode) {
  const S* source = reinterpret_cast<const S*>(from);
  if (stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = math::convert<C>(decode(source[i]));
  } else if (stride == 0) {
    const C value = math::convert<C>(decode(source[0]));
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = math::convert<C>(decode(source[i * stride]));
  }
}

template <class S, class C, class Encode>
void store_as(const C* from, std::byte* to, std::int64_t stride, std::int64_t n, const Encode& encode) {
  S* target = reinterpret_cast<S*>(to);
  if (stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) target[i] = encode(from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) target[i * stride] = encode(from[i]);
  }
}

[[noreturn]] void refuse(DType dtype) {
  throw KernelError("no kernel computes with " + std::string(info(dtype).name));
}

}  // namespace

Compute compute_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint16:
    case DType::kUint32:
      return Compute::kInt;
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
      return Compute::kFloat;
    case DType::kFloat64:
      return Compute::kDouble;
    case DType::kComplex64:
      return Compute::kComplex;
    default:
      refuse(dtype);
  }
}

template <class C>
void load(const std::byte* from, DType dtype, std::int64_t stride, std::int64_t n, C* to) {
  const auto same = [](auto x) { return x; };
  switch (dtype) {
    case DType::kBool:
      return load_as<std::uint8_t>(from, stride, n, to, [](std::uint8_t x) { return x != 0 ? 1 : 0; });
    case DType::kUint8:
      return load_as<std::uint8_t>(from, stride, n, to, same);
    case DType::kInt8:
      return load_as<std::int8_t>(from, stride, n, to, same);
    case DType::kInt16:
      return load_as<std::int16_t>(from, stride, n, to, same);
    case DType::kUint16:
      return load_as<std::uint16_t>(from, stride, n, to, same);
    case DType::kInt32:
      return load_as<std::int32_t>(from, stride, n, to, same);
    case DType::kUint32:
      return load_as<std::uint32_t>(from, stride, n, to, same);
    case DType::kInt64:
      return load_as<std::int64_t>(from, stride, n, to, same);
    case DType::kBfloat16:
      if constexpr (std::is_same_v<C, float>)
        if (stride == 1) return float_from_bf16_run(n, to, reinterpret_cast<const std::uint16_t*>(from));
      return load_as<std::uint16_t>(from, stride, n, to, [](std::uint16_t x) { return float_from_bf16(x); });
    case DType::kFloat16:
      return load_as<std::uint16_t>(from, stride, n, to, [](std::uint16_t x) { return float_from_fp16(x); });
    case DType::kFloat32:
      return load_as<float>(from, stride, n, to, same);
    case DType::kFloat64:
      return load_as<double>(from, stride, n, to, same);
    case DType::kComplex64:
      return load_as<Complex>(from, stride, n, to, same);
    default:
      refuse(dtype);
  }
}

template <class C>
void store(const C* from, std::byte* to, DType dtype, std::int64_t stride, std::int64_t n) {
  switch (dtype) {
    case DType::kBool:
      return store_as<std::uint8_t>(from, to, stride, n,
                                    [](C x) { return static_cast<std::uint8_t>(x != C(0) ? 1 : 0); });
    case DType::kUint8:
      return store_as<std::uint8_t>(from, to, stride, n, [](C x) { return wrap<std::uint8_t>(x); });
    case DType::kInt8:
      return store_as<std::int8_t>(from, to, stride, n, [](C x) { return wrap<std::int8_t>(x); });
    case DType::kInt16:
      return store_as<std::int16_t>(from, to, stride, n, [](C x) { return wrap<std::int16_t>(x); });
    case DType::kUint16:
      return store_as<std::uint16_t>(from, to, stride, n, [](C x) { return wrap<std::uint16_t>(x); });
    case DType::kInt32:
      return store_as<std::int32_t>(from, to, stride, n, [](C x) { return wrap<std::int32_t>(x); });
    case DType::kUint32:
      return store_as<std::uint32_t>(from, to, stride, n, [](C x) { return wrap<std::uint32_t>(x); });
    case DType::kInt64:
      return store_as<std::int64_t>(from, to, stride, n, [](C x) { return wrap<std::int64_t>(x); });
    case DType::kBfloat16:
      if constexpr (std::is_same_v<C, float>)
        if (stride == 1) return bf16_from_float_run(n, reinterpret_cast<std::uint16_t*>(to), from);
      return store_as<std::uint16_t>(from, to, stride, n,
                                     [](C x) { return bf16_from_float(math::convert<float>(x)); });
    case DType::kFloat16:
      return store_as<std::uint16_t>(from, to, stride, n,
                                     [](C x) { return fp16_from_float(math::convert<float>(x)); });
    case DType::kFloat32:
      return store_as<float>(from, to, stride, n, [](C x) { return math::convert<float>(x); });
    case DType::kFloat64:
      return store_as<double>(from, to, stride, n, [](C x) { return math::convert<double>(x); });
    case DType::kComplex64:
      return store_as<Complex>(from, to, stride, n, [](C x) { return math::convert<Complex>(x); });
    default:
      refuse(dtype);
  }
}

template <class C>
Buffer<C> dense(const Tensor& tensor) {
  Buffer<C> values(static_cast<std::size_t>(tensor.numel()));
  C* to = values.data();
  const Walk<1> walk(tensor.sizes, {broadcast_operand(tensor, tensor.sizes)});
  walk.for_each_run([&](const std::array<std::byte*, 1>& at) {
    load<C>(at[0], tensor.dtype, walk.run_stride(0), walk.run_length(), to);
    to += walk.run_length();
  });
  return values;
}

template <class C>
void store_dense(const Buffer<C>& from, const Tensor& to) {
  EPWEAVE_CHECK(static_cast<std::int64_t>(from.size()) == to.numel());
  const C* source = from.data();
  const Walk<1> walk(to.sizes, {broadcast_operand(to, to.sizes)});
  walk.for_each_run([&](const std::array<std::byte*, 1>& at) {
    store<C>(source, at[0], to.dtype, walk.run_stride(0), walk.run_length());
    source += walk.run_length();
  });
}

#define EPWEAVE_INSTANTIATE(C)                                                     \
  template void load<C>(const std::byte*, DType, std::int64_t, std::int64_t, C*);  \
  template void store<C>(const C*, std::byte*, DType, std::int64_t, std::int64_t); \
  template Buffer<C> dense<C>(const Tensor&);                                      \
  template void store_dense<C>(const Buffer<C>&, const Tensor&);
EPWEAVE_INSTANTIATE(float)
EPWEAVE_INSTANTIATE(double)
EPWEAVE_INSTANTIATE(std::int64_t)
EPWEAVE_INSTANTIATE(Complex)
#undef EPWEAVE_INSTANTIATE

void broadcast_strides(const Tensor& tensor, std::span<const std::int64_t> sizes,
                       std::span<std::int64_t> strides) {
  if (tensor.rank() > sizes.size())
    throw KernelError("a tensor does not broadcast: it has too many dimensions");
  const std::size_t skip = sizes.size() - tensor.rank();
  std::fill(strides.begin(), strides.end(), 0);
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    if (tensor.sizes[d] == sizes[skip + d]) {
      strides[skip + d] = tensor.sizes[d] == 1 ? 0 : tensor.strides[d];
    } else if (tensor.sizes[d] != 1) {
      throw KernelError("sizes do not broadcast: " + std::to_string(tensor.sizes[d]) + " against " +
                        std::to_string(sizes[skip + d]));
    }
  }
}

Operand broadcast_operand(const Tensor& tensor, std::span<const std::int64_t> sizes) {
  Operand operand{tensor.bytes(), tensor.dtype, Extents(sizes.size())};
  broadcast_strides(tensor, sizes, operand.strides);
  return operand;
}

Extents broadcast_sizes(std::span<const Tensor* const> tensors) {
  Extents sizes;
  for (const Tensor* tensor : tensors) {
    if (tensor->rank() > sizes.size()) sizes.insert(sizes.begin(), tensor->rank() - sizes.size(), 1);
    for (std::size_t d = 0; d < tensor->rank(); ++d) {
      std::int64_t& size = sizes[sizes.size() - tensor->rank() + d];
      if (size == 1)
        size = tensor->sizes[d];
      else if (tensor->sizes[d] != 1 && tensor->sizes[d] != size)
        throw KernelError("sizes do not broadcast: " + std::to_string(tensor->sizes[d]) + " against " +
                          std::to_string(size));
    }
  }
  return sizes;
}

void copy_elements(const Tensor& from, const Tensor& to) {
  if (Queue* queue = to.storage->queue(); queue != nullptr)
    return queue->map({math::ElementOp::kCopy, from.dtype, to, {&from}, 1, Value()});
  if (from.dtype == to.dtype) {
    const Walk<2> walk(to.sizes, {broadcast_operand(to, to.sizes), broadcast_operand(from, to.sizes)});
    const std::size_t bytes = to.element_bytes();
    const std::int64_t n = walk.run_length();
    const auto step_to = walk.run_stride(0) * static_cast<std::int64_t>(bytes);
    const auto step_from = walk.run_stride(1) * static_cast<std::int64_t>(bytes);
    walk.for_each_run([&](const std::array<std::byte*, 2>& at) {
      if (walk.run_stride(0) == 1 && walk.run_stride(1) == 1) {
        std::memmove(at[0], at[1], static_cast<std::size_t>(n) * bytes);
        return;
      }
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(at[0] + i * step_to, at[1] + i * step_from, bytes);
    });
    return;
  }
  with_compute(from.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_runs<C, C, 1>(to, {&from},
                      [](std::int64_t n, C* result, const C* in) { std::copy(in, in + n, result); });
  });
}

void fill_elements(const Tensor& to, const Value& number) {
  // Of a bool it counts whether the number is 0, fractions included.
  if (to.dtype == DType::kBool && number.is<double>()) return fill_elements(to, Value(number.real() != 0));
  if (Queue* queue = to.storage->queue(); queue != nullptr)
    return queue->map({math::ElementOp::kFill, to.dtype, to, {}, 0, number});
  with_compute(to.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C value = number_as<C>(number);
    map_runs<C, C, 0>(to, {}, [&](std::int64_t n, C* result) { std::fill(result, result + n, value); });
  });
}

Tensor as_contiguous(KernelCall& call, const Tensor& tensor, DType dtype) {
  if (tensor.dtype == dtype && tensor.is_contiguous()) return tensor;
  Tensor copy = call.make(dtype, tensor.sizes);
  copy_elements(tensor, copy);
  return copy;
}

std::size_t checked_dim(std::int64_t dim, std::size_t rank) {
  const auto found = find_dimension(dim, std::max<std::size_t>(rank, 1));
  if (!found) throw KernelError("dimension " + std::to_string(dim) + " out of range");
  return *found;
}

// Elements that lie as they are computed with are read and written in place. A result that may lie
// in an input's memory is not: what is read must not change before it is.
template <class C>
constexpr DType kDTypeOf = DType::kInt64;
template <>
constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
constexpr DType kDTypeOf<Complex> = DType::kComplex64;

template <class C, class R, std::size_t N>
void map_each_run(const Tensor& out, const std::array<const Tensor*, N>& inputs,
                  const RunFunction<C, R, N>& f) {
  std::array<Operand, N + 1> operands;
  operands[0] = broadcast_operand(out, out.sizes);
  for (std::size_t k = 0; k < N; ++k) operands[k + 1] = broadcast_operand(*inputs[k], out.sizes);
  const Walk<N + 1> walk(out.sizes, std::move(operands));
  const auto lies_as = [&](std::size_t k, DType dtype) {
    return walk.dtype(k) == dtype && walk.run_stride(k) == 1;
  };
  const bool writes_in_place =
      lies_as(0, kDTypeOf<R>) && std::none_of(inputs.begin(), inputs.end(), [&](const Tensor* input) {
        return input->storage == out.storage;
      });
  std::array<std::array<C, kRun>, N> in;
  std::array<const C*, N> runs;
  std::array<R, kRun> result;
  walk.for_each_run([&](const std::array<std::byte*, N + 1>& at) {
    for (std::int64_t first = 0; first < walk.run_length(); first += kRun) {
      const std::int64_t n = std::min(kRun, walk.run_length() - first);
      const auto place = [&](std::size_t k) {
        return at[k] + first * walk.run_stride(k) * static_cast<std::int64_t>(info(walk.dtype(k)).bytes);
      };
      for (std::size_t k = 0; k < N; ++k) {
        runs[k] = in[k].data();
        if (lies_as(k + 1, kDTypeOf<C>))
          runs[k] = reinterpret_cast<const C*>(place(k + 1));
        else
          load<C>(place(k + 1), walk.dtype(k + 1), walk.run_stride(k + 1), n, in[k].data());
      }
      if (writes_in_place) {
        f(n, reinterpret_cast<R*>(place(0)), runs);
        continue;
      }
      f(n, result.data(), runs);
      store<R>(result.data(), place(0), walk.dtype(0), walk.run_stride(0), n);
    }
  });
}

#define EPWEAVE_MAP_EACH_RUN(C, R, N)                                                     \
  template void map_each_run<C, R, N>(const Tensor&, const std::array<const Tensor*, N>&, \
                                      const RunFunction<C, R, N>&);
#define EPWEAVE_MAPS_OF(C)      \
  EPWEAVE_MAP_EACH_RUN(C, C, 1) \
  EPWEAVE_MAP_EACH_RUN(C, C, 2) \
  EPWEAVE_MAP_EACH_RUN(C, C, 3)
#define EPWEAVE_TESTS_OF(C)                \
  EPWEAVE_MAP_EACH_RUN(C, std::int64_t, 1) \
  EPWEAVE_MAP_EACH_RUN(C, std::int64_t, 2)
EPWEAVE_MAPS_OF(float)
EPWEAVE_MAPS_OF(double)
EPWEAVE_MAPS_OF(std::int64_t)
EPWEAVE_MAPS_OF(Complex)
EPWEAVE_TESTS_OF(float)
EPWEAVE_TESTS_OF(double)
EPWEAVE_TESTS_OF(Complex)
#undef EPWEAVE_TESTS_OF
#undef EPWEAVE_MAPS_OF
#undef EPWEAVE_MAP_EACH_RUN

}  // namespace epweave::replay::cpu
