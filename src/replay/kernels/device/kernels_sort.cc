// Scans and sorts on the device.
#include <algorithm>

#include "ir/types/promotion.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/scratch.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

struct Scan {
  std::size_t dim;
  ScanOp op;
};
// Partial sums or products in ascending order, each rounded when stored only.
void accumulate(Scratch& scratch, const Tensor& self, const Scan& scan, const Tensor& out) {
  if (self.rank() == 0) return cpu::copy_elements(self, out);
  const Tensor x = scratch.copied(with_dim_last(self, scan.dim), computed_dtype(out.dtype));
  const std::int64_t length = self.sizes[scan.dim];
  if (x.numel() != 0) scratch.scan_rows(as_matrix(x, x.numel() / length, length), scan.op);
  cpu::copy_elements(x, with_dim_last(out, scan.dim));
}
Scan read_scan(const KernelCall& call, ScanOp op) {
  return {cpu::checked_dim(call.integer(1), call.tensor(0).rank()), op};
}
template <ScanOp op>
Value cumulate(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  Tensor out =
      call.make_result(0, call[2].is<DType>() ? call[2].as<DType>() : to_sum(self.dtype), self.sizes);
  accumulate(scratch, self, read_scan(call, op), out);
  return out;
}
Value cumsum_in_place(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  accumulate(scratch, self, read_scan(call, ScanOp::kSum), self);
  return self;
}

Value cummax(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor values = call.make_result(0, self.dtype, self.sizes),
               positions = call.make_result(1, DType::kInt64, self.sizes);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  Scratch scratch(call);
  const Tensor x = scratch.copied(with_dim_last(self, dim), computed_dtype(self.dtype)),
               at = scratch.make(DType::kInt64, x.sizes);
  const std::int64_t length = self.rank() == 0 ? 1 : self.sizes[dim];
  with_real(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launcher().launch(RunningMaximumTask<C>{x.data<C>(), at.data<std::int64_t>(), length},
                              length == 0 ? 0 : x.numel() / length, {&x, &at});
  });
  cpu::copy_elements(x, with_dim_last(values, dim));
  cpu::copy_elements(at, with_dim_last(positions, dim));
  return Value::tuple({values, positions});
}

using Direction = Scratch::Direction;
struct Request {
  std::size_t dim = 0;
  Direction direction = Direction::kAscending;
  std::int64_t count = 0;
};
Direction read_direction(const KernelCall& call, std::size_t param) {
  return call.boolean(param) ? Direction::kDescending : Direction::kAscending;
}
struct Sorted {
  Tensor values, indices;
};
Sorted sort_along(KernelCall& call, const Request& request) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  Extents sizes = self.sizes;
  const std::int64_t length = self.rank() == 0 ? 1 : self.sizes[request.dim];
  if (self.rank() != 0) sizes[request.dim] = request.count;
  Sorted sorted{call.make_result(0, self.dtype, sizes), call.make_result(1, DType::kInt64, sizes)};
  const Tensor x = scratch.dense(with_dim_last(self, request.dim), computed_dtype(self.dtype));
  if (x.numel() == 0) return sorted;
  const Scratch::Sorted rows = scratch.sort_rows(as_matrix(x, x.numel() / length, length), request.direction);
  const auto give = [&](const Tensor& from, const Tensor& to) {
    const Tensor moved = with_dim_last(to, request.dim);
    Extents strides = contiguous_strides(x.sizes);  // the first of each row
    cpu::copy_elements(from.view(moved.sizes, std::move(strides), from.offset), moved);
  };
  give(rows.values, sorted.values);
  give(rows.indices, sorted.indices);
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
Value argsort(KernelCall& call) {
  return sort_along(call, whole(call, 1, 2)).indices;
}
Value argsort_stable(KernelCall& call) {
  return sort_along(call, whole(call, 2, 3)).indices;
}
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
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort_stable},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const KernelRow> sort_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
