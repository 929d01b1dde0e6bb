// What kernels compute, as plain structs that are copied to a device: one source for CUDA and for
// the host.
//
// A task is a number of independent indices; `run(i)` does the work of index i, and no index reads
// what another writes. On a GPU a thread runs one index; on the CPU, and on the emulated device, it
// is a loop. So their indexing and their arithmetic are tested without a GPU. The orders that bits
// depend on are those of the CPU's kernels (kernels/host/kernels.h); here are no float atomics and
// nothing else that depends on timing. C++17.
#pragma once

#include "replay/kernels/math/element_ops.h"
#include "replay/kernels/math/sum_order.h"
#include "replay/kernels/tasks/fault.h"

// Arrays of a GPU's thread stay in registers only if the loops over them are unrolled.
#if defined(__CUDA_ARCH__)
#define EPWEAVE_UNROLL _Pragma("unroll")
#define EPWEAVE_UNROLL_BY_2 _Pragma("unroll 2")
#define EPWEAVE_NO_UNROLL _Pragma("unroll 1")
#else
#define EPWEAVE_UNROLL
#define EPWEAVE_UNROLL_BY_2
#define EPWEAVE_NO_UNROLL
#endif

namespace epweave::replay::tasks {

using math::ElementOp;
using math::Stored;

inline constexpr int kMaxRank = 10;

// A GPU's multiprocessors (H100, H200).
inline constexpr std::int64_t kMultiprocessors = 132;

using math::Compute;

// A number in any compute type.
struct Number {
  double real;
  std::int64_t whole;
  float re, im;

  template <class C>
  EPWEAVE_HD C as() const {
    if constexpr (math::is_int<C>)
      return whole;
    else if constexpr (math::is_complex_type<C>)
      return math::Complex(re, im);
    else
      return static_cast<C>(real);
  }
};

// Extents in row-major order, and the strides (elements) of up to four tensors over them.
struct Shape {
  int rank;
  bool is_small;  // its elements are numbered by 31 bits: a GPU divides 32 bits several times as fast as 64
  std::int64_t sizes[kMaxRank];
};
struct Strided {
  void* data;  // the first element
  std::int64_t strides[kMaxRank];
  Stored stored;
};

// An element as it is stored, and what it is computed in: of dtypes that kernels know when they are
// compiled.
template <Stored kStored>
struct StoredElement;
template <>
struct StoredElement<Stored::kBfloat16> {
  using Type = std::uint16_t;
  using Computed = float;
};
template <>
struct StoredElement<Stored::kFloat16> {
  using Type = std::uint16_t;
  using Computed = float;
};
template <>
struct StoredElement<Stored::kFloat32> {
  using Type = float;
  using Computed = float;
};
template <>
struct StoredElement<Stored::kFloat64> {
  using Type = double;
  using Computed = double;
};
template <>
struct StoredElement<Stored::kComplex64> {
  using Type = math::Complex;
  using Computed = math::Complex;
};

// Elements that are read or written at once.
template <class Element, std::size_t kCount>
struct alignas(kCount * sizeof(Element)) Vector {
  Element at[kCount];
};
template <class V>
EPWEAVE_HD bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(V) == 0;
}

// Stores 16 or 8 bytes at once. By instruction: nvcc would merge the store with one of the same
// elements one by one.
template <class V>
EPWEAVE_HD void store_vector(V* to, const V& from) {
#ifdef __CUDA_ARCH__
  static_assert(sizeof(V) == 16 || sizeof(V) == 8);
  std::uint32_t bits[sizeof(V) / 4];
  std::memcpy(bits, &from, sizeof bits);
  const std::size_t address = __cvta_generic_to_global(to);
  if constexpr (sizeof(V) == 16)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(bits[0]), "r"(bits[1]),
                 "r"(bits[2]), "r"(bits[3])
                 : "memory");
  else
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(bits[0]), "r"(bits[1]) : "memory");
#else
  *to = from;
#endif
}

// Where element `index` in row-major order of the shape is in the tensor.
template <class Index>
EPWEAVE_HD std::int64_t offset_by(const Shape& shape, const std::int64_t* strides, Index index) {
  std::int64_t offset = 0;
  for (int d = shape.rank - 1; d > 0; --d) {
    const auto size = static_cast<Index>(shape.sizes[d]);
    offset += static_cast<std::int64_t>(index % size) * strides[d];
    index /= size;
  }
  return shape.rank == 0 ? 0 : offset + static_cast<std::int64_t>(index) * strides[0];
}
EPWEAVE_HD std::int64_t offset_of(const Shape& shape, const std::int64_t* strides, std::int64_t index) {
  return shape.is_small ? offset_by(shape, strides, static_cast<std::uint32_t>(index))
                        : offset_by(shape, strides, index);
}

// ---- elementwise --------------------------------------------------------------------------

// out[i] = op(in0[i], ...); index i is the i-th element of the shape.
template <int N>
struct MapTask {
  Shape shape;
  Strided out;
  Number number;
  FaultSink sink;
  ElementOp op;
  Compute compute;
  Strided in[N == 0 ? 1u : static_cast<unsigned>(N)];  // last: see clear_padding of shared/launch.h

  EPWEAVE_HD void run(std::int64_t i) const {
    switch (compute) {
      case Compute::kFloat:
        return run_as<float>(i);
      case Compute::kDouble:
        return run_as<double>(i);
      case Compute::kInt:
        return run_as<std::int64_t>(i);
      case Compute::kComplex:
        return run_as<math::Complex>(i);
    }
  }

 private:
  template <class C>
  EPWEAVE_HD C load(int k, std::int64_t i) const {
    return math::load_element<C>(in[k].data, in[k].stored, offset_of(shape, in[k].strides, i));
  }
  template <class C>
  EPWEAVE_HD void run_as(std::int64_t i) const {
    math::ElementArgs<C> args{number.as<C>(), C(0), C(0), C(0)};
    C result = args.number;
    if constexpr (N == 1) {
      args.x = load<C>(0, i);
      result = math::apply_unary(op, args);
    } else if constexpr (N == 2) {
      args.x = load<C>(0, i);
      args.y = load<C>(1, i);
      if constexpr (math::is_int<C>)
        if (args.y == 0 && math::divides_integers(op)) sink.raise(FaultCode::kDivision, args.x, 0);
      result = math::apply_binary(op, args);
    } else if constexpr (N == 3) {
      args.x = load<C>(0, i);
      args.y = load<C>(1, i);
      args.z = load<C>(2, i);
      result = math::apply_ternary(op, args);
    }
    math::store_element(out.data, out.stored, offset_of(shape, out.strides, i), result);
  }
};

// An element's bits; 16 bytes are no dtype that kernels know.
EPWEAVE_HD void copy_bits(void* to, std::int64_t to_at, const void* from, std::int64_t from_at, int bytes) {
  switch (bytes) {
    case 1:
      return math::write_stored(to, to_at, math::read_stored<std::uint8_t>(from, from_at));
    case 2:
      return math::write_stored(to, to_at, math::read_stored<std::uint16_t>(from, from_at));
    case 4:
      return math::write_stored(to, to_at, math::read_stored<std::uint32_t>(from, from_at));
    default:
      return math::write_stored(to, to_at, math::read_stored<std::uint64_t>(from, from_at));
  }
}

// Copies elements of equal dtypes.
struct CopyTask {
  Shape shape;
  Strided to, from;
  int bytes;  // of an element

  EPWEAVE_HD void run(std::int64_t i) const {
    copy_bits(to.data, offset_of(shape, to.strides, i), from.data, offset_of(shape, from.strides, i), bytes);
  }
};

// start + i * step, as int64 or double.
struct ProgressionTask {
  Strided out;
  Number start, step;
  bool is_whole;

  EPWEAVE_HD void run(std::int64_t i) const {
    if (is_whole)
      math::store_element(out.data, out.stored, i * out.strides[0], start.whole + i * step.whole);
    else
      math::store_element(out.data, out.stored, i * out.strides[0],
                          start.real + static_cast<double>(i) * step.real);
  }
};

// Fails if the one element is 0.
struct AssertTask {
  const void* data;
  Stored stored;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t) const {
    if (math::load_element<double>(data, stored, 0) == 0) sink.raise(FaultCode::kAssertion, 0, 0);
  }
};

}  // namespace epweave::replay::tasks
