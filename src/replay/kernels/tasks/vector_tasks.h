// Elementwise kernels for what real graphs launch most: the last dimension is dense, op and dtypes
// are template parameters, 16 bytes of memory are moved at a time. All else is MapTask's and
// CopyTask's (tasks.h).
//
// An index does several vectors of elements that lie side by side. Those that 32 neighbouring
// indices (a warp) do at the same time lie side by side too. C++17.
#pragma once

#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// Vectors of a tensor whose last dimension is dense: rows of `vectors` vectors each, in up to two
// dimensions, the second of `inner` rows. `all` is below 2^31 unless there is one row.
struct VectorRows {
  std::int64_t all;
  std::uint32_t vectors, inner;
  bool is_one_row;

  static constexpr std::uint64_t kWarp = 32;
  // Indices of a task, each of `each` vectors.
  std::int64_t indices(int each) const {
    const std::int64_t of_warp = static_cast<std::int64_t>(kWarp) * each;
    return (all + of_warp - 1) / of_warp * static_cast<std::int64_t>(kWarp);
  }
  // The number of vector k of an index; there is none if it is not below `all`.
  EPWEAVE_HD static std::int64_t number_of(std::int64_t index, int each, int k) {
    const auto i = static_cast<std::uint64_t>(index);
    return static_cast<std::int64_t>(
        (i / kWarp * static_cast<unsigned>(each) + static_cast<unsigned>(k)) * kWarp + i % kWarp);
  }
  // `vector`: in its row.
  struct Place {
    std::int64_t vector;
    std::uint32_t outer, inner;
  };
  EPWEAVE_HD Place place(std::int64_t number) const {
    if (is_one_row) return {number, 0, 0};
    const auto n = static_cast<std::uint32_t>(number);
    const std::uint32_t row = n / vectors;
    return {n - row * vectors, row / inner, row % inner};
  }
};
// One of the tensors: where its rows begin.
struct VectorOperand {
  void* data;
  std::int64_t strides[2];  // over the two dimensions of rows
  bool is_one;              // one element for a whole row

  EPWEAVE_HD std::int64_t row_at(const VectorRows::Place& place) const {
    return place.outer * strides[0] + place.inner * strides[1];
  }
};

// ---- maps ---------------------------------------------------------------------------------

// The element itself: a cast.
struct Same : math::AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return x;
  }
};

// Op(in...), or Op(number, in...) of an op that takes a number.
template <class Op, class C, class... In>
EPWEAVE_HD auto apply_op(int, C, In... in) -> decltype(Op::apply(in...)) {
  return Op::apply(in...);
}
template <class Op, class C, class... In>
EPWEAVE_HD auto apply_op(long, C number, In... in) -> decltype(Op::apply(number, in...)) {
  return Op::apply(number, in...);
}

// Of operands that have their elements one behind the other in the last dimension, or one for all
// of it.
template <int N>
struct VectorMap {
  VectorRows rows;
  std::int64_t length;  // of the last dimension
  VectorOperand out;
  VectorOperand in[static_cast<unsigned>(N)];
  Number number;
};

// out = Op(in...), all inputs of one dtype.
template <class Op, Stored kOut, Stored kIn, int N>
struct VectorMapTask : VectorMap<N> {
  using In = typename StoredElement<kIn>::Type;
  using Out = typename StoredElement<kOut>::Type;
  using C = typename StoredElement<kIn>::Computed;
  static constexpr ElementOp kOp = math::code_of<Op>;
  static constexpr Stored kOutStored = kOut, kInStored = kIn;
  static constexpr int kInputs = N;
  static constexpr std::size_t kIns = N, kHeld = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
  static constexpr int kLength = static_cast<int>(kHeld);  // elements of a vector
  static constexpr int kVectors = 2;                       // of an index
  static constexpr std::size_t kEach = kVectors;

  EPWEAVE_HD void run(std::int64_t index) const {
    Held<In> held[kEach][kIns] = {};
    VectorRows::Place places[kEach] = {};
    EPWEAVE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = VectorRows::number_of(index, kVectors, v);
      if (at >= this->rows.all) continue;
      places[v] = this->rows.place(at);
      EPWEAVE_UNROLL
      for (int k = 0; k < N; ++k) load(k, places[v], held[v][k]);
    }
    const C given = this->number.template as<C>();
    EPWEAVE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (VectorRows::number_of(index, kVectors, v) >= this->rows.all) return;
      Held<Out> results;
      EPWEAVE_UNROLL
      for (int p = 0; p < kLength; ++p) {
        C result = computed(held[v][0], p);
        if constexpr (N == 1)
          result = apply_op<Op>(0, given, result);
        else
          result = apply_op<Op>(0, given, result, computed(held[v][1], p));
        math::store_element(&results.at[p], kOut, 0, result);
      }
      store(places[v], results);
    }
  }

 private:
  template <class Element>
  using Held = Vector<Element, kHeld>;
  EPWEAVE_HD static C computed(const Held<In>& vector, int p) {
    return math::load_element<C>(&vector.at[p], kIn, 0);
  }

  EPWEAVE_HD void load(int k, const VectorRows::Place& place, Held<In>& to) const {
    const std::int64_t first = place.vector * kLength;
    const In* from = static_cast<const In*>(this->in[k].data) + this->in[k].row_at(place);
    if (this->in[k].is_one) {
      const In one = *from;
      EPWEAVE_UNROLL
      for (int p = 0; p < kLength; ++p) to.at[p] = one;
      return;
    }
    from += first;
    if (first + kLength <= this->length && is_aligned<Held<In>>(from)) {
      to = *reinterpret_cast<const Held<In>*>(from);
      return;
    }
    EPWEAVE_UNROLL
    for (int p = 0; p < kLength; ++p) to.at[p] = first + p < this->length ? from[p] : In(0);
  }
  EPWEAVE_HD void store(const VectorRows::Place& place, const Held<Out>& from) const {
    const std::int64_t first = place.vector * kLength;
    Out* to = static_cast<Out*>(this->out.data) + this->out.row_at(place) + first;
    if (first + kLength <= this->length && is_aligned<Held<Out>>(to)) {
      store_vector(reinterpret_cast<Held<Out>*>(to), from);
      return;
    }
    EPWEAVE_UNROLL
    for (int p = 0; p < kLength; ++p)
      if (first + p < this->length) to[p] = from.at[p];
  }
};

// X(name, type): the maps with most elements in the graphs of DeepSeek-V3, Qwen3 and Llama 3;
// the last two are steps of ops that are composed of maps.
// clang-format off
#define EPWEAVE_VECTOR_MAPS(X) \
  X(CastBfloat16ToFloat32, VectorMapTask<Same, Stored::kFloat32, Stored::kBfloat16, 1>) \
  X(CastFloat32ToBfloat16, VectorMapTask<Same, Stored::kBfloat16, Stored::kFloat32, 1>) \
  X(AddBfloat16, VectorMapTask<math::AddScaled, Stored::kBfloat16, Stored::kBfloat16, 2>) \
  X(AddFloat32, VectorMapTask<math::AddScaled, Stored::kFloat32, Stored::kFloat32, 2>) \
  X(MulBfloat16, VectorMapTask<math::Mul, Stored::kBfloat16, Stored::kBfloat16, 2>) \
  X(MulFloat32, VectorMapTask<math::Mul, Stored::kFloat32, Stored::kFloat32, 2>) \
  X(MulComplex64, VectorMapTask<math::Mul, Stored::kComplex64, Stored::kComplex64, 2>) \
  X(SiluBfloat16, VectorMapTask<math::Silu, Stored::kBfloat16, Stored::kBfloat16, 1>) \
  X(SiluBackwardBfloat16, VectorMapTask<math::SiluBackward, Stored::kBfloat16, Stored::kBfloat16, 2>) \
  X(DifferenceFloat32, VectorMapTask<math::Difference, Stored::kFloat32, Stored::kFloat32, 2>) \
  X(ExpFloat32, VectorMapTask<math::Exp, Stored::kFloat32, Stored::kFloat32, 1>)
// clang-format on

// ---- copies and fills ---------------------------------------------------------------------

using Bytes16 = Vector<std::uint64_t, 2>;

// Rows that are a whole number of units of 16, 8, 4 or 2 bytes, at multiples of them, each a
// vector. Strides count units.
struct UnitCopy {
  VectorRows rows;
  VectorOperand to, from;
};
template <class Unit>
struct UnitCopyTask : UnitCopy {
  static constexpr int kVectors = 4;
  static constexpr std::size_t kEach = kVectors;

  EPWEAVE_HD void run(std::int64_t index) const {
    Unit held[kEach] = {};
    VectorRows::Place places[kEach] = {};
    EPWEAVE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t number = VectorRows::number_of(index, kVectors, v);
      if (number >= rows.all) continue;
      places[v] = rows.place(number);
      held[v] = static_cast<const Unit*>(from.data)[from.row_at(places[v]) + places[v].vector];
    }
    EPWEAVE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (VectorRows::number_of(index, kVectors, v) >= rows.all) return;
      static_cast<Unit*>(to.data)[to.row_at(places[v]) + places[v].vector] = held[v];
    }
  }
};

// The same unit of 16 bytes everywhere.
struct UnitFillTask {
  VectorRows rows;
  VectorOperand to;
  Bytes16 unit;
  static constexpr int kVectors = 4;

  EPWEAVE_HD void run(std::int64_t index) const {
    EPWEAVE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t number = VectorRows::number_of(index, kVectors, v);
      if (number >= rows.all) return;
      const VectorRows::Place place = rows.place(number);
      static_cast<Bytes16*>(to.data)[to.row_at(place) + place.vector] = unit;
    }
  }
};

}  // namespace epweave::replay::tasks
