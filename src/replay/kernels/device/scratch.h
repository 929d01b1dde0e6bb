// What device kernels are composed of: operands in a compute type, elementwise steps, sums of rows.
#pragma once

#include <optional>

#include "replay/kernels/device/launcher.h"
#include "replay/kernels/math/element_op.h"

namespace epweave::replay::device {

// The dtype that holds a compute type without rounding.
DType computed_dtype(DType dtype);
template <class C>
inline constexpr DType dtype_of = DType::kInt64;
template <>
inline constexpr DType dtype_of<float> = DType::kFloat32;
template <>
inline constexpr DType dtype_of<double> = DType::kFloat64;

// Calls f(C()) with the compute type: float, double, and for `with_real` int64.
template <class F>
decltype(auto) with_float(DType dtype, const F& f) {
  if (compute_of(dtype) == Compute::kFloat) return f(float{});
  if (compute_of(dtype) == Compute::kDouble) return f(double{});
  throw KernelError("the op is defined for floating-point tensors, not for " + std::string(info(dtype).name));
}
template <class F>
decltype(auto) with_real(DType dtype, const F& f) {
  if (compute_of(dtype) == Compute::kInt) return f(std::int64_t{});
  return with_float(dtype, f);
}

// Scratch tensors of a call, row-major.
class Scratch {
 public:
  explicit Scratch(KernelCall& call) : launcher_(launcher_of(call)) {}

  Launcher& launcher() { return launcher_; }
  Tensor make(DType dtype, Extents sizes) { return make_tensor(launcher_, dtype, std::move(sizes)); }
  Tensor filled(DType dtype, Extents sizes, const Value& number);
  // The tensor itself where it is row-major and of the dtype, else a copy.
  Tensor dense(const Tensor& tensor, DType dtype);
  // A row-major copy in any case.
  Tensor copied(const Tensor& tensor, DType dtype);

  // op(in...), broadcast, in the dtype of in[0].
  Tensor map(math::ElementOp op, std::initializer_list<const Tensor*> in, const Value& number = Value());
  // The same into `out`, computed in the compute type of in[0].
  void map_into(const Tensor& out, math::ElementOp op, std::initializer_list<const Tensor*> in,
                const Value& number = Value());

  // Sums of rows in the one order (math/sum_order.h): x is [rows, length] and row-major; the result
  // is [rows, 1]. kMean: divided by the length.
  enum class Sum { kTotal, kMean };
  Tensor sum_rows(const Tensor& x, Sum sum = Sum::kTotal);
  // Of the columns: [1, columns].
  Tensor sum_columns(const Tensor& x);
  Tensor maximum_of_rows(const Tensor& x, NanRule nan);

  // Partial sums or products of each row in place: of integers in parallel, of floats one after the
  // other.
  void scan_rows(const Tensor& x, ScanOp op);
  // Each row sorted, stable, NaN being the largest, and where its elements were.
  struct Sorted {
    Tensor values, indices;
  };
  enum class Direction : std::uint8_t { kAscending, kDescending };
  Sorted sort_rows(const Tensor& x, Direction direction);

 private:
  // Which elements are added up: of a matrix's rows, or of its columns.
  enum class Along { kRows, kColumns };
  Tensor sum_along(const Tensor& x, Along along, Sum sum);
  Launcher& launcher_;
};

// `values` (row-major, in any dtype) stored into a new result of the call.
Tensor store_result(KernelCall& call, std::size_t i, DType dtype, const Extents& sizes, const Tensor& values);

// [rows, length] seen in a row-major tensor of as many elements.
Tensor as_matrix(const Tensor& dense, std::int64_t rows, std::int64_t length);
// The tensor with the dimension last.
Tensor with_dim_last(Tensor tensor, std::size_t dim);

}  // namespace epweave::replay::device
