#include "replay/kernels/shared/whole_rows.h"

namespace epweave::replay::shared {
namespace {

bool is_computed_in_float(DType dtype) {
  return computed_dtype(dtype) == DType::kFloat32;
}
tasks::RowPlace place_of(const Tensor& tensor, std::int64_t row_stride) {
  return {tensor.bytes(), row_stride, stored_of(tensor.dtype)};
}

// Of `rows`, one element behind the other, into `out`, one row's behind the other's.
void sum_dense_rows(Scratch& scratch, const Tensor& rows, const Tensor& out, float divisor) {
  const tasks::RowSum op{{rows.sizes[1]}, out.data<float>(), divisor};
  const bool is_launched = launch_rows<tasks::RowSum>(
      scratch, op, {{place_of(rows, rows.strides[0])}, {}, rows.sizes[0]}, {&rows, &out});
  EPWEAVE_CHECK(is_launched);
}
// The sums of the tiles of each row: [rows, tiles].
Tensor sum_tiles(Scratch& scratch, const Tensor& rows) {
  const std::int64_t count = rows.sizes[0], length = rows.sizes[1], stride = rows.strides[0];
  const std::int64_t whole = length / math::kSumTile, rest = length % math::kSumTile,
                     tiles = math::count_sum_tiles(length);
  const Tensor sums = scratch.make(DType::kFloat32, {count, tiles});
  const auto add = [&](std::int64_t first, std::int64_t how_many, std::int64_t of, std::int64_t to) {
    sum_dense_rows(scratch, rows.view({how_many, of}, {math::kSumTile, 1}, rows.offset + first),
                   sums.view({how_many, 1}, {1, 1}, sums.offset + to), 0.0f);
  };
  if (rest == 0 && (count == 1 || stride == length)) {
    add(0, count * tiles, math::kSumTile, 0);
    return sums;
  }
  for (std::int64_t row = 0; row < count; ++row) {
    add(row * stride, whole, math::kSumTile, row * tiles);
    if (rest != 0) add(row * stride + whole * math::kSumTile, 1, rest, row * tiles + whole);
  }
  return sums;
}

}  // namespace

std::optional<tasks::RowPlace> find_place(const Rows& rows) {
  const Tensor& matrix = rows.matrix;
  if (matrix.storage == nullptr || !is_computed_in_float(matrix.dtype)) return std::nullopt;
  if (matrix.strides[1] != 1 && matrix.sizes[1] != 1) return std::nullopt;
  return place_of(matrix, matrix.strides[0]);
}
std::optional<tasks::RowPlace> find_place_of_all(const Tensor& row) {
  if (!is_computed_in_float(row.dtype) || !row.is_contiguous()) return std::nullopt;
  return place_of(row, 0);
}

std::optional<Tensor> sum_in_place(Scratch& scratch, const Rows& rows, Scratch::Sum sum) {
  const Tensor& matrix = rows.matrix;
  if (scratch.queue() == nullptr || matrix.storage == nullptr || !is_computed_in_float(matrix.dtype))
    return std::nullopt;
  if (matrix.strides[0] == 1 && rows.count > 1) {
    const auto columns = sum_columns<tasks::ColumnSum>(
        scratch, {}, {{place_of(matrix, matrix.strides[1])}, rows.length, rows.count, sum}, {&matrix});
    if (!columns) return std::nullopt;
    return columns->view({rows.count, 1}, {1, 1}, columns->offset);
  }
  if (!find_place(rows) || rows.count == 0 || rows.length == 0) return std::nullopt;
  if (rows.length > math::kSumTile) return scratch.add_tiles(sum_tiles(scratch, matrix), rows.length, sum);
  const Tensor out = scratch.make(DType::kFloat32, {rows.count, 1});
  sum_dense_rows(scratch, matrix, out, sum == Scratch::Sum::kMean ? static_cast<float>(rows.length) : 0.0f);
  return out;
}

}  // namespace epweave::replay::shared
