#include "replay/kernels/device/scratch.h"

#include <algorithm>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {

DType computed_dtype(DType dtype) {
  switch (compute_of(dtype)) {
    case Compute::kFloat:
      return DType::kFloat32;
    case Compute::kDouble:
      return DType::kFloat64;
    case Compute::kInt:
      return DType::kInt64;
    case Compute::kComplex:
      break;
  }
  return DType::kComplex64;
}

Tensor Scratch::filled(DType dtype, Extents sizes, const Value& number) {
  Tensor tensor = make(dtype, std::move(sizes));
  cpu::fill_elements(tensor, number);
  return tensor;
}

Tensor Scratch::copied(const Tensor& tensor, DType dtype) {
  Tensor copy = make(dtype, tensor.sizes);
  cpu::copy_elements(tensor, copy);
  return copy;
}

Tensor Scratch::dense(const Tensor& tensor, DType dtype) {
  if (tensor.dtype == dtype && tensor.is_contiguous()) {
    Tensor same = tensor;
    same.strides = contiguous_strides(same.sizes);
    return same;
  }
  return copied(tensor, dtype);
}

void Scratch::map_into(const Tensor& out, math::ElementOp op, std::initializer_list<const Tensor*> in,
                       const Value& number) {
  MapRequest request{op, (*in.begin())->dtype, out, {}, in.size(), number};
  std::copy(in.begin(), in.end(), request.in.begin());
  launcher_.map(request);
}

Tensor Scratch::map(math::ElementOp op, std::initializer_list<const Tensor*> in, const Value& number) {
  const std::vector<const Tensor*> all(in);
  Tensor out = make((*in.begin())->dtype, cpu::broadcast_sizes(all));
  map_into(out, op, in, number);
  return out;
}

Tensor Scratch::sum_along(const Tensor& x, Along along, Sum sum) {
  EPWEAVE_CHECK(x.rank() == 2 && x.is_contiguous());
  const bool is_rows = along == Along::kRows;
  const std::int64_t count = x.sizes[is_rows ? 0 : 1], length = x.sizes[is_rows ? 1 : 0];
  Tensor out = is_rows ? make(x.dtype, {count, 1}) : make(x.dtype, {1, count});
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    const Tensor lanes = make(x.dtype, {count, math::kLanes});
    const RowsOf<C> rows{x.data<C>(), length, is_rows ? length : 1, is_rows ? 1 : count};
    launcher_.launch(LaneSumTask<C>{rows, count, lanes.data<C>()}, count * math::kLanes, {&x, &lanes});
    const C divisor = sum == Sum::kMean ? static_cast<C>(length) : C(0);
    launcher_.launch(LaneTotalTask<C>{lanes.data<C>(), out.data<C>(), divisor}, count, {&lanes, &out});
    // The mean of no elements is 0 / 0.
    if (sum == Sum::kMean && length == 0) {
      const Tensor none = filled(out.dtype, {}, Value(0.0));
      map_into(out, ElementOp::kDiv, {&out, &none});
    }
  });
  return out;
}
Tensor Scratch::sum_rows(const Tensor& x, Sum sum) {
  return sum_along(x, Along::kRows, sum);
}
Tensor Scratch::sum_columns(const Tensor& x) {
  return sum_along(x, Along::kColumns, Sum::kTotal);
}

Tensor Scratch::maximum_of_rows(const Tensor& x, NanRule nan) {
  EPWEAVE_CHECK(x.rank() == 2 && x.is_contiguous());
  Tensor out = make(x.dtype, {x.sizes[0], 1});
  with_float(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    const Tensor lanes = make(x.dtype, {x.sizes[0], math::kLanes});
    const RowsOf<C> rows{x.data<C>(), x.sizes[1], x.sizes[1], 1};
    launcher_.launch(LaneMaximumTask<C>{rows, lanes.data<C>(), nan}, x.sizes[0] * math::kLanes, {&x, &lanes});
    launcher_.launch(RowMaximumTask<C>{rows, lanes.data<C>(), out.data<C>()}, x.sizes[0], {&x, &lanes, &out});
  });
  return out;
}

void Scratch::scan_rows(const Tensor& x, ScanOp op) {
  EPWEAVE_CHECK(x.rank() == 2 && x.is_contiguous());
  const std::int64_t count = x.sizes[0], length = x.sizes[1];
  if (x.numel() == 0) return;
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    if constexpr (!math::is_int<C>) {
      launcher_.launch(CumulativeTask<C>{x.data<C>(), length, op}, count, {&x});
    } else {
      const std::int64_t tiles = (length + kScanTile - 1) / kScanTile;
      launcher_.launch(ScanTilesTask{x.data<C>(), length, tiles, op}, count * tiles, {&x});
      if (tiles == 1) return;
      const Tensor carries = make(DType::kInt64, {count, tiles});
      launcher_.launch(CarryTask{x.data<C>(), length, tiles, carries.data<C>(), op}, count, {&x, &carries});
      launcher_.launch(AddCarryTask{x.data<C>(), length, tiles, carries.data<C>(), op}, count * length,
                       {&x, &carries});
    }
  });
}

Scratch::Sorted Scratch::sort_rows(const Tensor& x, Direction direction) {
  EPWEAVE_CHECK(x.rank() == 2 && x.is_contiguous());
  const std::int64_t length = x.sizes[1];
  Sorted from{x, {}}, to{make(x.dtype, x.sizes), make(DType::kInt64, x.sizes)};
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    // The first pass also numbers a row of one element.
    for (std::int64_t run = 1; run < length || run == 1; run *= 2) {
      const bool is_first = from.indices.storage == nullptr;
      const std::int64_t* indices = is_first ? nullptr : from.indices.data<std::int64_t>();
      launcher_.launch(
          MergeTask<C>{from.values.data<C>(), indices, to.values.data<C>(), to.indices.data<std::int64_t>(),
                       length, run, direction == Direction::kDescending},
          x.numel(), {&from.values, is_first ? nullptr : &from.indices, &to.values, &to.indices});
      if (is_first) from = {make(x.dtype, x.sizes), make(DType::kInt64, x.sizes)};
      std::swap(from, to);
    }
  });
  return from;
}

Tensor store_result(KernelCall& call, std::size_t i, DType dtype, const Extents& sizes,
                    const Tensor& values) {
  Tensor out = call.make_result(i, dtype, sizes);
  Tensor shaped = values;
  shaped.sizes = sizes;
  shaped.strides = contiguous_strides(sizes);
  cpu::copy_elements(shaped, out);
  return out;
}

Tensor as_matrix(const Tensor& dense, std::int64_t rows, std::int64_t length) {
  EPWEAVE_CHECK(dense.is_contiguous() && dense.numel() == rows * length);
  return dense.view({rows, length}, {length, 1}, dense.offset);
}

Tensor with_dim_last(Tensor tensor, std::size_t dim) {
  if (tensor.rank() == 0) return tensor;
  const auto at = static_cast<std::ptrdiff_t>(dim);
  std::rotate(tensor.sizes.begin() + at, tensor.sizes.begin() + at + 1, tensor.sizes.end());
  std::rotate(tensor.strides.begin() + at, tensor.strides.begin() + at + 1, tensor.strides.end());
  return tensor;
}

}  // namespace epweave::replay::device
