#include "replay/kernels/shared/whole_rows.h"

namespace epweave::replay::shared {
namespace {

bool is_computed_in_float(DType dtype) {
  return computed_dtype(dtype) == DType::kFloat32;
}
tasks::RowPlace place_of(const Tensor& tensor, std::int64_t row_stride) {
  return {tensor.bytes(), row_stride, stored_of(tensor.dtype)};
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
  const float divisor = sum == Scratch::Sum::kMean ? static_cast<float>(rows.length) : 0.0f;
  if (matrix.strides[0] == 1 && rows.count > 1) {
    const auto columns = sum_columns<tasks::ColumnSum>(
        scratch, {}, {{place_of(matrix, matrix.strides[1])}, rows.length, rows.count, divisor}, {&matrix});
    if (!columns) return std::nullopt;
    return columns->view({rows.count, 1}, {1, 1}, columns->offset);
  }
  const Tensor out = scratch.make(DType::kFloat32, {rows.count, 1});
  const tasks::RowSum op{{rows.length}, out.data<float>(), divisor};
  if (!launch_rows<tasks::RowSum>(scratch, op, {{find_place(rows)}, {}, rows.count}, {&matrix, &out}))
    return std::nullopt;
  return out;
}

}  // namespace epweave::replay::shared
