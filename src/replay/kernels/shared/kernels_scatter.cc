// Ops whose index has the tensor's rank: gather and scatter. Sources that meet in one element go in
// the order of the index.
#include <optional>

#include "replay/kernels/ops/parts.h"
#include "replay/kernels/shared/blocks.h"
#include "replay/kernels/shared/kernels.h"

namespace epweave::replay::shared {
namespace {

using tasks::AlongIndex;
using tasks::ScatterOp;

AlongIndex along_index(Scratch& scratch, const Tensor& tensor, const Tensor& index, std::size_t dim) {
  cpu::check_index_fits(tensor, index, dim);
  AlongIndex along{};
  along.shape = shape_of(index.sizes);
  along.index = strided(index, index.sizes);
  along.index.stored = stored_of(index.dtype);
  along.dim = static_cast<int>(dim);
  along.limit = tensor.rank() == 0 ? 1 : tensor.sizes[dim];
  along.sink = scratch.sink();
  return along;
}

// ---- whole rows ---------------------------------------------------------------------------

// An index that names the same rows in every column, as one that was expanded does: its one column.
std::optional<Tensor> find_shared_column(const Tensor& index, std::size_t dim) {
  if (index.rank() == 0) return std::nullopt;
  for (std::size_t d = 0; d < index.rank(); ++d)
    if (d != dim && index.sizes[d] != 1 && index.strides[d] != 0) return std::nullopt;
  return index.view({index.sizes[dim]}, {index.strides[dim]}, index.offset);
}
// The rows that a column names, of a tensor of the index's rank: an index may cover less than all
// columns.
Indexed resolve_rows(Scratch& scratch, Tensor tensor, const Tensor& index, std::size_t dim) {
  for (std::size_t d = 0; d < tensor.rank(); ++d)
    if (d != dim) tensor.sizes[d] = index.sizes[d];
  return resolve(scratch, tensor, index_at(dim, *find_shared_column(index, dim)), Negative::kRefused);
}

// ---- gather -------------------------------------------------------------------------------

Value gather(KernelCall& call) {
  const Tensor &self = call.tensor(0), &index = call.tensor(2);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  Tensor out = call.make_result(0, self.dtype, index.sizes);
  Scratch scratch(call);
  cpu::check_index_fits(self, index, dim);
  if (index.numel() == 0) return out;
  if (self.numel() == 0) throw KernelError("gather from an empty tensor");
  if (find_shared_column(index, dim)) {
    const Indexed indexed = resolve_rows(scratch, self, index, dim);
    read_blocks(scratch, self, indexed, cpu::index_first(indexed, out));
    return out;
  }
  const AlongIndex along = along_index(scratch, self, index, dim);
  scratch.launch(tasks::GatherTask{along, plain_strides(self), plain_strides(out), bytes_of_element(self)},
                 index.numel(), {&self, &index, &out});
  return out;
}

// ---- scatter ------------------------------------------------------------------------------

// `target` = or += the source, a tensor (its part under the index) or a number.
struct Scatter {
  std::size_t dim;
  const Tensor& index;
  const Value& source;
  bool adds;
};
// The part of the source that lies under the index.
Tensor part_under_index(Tensor source, const Tensor& index) {
  if (source.rank() != index.rank())
    throw KernelError("scatter: src and index have different numbers of dimensions");
  for (std::size_t d = 0; d < source.rank(); ++d)
    if (index.sizes[d] > source.sizes[d]) throw KernelError("scatter: the index is larger than src");
  source.sizes = index.sizes;
  return source;
}
// The same, row-major.
Tensor under_index(Scratch& scratch, const Tensor& source, const Tensor& index, DType dtype) {
  return scratch.dense(part_under_index(source, index), dtype);
}

// Elements of the index behind a dimension, and along it.
struct Columns {
  std::int64_t inner = 1, length = 1;
};
Columns columns_of(const Tensor& index, std::size_t dim) {
  Columns columns;
  if (index.rank() == 0) return columns;
  for (std::size_t d = dim + 1; d < index.rank(); ++d) columns.inner *= index.sizes[d];
  columns.length = index.sizes[dim];
  return columns;
}

// sum = or += the source at whole rows.
void scatter_rows_into(Scratch& scratch, const Tensor& sum, const Tensor& rows, const Scatter& scatter) {
  const Indexed indexed = resolve_rows(scratch, sum, scatter.index, scatter.dim);
  const Tensor moved = cpu::index_first(indexed, rows);
  if (scatter.adds) return add_blocks(scratch, sum, indexed, moved);
  write_blocks(scratch, sum, indexed, moved);
}

void scatter_into(KernelCall& call, const Tensor& target, const Scatter& scatter) {
  const Tensor& index = scatter.index;
  if (index.numel() == 0) return;
  if (target.numel() == 0) throw KernelError("scatter into an empty tensor");
  cpu::check_index_fits(target, index, scatter.dim);
  Scratch scratch(call);
  const DType dtype = computed_dtype(target.dtype);
  const bool is_of_rows = scatter.source.is_tensor() && index.rank() == target.rank() &&
                          find_shared_column(index, scatter.dim).has_value();
  // A device adds up rows where they lie.
  if (is_of_rows && scratch.queue() != nullptr && scatter.source.tensor().dtype == target.dtype)
    return scatter_rows_into(scratch, target, part_under_index(scatter.source.tensor(), index), scatter);
  const Tensor sum = scratch.copied(target, dtype);
  const Tensor source = scatter.source.is_tensor()
                            ? under_index(scratch, scatter.source.tensor(), index, dtype)
                            : scratch.dense(scratch.filled(target.dtype, {}, scatter.source), dtype);
  if (is_of_rows) {
    scatter_rows_into(scratch, sum, source, scatter);
    return cpu::copy_elements(sum, target);
  }
  const Columns columns = columns_of(index, scatter.dim);
  with_any(target.dtype, [&](auto zero) {
    using C = decltype(zero);
    const tasks::ScatterTask<C> task{along_index(scratch, sum, index, scatter.dim),
                                     plain_strides(sum),
                                     plain_strides(source),
                                     columns.inner,
                                     columns.length,
                                     scatter.adds,
                                     !scatter.source.is_tensor()};
    scratch.launch(task, index.numel() / columns.length, {&sum, &index, &source});
  });
  cpu::copy_elements(sum, target);
}
template <bool kAdds>
Scatter read_scatter(KernelCall& call) {
  return {cpu::checked_dim(call.integer(1), call.tensor(0).rank()), call.tensor(2), call[3], kAdds};
}
template <bool kAdds>
Value scatter(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  scatter_into(call, out, read_scatter<kAdds>(call));
  return out;
}
template <bool kAdds>
Value scatter_in_place(KernelCall& call) {
  scatter_into(call, call.tensor(0), read_scatter<kAdds>(call));
  return call.tensor(0);
}
Value deterministic_scatter_add(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  scatter_into(call, out, {0, call.tensor(1), call[2], true});
  return out;
}

// ---- scatter_reduce -----------------------------------------------------------------------

ScatterOp read_reduction(const std::string& how) {
  if (how == "sum" || how == "mean") return ScatterOp::kSum;
  if (how == "prod") return ScatterOp::kProduct;
  if (how == "amax") return ScatterOp::kLargest;
  if (how == "amin") return ScatterOp::kSmallest;
  throw KernelError("scatter_reduce: unknown reduction " + how);
}

// scatter_reduce(self, dim, index, src, reduce, *, include_self): sources after self where that is
// included.
Value scatter_reduce(KernelCall& call) {
  const Tensor &self = call.tensor(0), &index = call.tensor(2);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  const std::string& how = call[4].as<Text>().text;
  const ScatterOp op = read_reduction(how);
  Scratch scratch(call);
  const DType dtype = computed_dtype(self.dtype);
  const Tensor values = scratch.copied(self, dtype),
               source = under_index(scratch, call.tensor(3), index, dtype);
  const Tensor counts =
      scratch.filled(DType::kInt64, self.sizes, Value(std::int64_t{call.boolean(5) ? 1 : 0}));
  const Columns columns = columns_of(index, dim);
  if (self.numel() == 0 && index.numel() != 0) throw KernelError("scatter into an empty tensor");
  with_real(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    if (index.numel() != 0) {
      const tasks::ScatterReduceTask<C> task{along_index(scratch, values, index, dim),
                                             plain_strides(values),
                                             plain_strides(source),
                                             counts.data<std::int64_t>(),
                                             columns.inner,
                                             columns.length,
                                             op};
      scratch.launch(task, index.numel() / columns.length, {&values, &index, &source, &counts});
    }
    if (how == "mean")
      scratch.launch(tasks::DivideByCountTask<C>{values.data<C>(), counts.data<std::int64_t>()},
                     values.numel(), {&values, &counts});
  });
  return store_result(call, 0, self.dtype, self.sizes, values);
}

constexpr KernelRow kRows[] = {
    {"aten.gather.default", gather},
    {"aten.scatter.src", scatter<false>},
    {"aten.scatter.value", scatter<false>},
    {"aten.scatter_.src", scatter_in_place<false>},
    {"aten.scatter_.value", scatter_in_place<false>},
    {"aten.scatter_add.default", scatter<true>},
    {"aten.scatter_add_.default", scatter_in_place<true>},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"torchtitan.deterministic_scatter_add.default", deterministic_scatter_add},
};

}  // namespace

std::span<const KernelRow> scatter_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
