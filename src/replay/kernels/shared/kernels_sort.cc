// Scans and sorts of rows along a dimension. Equal elements keep their order; NaN is the largest.
#include "ir/types/promotion.h"
#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {
namespace {

struct Scan {
  std::size_t dim;
  ScanOp op;
};
// Partial sums or products in ascending order, each rounded when stored only.
void accumulate(KernelCall& call, const Scan& scan, const Tensor& out) {
  Scratch scratch(call);
  const Rows in = scratch.rows_along(call.tensor(0), scan.dim), rows = scratch.rows_for_along(out, scan.dim);
  scratch.for_each_block(in, {&rows}, [&](const Block& block) {
    const Tensor x = block.load_copy(in, computed_dtype(out.dtype));
    scratch.scan_rows(x, scan.op);
    block.store(x, rows);
  });
}
Scan read_scan(const KernelCall& call, ScanOp op) {
  return {cpu::checked_dim(call.integer(1), call.tensor(0).rank()), op};
}
template <ScanOp op>
Value cumulate(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor out =
      call.make_result(0, call[2].is<DType>() ? call[2].as<DType>() : to_sum(self.dtype), self.sizes);
  accumulate(call, read_scan(call, op), out);
  return out;
}
Value cumsum_in_place(KernelCall& call) {
  accumulate(call, read_scan(call, ScanOp::kSum), call.tensor(0));
  return call.tensor(0);
}

// Of equals the last, and a NaN stays.
Value cummax(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor values = call.make_result(0, self.dtype, self.sizes),
               positions = call.make_result(1, DType::kInt64, self.sizes);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  Scratch scratch(call);
  const Rows in = scratch.rows_along(self, dim), value_rows = scratch.rows_for_along(values, dim),
             position_rows = scratch.rows_for_along(positions, dim);
  scratch.for_each_block(in, {&value_rows, &position_rows}, [&](const Block& block) {
    const Tensor x = block.load_copy(in, computed_dtype(self.dtype)),
                 at = scratch.make(DType::kInt64, x.sizes);
    with_real(self.dtype, [&](auto zero) {
      using C = decltype(zero);
      const std::int64_t count = x.numel() == 0 ? 0 : x.sizes[0];
      scratch.launch(tasks::RunningMaximumTask<C>{x.data<C>(), at.data<std::int64_t>(), x.sizes[1]}, count,
                     {&x, &at});
    });
    block.store(x, value_rows);
    block.store(at, position_rows);
  });
  return Value::tuple({values, positions});
}

// The logarithm of the sum of exponentials up to each element, added up in double.
Value cumulate_logarithms(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor out = call.make_result(0, self.dtype, self.sizes);
  floating_dtype(self.dtype);
  Scratch scratch(call);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  const Rows in = scratch.rows_along(self, dim), rows = scratch.rows_for_along(out, dim);
  scratch.for_each_block(in, {&rows}, [&](const Block& block) {
    const Tensor x = block.load_copy(in, DType::kFloat64);
    const auto column = [&](std::int64_t i) {
      return x.view({x.sizes[0], 1}, {x.sizes[1], 1}, x.offset + i);
    };
    for (std::int64_t i = 1; i < x.sizes[1]; ++i)
      scratch.map_into<math::LogAddExp>(column(i), Value(), column(i), column(i - 1));
    block.store(x, rows);
  });
  return out;
}

// ---- sorts --------------------------------------------------------------------------------

using Direction = Scratch::Direction;
// What is sorted: along which dimension, which way, and how many of the first are kept.
struct Request {
  std::size_t dim = 0;
  Direction direction = Direction::kAscending;
  std::int64_t count = 0;
  bool wants_values = true;  // else the places are the only result
};
Direction read_direction(const KernelCall& call, std::size_t param) {
  return call.boolean(param) ? Direction::kDescending : Direction::kAscending;
}
struct Sorted {
  Tensor values, indices;
};
Sorted sort_along(KernelCall& call, const Request& request) {
  const Tensor& self = call.tensor(0);
  Extents sizes = self.sizes;
  if (self.rank() != 0) sizes[request.dim] = request.count;
  const Sorted sorted{
      request.wants_values ? call.make_result(0, self.dtype, sizes) : call.make(self.dtype, sizes),
      call.make_result(request.wants_values ? 1 : 0, DType::kInt64, sizes)};
  if (self.numel() == 0) return sorted;
  Scratch scratch(call);
  const Rows in = scratch.rows_along(self, request.dim),
             values = scratch.rows_for_along(sorted.values, request.dim),
             indices = scratch.rows_for_along(sorted.indices, request.dim);
  scratch.for_each_block(in, {&values, &indices}, [&](const Block& block) {
    const Scratch::Sorted rows =
        scratch.sort_rows(block.load(in, computed_dtype(self.dtype)), request.direction);
    const auto first_of_each = [&](const Tensor& matrix) {
      return scratch.dense(matrix.view({matrix.sizes[0], request.count}, matrix.strides, matrix.offset),
                           matrix.dtype);
    };
    block.store(first_of_each(rows.values), values);
    block.store(first_of_each(rows.indices), indices);
  });
  return sorted;
}
Request whole(const KernelCall& call, std::size_t dim_param, std::size_t descending_param) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(dim_param), self.rank());
  return {dim, read_direction(call, descending_param), self.rank() == 0 ? 1 : self.sizes[dim]};
}
Value pair(const Sorted& sorted) {
  return Value::tuple({sorted.values, sorted.indices});
}
Value sort(KernelCall& call) {
  return pair(sort_along(call, whole(call, 1, 2)));
}
Value sort_stable(KernelCall& call) {
  return pair(sort_along(call, whole(call, 2, 3)));
}
Value places(KernelCall& call, Request request) {
  request.wants_values = false;
  return sort_along(call, request).indices;
}
Value argsort(KernelCall& call) {
  return places(call, whole(call, 1, 2));
}
Value argsort_stable(KernelCall& call) {
  return places(call, whole(call, 2, 3));
}
// The k largest (or smallest), sorted whatever `sorted` says; of equal ones the lower index first.
Value topk(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(2), self.rank());
  const std::int64_t count = call.integer(1);
  if (count < 0 || count > (self.rank() == 0 ? 1 : self.sizes[dim]))
    throw KernelError("topk: k exceeds the dimension");
  return pair(sort_along(call, {dim, read_direction(call, 3), count}));
}

constexpr KernelRow kRows[] = {
    {"aten.argsort.default", argsort},
    {"aten.argsort.stable", argsort_stable},
    {"aten.cummax.default", cummax},
    {"aten.cumprod.default", cumulate<ScanOp::kProduct>},
    {"aten.cumsum.default", cumulate<ScanOp::kSum>},
    {"aten.cumsum_.default", cumsum_in_place},
    {"aten.logcumsumexp.default", cumulate_logarithms},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort_stable},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const KernelRow> sort_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
