// Ops that read, write or add to blocks named by index tensors (blocks.h). What is added up is
// added up in the accumulation type: float32 for the 16-bit floats, rounded once at the end.
#include "replay/kernels/ops/index_call.h"

#include "replay/kernels/ops/parts.h"
#include "replay/kernels/shared/blocks.h"
#include "replay/kernels/shared/kernels.h"

namespace epweave::replay::shared {
namespace {

// Where the indexed tensor is empty a fault is raised, and nothing is copied.
bool can_copy(const Tensor& self) {
  return self.numel() != 0;
}

// An index of one dimension.
Tensor as_row(const Tensor& index) {
  return index.rank() == 0 ? index.view({1}, {1}, index.offset) : index;
}

Tensor read_indexed(KernelCall& call, const Tensor& self, const std::vector<Value>& indices,
                    Negative negative) {
  Scratch scratch(call);
  const Indexed indexed = resolve(scratch, self, indices, negative);
  Tensor out = call.make_result(0, self.dtype, indexed.sizes);
  if (can_copy(self)) read_blocks(scratch, self, indexed, cpu::index_first(indexed, out));
  return out;
}
Value index(KernelCall& call) {
  return read_indexed(call, call.tensor(0), call[1].items(), Negative::kFromTheEnd);
}
Value embedding(KernelCall& call) {
  if (call.tensor(0).rank() != 2) throw KernelError("embedding: the weight has two dimensions");
  return read_indexed(call, call.tensor(0), {call[1]}, Negative::kRefused);
}
Value index_select(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  const Tensor index = as_row(call.tensor(2));
  if (self.rank() != 0) return read_indexed(call, self, index_at(dim, index), Negative::kRefused);
  Scratch scratch(call);
  resolve(scratch, self.view({1}, {1}, self.offset), {index}, Negative::kRefused);
  return cpu::copy_of(call);
}

// ---- writes -------------------------------------------------------------------------------

// target = or += values where the indices are.
void put_at(Scratch& scratch, const Tensor& target, const std::vector<Value>& indices, const Tensor& values) {
  const Indexed indexed = resolve(scratch, target, indices, Negative::kFromTheEnd);
  if (count_elements(indexed.sizes) == 0 || !can_copy(target)) return;
  write_blocks(scratch, target, indexed, broadcast_rows(indexed, values));
}
struct PutPositions {
  std::vector<Value> indices;
  Negative negative;
};
void add_at(Scratch& scratch, const Tensor& target, const PutPositions& place, const Tensor& values) {
  const Indexed indexed = resolve(scratch, target, place.indices, place.negative);
  if (count_elements(indexed.sizes) == 0 || !can_copy(target)) return;
  add_blocks(scratch, target, indexed, broadcast_rows(indexed, values));
}
void put_blocks(KernelCall& call, const Tensor& target) {
  Scratch scratch(call);
  if (call.boolean(3))
    return add_at(scratch, target, {call[1].items(), Negative::kFromTheEnd}, call.tensor(2));
  put_at(scratch, target, call[1].items(), call.tensor(2));
}

Value index_put(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  put_blocks(call, out);
  return out;
}
Value index_put_in_place(KernelCall& call) {
  put_blocks(call, call.tensor(0));
  return call.tensor(0);
}

// self += alpha * source at rows `index`, in order.
void add_rows(KernelCall& call, const Tensor& target) {
  Scratch scratch(call);
  const std::size_t dim = cpu::existing_dim(call.integer(1), target);
  cpu::check_source_rows(target, dim, call.tensor(2).numel(), call.tensor(3));
  const Tensor source = scratch.dense(call.tensor(3), computed_dtype(target.dtype));
  const Tensor alpha = scratch.filled(source.dtype, {}, call[4]);
  const Tensor scaled = scratch.map<math::Mul>(source, alpha);
  add_at(scratch, target, {index_at(dim, as_row(call.tensor(2))), Negative::kRefused}, scaled);
}
Value index_add(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  add_rows(call, out);
  return out;
}
Value index_add_in_place(KernelCall& call) {
  add_rows(call, call.tensor(0));
  return call.tensor(0);
}

// Each row of grad divided by how many rows have its index.
Tensor divide_by_uses(Scratch& scratch, const Indexed& indexed, const Tensor& grad, DType dtype) {
  const Tensor uses = scratch.make(DType::kInt64, {indexed.offsets.numel(), 1});
  const Scratch::Sorted sorted = sort_positions(scratch, indexed);
  scratch.launch(tasks::CountUsesTask{read_sorted(sorted), uses.data<std::int64_t>()}, uses.numel(),
                 {&sorted.values, &sorted.indices, &uses});
  const Tensor rows = as_matrix(scratch.dense(grad, dtype), uses.numel(), grad.sizes.back());
  const Tensor divided = scratch.map<math::Div>(rows, uses);
  return divided.view(grad.sizes, contiguous_strides(grad.sizes), 0);
}

// Rows of grad added to the rows of their indices; padding_idx gets nothing.
Value embedding_backward(KernelCall& call) {
  const Tensor& grad = call.tensor(0);
  cpu::check_gradient_rows(grad, call.tensor(1).numel());
  const std::int64_t weights = call.integer(2), padding = call.integer(3), length = grad.sizes.back();
  const DType dtype = floating_dtype(grad.dtype);
  Scratch scratch(call);
  // A device rounds each row once as it stores it.
  const bool is_direct = scratch.queue() != nullptr;
  const Extents sizes{weights, length};
  const Tensor sum = is_direct ? call.make_result(0, grad.dtype, sizes) : scratch.make(dtype, sizes);
  cpu::fill_elements(sum, Value(0.0));
  const Indexed indexed = resolve(scratch, sum, {call[1]}, Negative::kRefused);
  if (grad.numel() != 0 && can_copy(sum))
    add_blocks(scratch, sum, indexed, call.boolean(4) ? divide_by_uses(scratch, indexed, grad, dtype) : grad,
               padding < 0 ? -1 : padding * sum.strides[0]);
  return is_direct ? Value(sum) : store_result(call, 0, grad.dtype, sizes, sum);
}

// ---- rows along a dimension ---------------------------------------------------------------

void copy_rows(KernelCall& call, const Tensor& target) {
  Scratch scratch(call);
  const std::size_t dim = cpu::existing_dim(call.integer(1), target);
  const Tensor &index = call.tensor(2), &source = call.tensor(3);
  cpu::check_source_rows(target, dim, index.numel(), source);
  put_at(scratch, target, index_at(dim, as_row(index)), source);
}
Value index_copy(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  copy_rows(call, out);
  return out;
}
Value index_copy_in_place(KernelCall& call) {
  copy_rows(call, call.tensor(0));
  return call.tensor(0);
}
Value index_fill(KernelCall& call) {
  Tensor out = cpu::copy_of(call);
  Scratch scratch(call);
  const std::size_t dim = cpu::existing_dim(call.integer(1), out);
  put_at(scratch, out, index_at(dim, as_row(call.tensor(2))), scratch.filled(out.dtype, {}, call[3]));
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten._unsafe_index.Tensor", index},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.index.Tensor", index},
    {"aten.index_add.default", index_add},
    {"aten.index_add_.default", index_add_in_place},
    {"aten.index_copy.default", index_copy},
    {"aten.index_copy_.default", index_copy_in_place},
    {"aten.index_fill.int_Scalar", index_fill},
    {"aten.index_put.default", index_put},
    {"aten.index_put_.default", index_put_in_place},
    {"aten.index_select.default", index_select},
};

}  // namespace

std::span<const KernelRow> index_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
