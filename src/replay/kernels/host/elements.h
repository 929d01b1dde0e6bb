// Walking strided tensors on the CPU, and the types in which the kernels compute.
//
// A kernel computes in one of four types, whatever is stored: float for the 16-bit floats and
// float32, double, int64 for integers and bool (results wrap when stored), complex<float>. Elements
// are loaded into runs of the compute type, mapped, and stored with correct rounding, so that an op
// is written once.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "replay/kernels/kernel.h"
#include "replay/kernels/math/elements.h"
#include "replay/values/block_cache.h"
#include "replay/values/merge_dimensions.h"

namespace epweave::replay::cpu {

using math::Complex;

using math::Compute;
Compute compute_of(DType dtype);  // throws KernelError for dtypes that no kernel computes in (float8, ...)

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<C>) with the compute type of a dtype.
template <class F>
decltype(auto) with_compute(DType dtype, F&& f) {
  switch (compute_of(dtype)) {
    case Compute::kFloat:
      return f(TypeTag<float>{});
    case Compute::kDouble:
      return f(TypeTag<double>{});
    case Compute::kInt:
      return f(TypeTag<std::int64_t>{});
    case Compute::kComplex:
      break;
  }
  return f(TypeTag<Complex>{});
}
// The same for float and double only; anything else is refused.
template <class F>
decltype(auto) with_floating(DType dtype, F&& f) {
  switch (compute_of(dtype)) {
    case Compute::kFloat:
      return f(TypeTag<float>{});
    case Compute::kDouble:
      return f(TypeTag<double>{});
    default:
      throw KernelError("the op is defined for floating-point tensors, not for " +
                        std::string(info(dtype).name));
  }
}

// Loads n elements, `stride` elements apart, converting as torch's cast does. C is a compute type.
template <class C>
void load(const std::byte* from, DType dtype, std::int64_t stride, std::int64_t n, C* to);
// Stores n elements, rounding to the nearest (ties to even), wrapping integers.
template <class C>
void store(const C* from, std::byte* to, DType dtype, std::int64_t stride, std::int64_t n);

template <class C>
C load_one(const Tensor& tensor) {
  C value{};
  load<C>(tensor.bytes(), tensor.dtype, 1, 1, &value);
  return value;
}

// A number of the call, or an element, as a compute type.
template <class C>
C number_as(const Value& value) {
  if (value.is<double>()) {
    if constexpr (std::is_same_v<C, std::int64_t>)
      return static_cast<std::int64_t>(value.real());
    else if constexpr (std::is_same_v<C, Complex>)
      return Complex(static_cast<float>(value.real()), 0.0f);
    else
      return static_cast<C>(value.real());
  }
  if constexpr (std::is_same_v<C, Complex>) {
    if (value.is<std::complex<double>>()) {
      const auto& pair = value.as<std::complex<double>>();
      return Complex(static_cast<float>(pair.real()), static_cast<float>(pair.imag()));
    }
    return Complex(static_cast<float>(value.integer()), 0.0f);
  } else {
    return static_cast<C>(value.integer());
  }
}

// One tensor of a walk: where its first element is and its strides (elements) over the walk's
// extents.
struct Operand {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  Extents strides;
};
// The tensor broadcast to `sizes` (aligned at the last dimension). Throws KernelError if it does
// not fit.
Operand broadcast_operand(const Tensor& tensor, std::span<const std::int64_t> sizes);
Extents broadcast_sizes(std::span<const Tensor* const> tensors);

// Walks N operands over common extents in row-major order: run after run of the last dimension,
// with neighbouring dimensions merged where every operand allows it.
template <std::size_t N>
class Walk {
 public:
  Walk(Extents sizes, std::array<Operand, N> operands)
      : sizes_(std::move(sizes)), operands_(std::move(operands)) {
    merge();
  }
  std::int64_t run_length() const { return sizes_.back(); }
  std::int64_t run_stride(std::size_t k) const { return operands_[k].strides.back(); }
  DType dtype(std::size_t k) const { return operands_[k].dtype; }

  // visit(const std::array<std::byte*, N>& at): the first elements of a run.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    for (std::int64_t size : sizes_)
      if (size == 0) return;
    const std::size_t outer = sizes_.size() - 1;
    std::array<std::byte*, N> at;
    std::array<std::int64_t, N> bytes;
    for (std::size_t k = 0; k < N; ++k) {
      at[k] = operands_[k].data;
      bytes[k] = info(operands_[k].dtype).bytes;
    }
    Extents index(outer, 0);
    while (true) {
      visit(at);
      std::size_t d = outer;
      for (; d-- > 0;) {
        for (std::size_t k = 0; k < N; ++k) at[k] += operands_[k].strides[d] * bytes[k];
        if (++index[d] < sizes_[d]) break;
        for (std::size_t k = 0; k < N; ++k) at[k] -= operands_[k].strides[d] * sizes_[d] * bytes[k];
        index[d] = 0;
        if (d == 0) return;
      }
      if (outer == 0) return;
    }
  }

 private:
  void merge() {
    std::array<std::int64_t*, N> strides;
    for (std::size_t k = 0; k < N; ++k) strides[k] = operands_[k].strides.data();
    const std::size_t rank = replay::merge_dimensions(sizes_, strides);
    sizes_.resize(rank);
    for (Operand& operand : operands_) operand.strides.resize(rank);
    if (rank > 0) return;
    sizes_ = {1};
    for (Operand& operand : operands_) operand.strides = {0};
  }

  Extents sizes_;
  std::array<Operand, N> operands_;
};

// Elements per run of buffers: fits the first-level cache.
inline constexpr std::int64_t kRun = 512;

// What computes a run: f(result, inputs of the run), in the compute type C. A reference, so that
// the walk over the runs is compiled once for all ops.
template <class C, class R, std::size_t N>
class RunFunction {
 public:
  template <class F>  // void(std::int64_t n, R* result, const C* in0, const C* in1, ..); outlives this
  explicit RunFunction(const F& f)
      : object_(&f),
        call_([](const void* object, std::int64_t n, R* result, const std::array<const C*, N>& in) {
          std::apply([&](auto... each) { (*static_cast<const F*>(object))(n, result, each...); }, in);
        }) {}
  void operator()(std::int64_t n, R* result, const std::array<const C*, N>& in) const {
    call_(object_, n, result, in);
  }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t, R*, const std::array<const C*, N>&);
};

// Calls f for each run of out's elements and the inputs', at most kRun of them at a time. Defined
// for the compute types, and results that are C or integers.
template <class C, class R, std::size_t N>
void map_each_run(const Tensor& out, const std::array<const Tensor*, N>& inputs,
                  const RunFunction<C, R, N>& f);

// out = map_run(out's elements from the inputs'), in the compute type C: map_run(n, result, in0,
// in1, ...) writes result[0..n).
template <class C, class R, std::size_t N, class MapRun>
void map_runs(const Tensor& out, const std::array<const Tensor*, N>& inputs, const MapRun& map_run) {
  map_each_run<C, R, N>(out, inputs, RunFunction<C, R, N>(map_run));
}

// out[i] = f(inputs[i]...).
template <class C, class R, std::size_t N, class F>
void map_elements(const Tensor& out, const std::array<const Tensor*, N>& inputs, const F& f) {
  map_runs<C, R, N>(out, inputs, [&](std::int64_t n, R* result, auto... in) {
    for (std::int64_t i = 0; i < n; ++i) result[i] = f(in[i]...);
  });
}

// Copies with conversion and broadcasting; the dtypes may differ.
void copy_elements(const Tensor& from, const Tensor& to);
// Sets every element.
void fill_elements(const Tensor& to, const Value& number);

// The elements in row-major order as a dense buffer of a compute type.
template <class C>
Buffer<C> dense(const Tensor& tensor);
// Writes a dense row-major buffer into a tensor.
template <class C>
void store_dense(const Buffer<C>& from, const Tensor& to);

// A row-major copy with another dtype, or the tensor itself if it is one already.
Tensor as_contiguous(KernelCall& call, const Tensor& tensor, DType dtype);

std::size_t checked_dim(std::int64_t dim, std::size_t rank);

}  // namespace epweave::replay::cpu
