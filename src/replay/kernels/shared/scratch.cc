#include "replay/kernels/shared/scratch.h"

#include <numeric>

#include "replay/kernels/host/sum.h"

namespace epweave::replay::shared {
namespace {

using tasks::RowsOf;

// Elements of a block on the CPU: a few matrices of as many float32 lie in a core's cache.
constexpr std::int64_t kBlockElements = 16384;

// The dimensions [from, end) as one: its extent and stride, or none where the strides do not allow
// it.
struct Merged {
  std::int64_t extent = 1, stride = 1;
};
std::optional<Merged> merge(const Tensor& tensor, std::size_t from, std::size_t end) {
  Merged merged;
  for (std::size_t d = end; d-- > from;) {
    if (tensor.sizes[d] == 1) continue;
    if (merged.extent == 1)
      merged.stride = tensor.strides[d];
    else if (tensor.strides[d] != merged.stride * merged.extent)
      return std::nullopt;
    merged.extent *= tensor.sizes[d];
  }
  return merged;
}
Rows count_rows(const Tensor& tensor, std::size_t split) {
  return {tensor,
          count_elements(std::span(tensor.sizes).first(split)),
          count_elements(std::span(tensor.sizes).subspan(split)),
          {}};
}

// A row-major tensor of as many elements in other sizes.
Tensor reshaped(const Tensor& dense, const Extents& sizes) {
  EPWEAVE_CHECK(dense.is_contiguous());
  return dense.view(sizes, contiguous_strides(sizes), dense.offset);
}

bool is_matrix(const Tensor& x) {
  return x.rank() == 2 && x.is_contiguous();
}

}  // namespace

std::optional<Tensor> find_matrix(const Tensor& tensor, std::size_t split) {
  if (tensor.numel() == 0) return std::nullopt;
  const std::optional<Merged> rows = merge(tensor, 0, split), row = merge(tensor, split, tensor.rank());
  if (!rows || !row) return std::nullopt;
  return tensor.view({rows->extent, row->extent}, {rows->stride, row->stride}, tensor.offset);
}

DType computed_dtype(DType dtype) {
  switch (cpu::compute_of(dtype)) {
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

// ---- rows ---------------------------------------------------------------------------------

Tensor Block::part_of(const Rows& rows) const {
  const Tensor& matrix = rows.matrix;
  return matrix.view({count_, rows.length}, matrix.strides, matrix.offset + first_ * matrix.strides[0]);
}
Tensor Block::load(const Rows& rows, DType dtype) const {
  if (scratch_.queue() == nullptr) return scratch_.dense(part_of(rows), dtype);
  return as_matrix(scratch_.dense(rows.tensor, dtype), rows.count, rows.length);
}
Tensor Block::load_copy(const Rows& rows, DType dtype) const {
  if (scratch_.queue() == nullptr) return scratch_.copied(part_of(rows), dtype);
  return as_matrix(scratch_.copied(rows.tensor, dtype), rows.count, rows.length);
}
void Block::store(const Tensor& values, const Rows& rows) const {
  if (scratch_.queue() == nullptr) return cpu::copy_elements(values, part_of(rows));
  cpu::copy_elements(reshaped(values, rows.tensor.sizes), rows.tensor);
}

Rows Scratch::rows_of(const Tensor& tensor, std::size_t split) {
  Rows rows = count_rows(tensor, split);
  const std::optional<Tensor> matrix = find_matrix(tensor, split);
  if (queue_ != nullptr) {
    if (matrix) rows.matrix = *matrix;
    return rows;
  }
  rows.matrix = matrix ? *matrix : as_matrix(copied(tensor, tensor.dtype), rows.count, rows.length);
  return rows;
}
Rows Scratch::rows_for(const Tensor& tensor, std::size_t split) {
  Rows rows = count_rows(tensor, split);
  const std::optional<Tensor> matrix = find_matrix(tensor, split);
  if (queue_ != nullptr) {
    if (matrix) rows.matrix = *matrix;
    return rows;
  }
  rows.matrix = matrix ? *matrix : make(tensor.dtype, {rows.count, rows.length});
  return rows;
}
void Scratch::finish(const Rows& written) {
  if (queue_ != nullptr || written.matrix.storage == written.tensor.storage) return;
  cpu::copy_elements(reshaped(written.matrix, written.tensor.sizes), written.tensor);
}
std::int64_t Scratch::rows_of_a_block(const Rows& rows) const {
  if (queue_ != nullptr) return std::max<std::int64_t>(rows.count, 1);
  return std::max<std::int64_t>(kBlockElements / std::max<std::int64_t>(rows.length, 1), 1);
}

// ---- tensors ------------------------------------------------------------------------------

Tensor Scratch::make(DType dtype, Extents sizes) {
  if (queue_ != nullptr) return call_.make(dtype, std::move(sizes));
  return make_tensor(host_, dtype, std::move(sizes));
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

void Scratch::throw_fault() const {
  if (fault_.code != 0) throw KernelError(describe_fault(fault_));
}

// ---- sums ---------------------------------------------------------------------------------

Tensor Scratch::sum_on_device(const Tensor& x, Along along, Sum sum) {
  const bool is_rows = along == Along::kRows;
  const std::int64_t count = x.sizes[is_rows ? 0 : 1], length = x.sizes[is_rows ? 1 : 0];
  const std::int64_t tiles = math::count_sum_tiles(length);
  Tensor out = make(x.dtype, {count, tiles});
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    const Tensor lanes = make(x.dtype, {count * tiles, math::kLanes});
    const RowsOf<C> rows{x.data<C>(), length, is_rows ? length : 1, is_rows ? 1 : count};
    launch(tasks::LaneSumTask<C>{rows, count, tiles, lanes.data<C>()}, lanes.numel(), {&x, &lanes});
    const C divisor = sum == Sum::kMean && tiles == 1 ? static_cast<C>(length) : C(0);
    launch(tasks::LaneTotalTask<C>{lanes.data<C>(), out.data<C>(), divisor}, count * tiles, {&lanes, &out});
  });
  // The mean of no elements is 0 / 0.
  if (sum == Sum::kMean && length == 0)
    map_into<math::Div>(out, Value(), out, filled(out.dtype, {}, Value(0.0)));
  const Tensor sums = tiles > 1 ? add_tiles(out, length, sum) : out;
  return is_rows ? sums : sums.view({1, count}, {count, 1}, sums.offset);
}
Tensor Scratch::add_tiles(const Tensor& sums, std::int64_t length, Sum sum) {
  const Tensor out = sum_rows(sums);
  if (sum == Sum::kMean)
    map_into<math::Div>(out, Value(), out, filled(out.dtype, {}, Value(static_cast<double>(length))));
  return out;
}
Tensor Scratch::sum_rows(const Tensor& x, Sum sum) {
  EPWEAVE_CHECK(is_matrix(x));
  if (queue_ != nullptr) return sum_on_device(x, Along::kRows, sum);
  const std::int64_t length = x.sizes[1];
  Tensor out = make(x.dtype, {x.sizes[0], 1});
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    for (std::int64_t i = 0; i < x.sizes[0]; ++i) {
      const C total = cpu::ordered_sum(x.data<C>() + i * length, length);
      if constexpr (math::is_int<C>)
        out.data<C>()[i] = total;
      else
        out.data<C>()[i] = sum == Sum::kMean ? total / static_cast<C>(length) : total;
    }
  });
  return out;
}
Tensor Scratch::sum_columns(const Tensor& x) {
  EPWEAVE_CHECK(is_matrix(x));
  if (queue_ != nullptr) return sum_on_device(x, Along::kColumns, Sum::kTotal);
  Tensor out = make(x.dtype, {1, x.sizes[1]});
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    cpu::ordered_column_sums(x.data<C>(), x.sizes[0], x.sizes[1], out.data<C>());
  });
  return out;
}

// ---- extremes -----------------------------------------------------------------------------

namespace {

template <class C>
C largest(const C* x, std::int64_t n, NanRule nan) {
  C best = -math::infinity<C>();
  for (std::int64_t i = 0; i < n; ++i) {
    if (nan == NanRule::kWins && x[i] != x[i]) return x[i];
    best = x[i] > best ? x[i] : best;
  }
  return best;
}

template <class C>
std::int64_t find_in_row(const C* x, std::int64_t n, RowOp op) {
  if (op == RowOp::kAll || op == RowOp::kAny) {
    const bool stops = op == RowOp::kAny;
    for (std::int64_t i = 0; i < n; ++i)
      if ((x[i] != C(0)) == stops) return stops ? 1 : 0;
    return stops ? 0 : 1;
  }
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return i;
    if (tasks::is_better(op, x[i], x[best])) best = i;
  }
  return best;
}

}  // namespace

Tensor Scratch::maximum_of_rows(const Tensor& x, NanRule nan) {
  EPWEAVE_CHECK(is_matrix(x));
  const std::int64_t count = x.sizes[0], length = x.sizes[1];
  Tensor out = make(x.dtype, {count, 1});
  with_float(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    if (queue_ == nullptr) {
      for (std::int64_t i = 0; i < count; ++i)
        out.data<C>()[i] = largest(x.data<C>() + i * length, length, nan);
      return;
    }
    const Tensor lanes = make(x.dtype, {count, math::kLanes});
    const RowsOf<C> rows{x.data<C>(), length, length, 1};
    launch(tasks::LaneMaximumTask<C>{rows, lanes.data<C>(), nan}, count * math::kLanes, {&x, &lanes});
    launch(tasks::RowMaximumTask<C>{rows, lanes.data<C>(), out.data<C>()}, count, {&x, &lanes, &out});
  });
  return out;
}

Scratch::Found Scratch::find_in_rows(const Tensor& x, RowOp op) {
  EPWEAVE_CHECK(is_matrix(x));
  const std::int64_t count = x.sizes[0], length = x.sizes[1];
  const bool is_extreme = op == RowOp::kLargest || op == RowOp::kSmallest;
  if (is_extreme && length == 0 && count != 0) throw KernelError("the extreme of no elements");
  const Found found{is_extreme ? make(x.dtype, {count, 1}) : Tensor(), make(DType::kInt64, {count, 1})};
  auto* positions = found.positions.data<std::int64_t>();
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    C* values = is_extreme ? found.values.data<C>() : nullptr;
    if (queue_ == nullptr) {
      for (std::int64_t i = 0; i < count; ++i) {
        const C* row = x.data<C>() + i * length;
        positions[i] = find_in_row(row, length, op);
        if (is_extreme) values[i] = row[positions[i]];
      }
      return;
    }
    const std::int64_t tiles = std::max<std::int64_t>((length + tasks::kFindTile - 1) / tasks::kFindTile, 1);
    const Tensor of_tiles = make(DType::kInt64, {count, tiles});
    auto* in_tiles = of_tiles.data<std::int64_t>();
    const RowsOf<C> rows{x.data<C>(), length, length, 1};
    launch(tasks::FindInTileTask<C>{rows, tiles, in_tiles, op}, of_tiles.numel(), {&x, &of_tiles});
    launch(tasks::FindAmongTilesTask<C>{rows, tiles, in_tiles, values, positions, op}, count,
           {&x, &of_tiles, is_extreme ? &found.values : nullptr, &found.positions});
  });
  return found;
}

// ---- scans and sorts ----------------------------------------------------------------------

void Scratch::scan_rows(const Tensor& x, ScanOp op) {
  EPWEAVE_CHECK(is_matrix(x));
  const std::int64_t count = x.sizes[0], length = x.sizes[1];
  if (x.numel() == 0) return;
  with_any(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    C* data = x.data<C>();
    if (!math::is_int<C> || queue_ == nullptr)
      return launch(tasks::CumulativeTask<C>{data, length, op}, count, {&x});
    if constexpr (math::is_int<C>) {
      const std::int64_t tiles = (length + tasks::kScanTile - 1) / tasks::kScanTile;
      const Tensor of_tiles = make(DType::kInt64, {count, tiles});
      auto* totals = of_tiles.data<std::int64_t>();
      launch(tasks::ScanTilesTask{data, length, tiles, totals, op}, count * tiles, {&x, &of_tiles});
      if (tiles == 1) return;
      scan_rows(of_tiles, op);
      launch(tasks::AddCarryTask{data, length, tiles, totals, op}, count * length, {&x, &of_tiles});
    }
  });
}

namespace {

template <class C>
void sort_row(const C* x, std::int64_t n, Scratch::Direction direction, std::int64_t* order) {
  std::iota(order, order + n, std::int64_t{0});
  const auto is_less = [&](std::int64_t a, std::int64_t b) {
    return tasks::MergeTask<C>::is_less(x[a], x[b]);
  };
  if (direction == Scratch::Direction::kAscending)
    std::stable_sort(order, order + n, is_less);
  else
    std::stable_sort(order, order + n, [&](std::int64_t a, std::int64_t b) { return is_less(b, a); });
}

}  // namespace

Scratch::Sorted Scratch::sort_rows(const Tensor& x, Direction direction) {
  EPWEAVE_CHECK(is_matrix(x));
  const std::int64_t length = x.sizes[1];
  Sorted from{x, {}}, to{make(x.dtype, x.sizes), make(DType::kInt64, x.sizes)};
  with_real(x.dtype, [&](auto zero) {
    using C = decltype(zero);
    if (queue_ == nullptr) {
      for (std::int64_t first = 0; first < x.numel(); first += length) {
        const C* row = x.data<C>() + first;
        std::int64_t* order = to.indices.data<std::int64_t>() + first;
        sort_row(row, length, direction, order);
        for (std::int64_t i = 0; i < length; ++i) to.values.data<C>()[first + i] = row[order[i]];
      }
      std::swap(from, to);
      return;
    }
    using Task = tasks::MergeTask<C>;
    // The first pass also numbers a row of one element.
    for (std::int64_t run = Task::kFirstRun / 2; run < length || run < Task::kFirstRun; run *= 2) {
      const bool is_first = from.indices.storage == nullptr;
      const std::int64_t* indices = is_first ? nullptr : from.indices.data<std::int64_t>();
      launch(Task{from.values.data<C>(), indices, to.values.data<C>(), to.indices.data<std::int64_t>(),
                  length, run, direction == Direction::kDescending},
             x.numel(), {&from.values, is_first ? nullptr : &from.indices, &to.values, &to.indices});
      if (is_first && run * 2 < length) from = {make(x.dtype, x.sizes), make(DType::kInt64, x.sizes)};
      std::swap(from, to);
    }
  });
  return from;
}

// ---- results ------------------------------------------------------------------------------

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

}  // namespace epweave::replay::shared
