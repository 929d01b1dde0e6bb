// Ops that read or write rows or elements named by one index tensor (by several:
// kernels_indexed.cc).
//
// Where several sources meet in one destination they are added in ascending row-major order of the
// index, one at a time, in the accumulation type (float32 for the 16-bit floats, rounded once at
// the end). Without accumulation the last one stays. Every index is checked.
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/ops/index_call.h"
#include "replay/kernels/ops/parts.h"

#include <cstring>

namespace epweave::replay::cpu {
namespace {

// For ops that do not take negative indices.
std::int64_t plain_index(std::int64_t index, std::int64_t size) {
  if (index < 0 || index >= size)
    throw KernelError("index " + std::to_string(index) + " is out of range for a dimension of " +
                      std::to_string(size));
  return index;
}

// ---- one index along one dimension --------------------------------------------------------

Value index_select(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  const Buffer<std::int64_t> index = dense<std::int64_t>(call.tensor(2));
  Extents sizes = self.sizes;
  if (self.rank() > 0) sizes[dim] = static_cast<std::int64_t>(index.size());
  Tensor out = call.make_result(0, self.dtype, sizes);
  if (self.rank() == 0) {
    for (std::int64_t i : index) plain_index(i, 1);
    copy_elements(self, out);
    return out;
  }
  Tensor from = self, to = out;
  from.sizes[dim] = to.sizes[dim] = 1;
  for (std::size_t i = 0; i < index.size(); ++i) {
    from.offset = self.offset + plain_index(index[i], self.sizes[dim]) * self.strides[dim];
    to.offset = out.offset + static_cast<std::int64_t>(i) * out.strides[dim];
    copy_elements(from, to);
  }
  return out;
}

// self += alpha * source at rows `index`, in order.
void add_rows(const Tensor& self, std::size_t dim, const Buffer<std::int64_t>& index, const Tensor& source,
              const Value& alpha) {
  check_source_rows(self, dim, static_cast<std::int64_t>(index.size()), source);
  Tensor moved = self, rows = source;
  const auto to_front = [&](Tensor& tensor) {
    const auto at = static_cast<std::ptrdiff_t>(dim);
    std::rotate(tensor.sizes.begin(), tensor.sizes.begin() + at, tensor.sizes.begin() + at + 1);
    std::rotate(tensor.strides.begin(), tensor.strides.begin() + at, tensor.strides.begin() + at + 1);
  };
  to_front(moved);
  to_front(rows);
  with_compute(self.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    Buffer<C> sum = dense<C>(moved);
    const Buffer<C> from = dense<C>(rows);
    const std::size_t length = index.empty() ? 0 : from.size() / index.size();
    const C factor = number_as<C>(alpha);
    for (std::size_t i = 0; i < index.size(); ++i) {
      C* to = sum.data() + plain_index(index[i], self.sizes[dim]) * static_cast<std::int64_t>(length);
      for (std::size_t j = 0; j < length; ++j) to[j] = to[j] + factor * from[i * length + j];
    }
    store_dense(sum, moved);
  });
}
Value index_add_to(KernelCall& call, const Tensor& target) {
  add_rows(target, existing_dim(call.integer(1), target), dense<std::int64_t>(call.tensor(2)), call.tensor(3),
           call[4]);
  return target;
}
Value index_add(KernelCall& call) {
  return index_add_to(call, copy_of(call, call.tensor(0)));
}
Value index_add_in_place(KernelCall& call) {
  return index_add_to(call, call.tensor(0));
}

// ---- gather, scatter ----------------------------------------------------------------------

// Calls visit(i, along, other) for each index element i in row-major order: `along` the index's
// value, `other` the offset of the element's remaining coordinates in `tensor`.
template <class Visit>
void for_each_index(const Tensor& tensor, const Tensor& index, std::size_t dim, const Visit& visit) {
  const Buffer<std::int64_t> values = dense<std::int64_t>(index);
  check_index_fits(tensor, index, dim);
  Extents at(index.rank(), 0);
  std::int64_t other = tensor.offset;
  for (std::size_t i = 0; i < values.size(); ++i) {
    visit(i, tensor.rank() == 0 ? 0 : plain_index(values[i], tensor.sizes[dim]), other);
    for (std::size_t d = index.rank(); d-- > 0;) {
      const std::int64_t stride = d == dim ? 0 : tensor.strides[d];
      other += stride;
      if (++at[d] < index.sizes[d]) break;
      other -= stride * index.sizes[d];
      at[d] = 0;
    }
  }
}

Value gather(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor& index = call.tensor(2);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  Tensor out = call.make_result(0, self.dtype, index.sizes);
  const std::size_t bytes = self.element_bytes();
  std::vector<std::byte> elements(static_cast<std::size_t>(index.numel()) * bytes);
  const std::int64_t stride = self.rank() == 0 ? 0 : self.strides[dim];
  for_each_index(self, index, dim, [&](std::size_t i, std::int64_t along, std::int64_t other) {
    std::memcpy(elements.data() + i * bytes,
                self.storage->data() + (other + along * stride) * static_cast<std::int64_t>(bytes), bytes);
  });
  scatter_elements(elements.data(), out);
  return out;
}

// The part of `src` under the index.
Tensor under_index(const Tensor& src, const Tensor& index) {
  if (src.rank() != index.rank())
    throw KernelError("scatter: src and index have different numbers of dimensions");
  Tensor part = src;
  for (std::size_t d = 0; d < src.rank(); ++d) {
    if (index.sizes[d] > src.sizes[d]) throw KernelError("scatter: the index is larger than src");
    part.sizes[d] = index.sizes[d];
  }
  return part;
}

template <class C>
void scatter_elements_as(const Tensor& target, std::size_t dim, const Tensor& index, const Buffer<C>& from,
                         Put put) {
  // In the accumulation type: a dense copy of the target is written back.
  Tensor shape = target;
  shape.strides = contiguous_strides(target.sizes);
  shape.offset = 0;
  Buffer<C> sum = dense<C>(target);
  const std::int64_t stride = target.rank() == 0 ? 0 : shape.strides[dim];
  for_each_index(shape, index, dim, [&](std::size_t i, std::int64_t along, std::int64_t other) {
    C& to = sum[static_cast<std::size_t>(other + along * stride)];
    const C& value = from.size() == 1 ? from[0] : from[i];
    to = put == Put::kAdd ? to + value : value;
  });
  store_dense(sum, target);
}
void scatter_into(const Tensor& target, std::int64_t dim_arg, const Tensor& index, const Value& source,
                  Put put) {
  const std::size_t dim = checked_dim(dim_arg, target.rank());
  if (index.numel() == 0) return;
  with_compute(target.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    scatter_elements_as<C>(
        target, dim, index,
        source.is_tensor() ? dense<C>(under_index(source.tensor(), index)) : Buffer<C>{number_as<C>(source)},
        put);
  });
}
Value scatter(KernelCall& call) {
  Tensor out = copy_of(call, call.tensor(0));
  scatter_into(out, call.integer(1), call.tensor(2), call[3], Put::kReplace);
  return out;
}
Value scatter_in_place(KernelCall& call) {
  scatter_into(call.tensor(0), call.integer(1), call.tensor(2), call[3], Put::kReplace);
  return call.tensor(0);
}
Value scatter_add(KernelCall& call) {
  Tensor out = copy_of(call, call.tensor(0));
  scatter_into(out, call.integer(1), call.tensor(2), call[3], Put::kAdd);
  return out;
}
Value scatter_add_in_place(KernelCall& call) {
  scatter_into(call.tensor(0), call.integer(1), call.tensor(2), call[3], Put::kAdd);
  return call.tensor(0);
}
Value deterministic_scatter_add(KernelCall& call) {
  Tensor out = copy_of(call, call.tensor(0));
  scatter_into(out, 0, call.tensor(1), call[2], Put::kAdd);
  return out;
}

// ---- scatter_reduce -----------------------------------------------------------------------

// One more source for an element.
template <class C>
C reduce_with(const std::string& how, C a, C b) {
  if (how == "sum" || how == "mean") return a + b;
  if (how == "prod") return a * b;
  if (how == "amax") return a != a ? a : b != b ? b : a < b ? b : a;
  if (how == "amin") return a != a ? a : b != b ? b : b < a ? b : a;
  throw KernelError("scatter_reduce: unknown reduction " + how);
}
// The mean over `count` numbers; of integers rounded down.
template <class C>
C mean_of(C sum, std::int64_t count) {
  if constexpr (std::is_same_v<C, std::int64_t>)
    return sum / count - (sum % count < 0 ? 1 : 0);
  else
    return sum / static_cast<C>(count);
}

// scatter_reduce(self, dim, index, src, reduce, *, include_self): sources in ascending row-major
// order of the index, after self where that is included; elements without a source stay.
Value scatter_reduce(KernelCall& call) {
  const Tensor &self = call.tensor(0), &index = call.tensor(2);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  const std::string& how = call[4].as<Text>().text;
  const Tensor out = call.make_result(0, self.dtype, self.sizes);
  Tensor shape = self;
  shape.strides = contiguous_strides(self.sizes);
  shape.offset = 0;
  const auto reduce = [&](auto tag) {
    using C = typename decltype(tag)::type;
    Buffer<C> values = dense<C>(self);
    const Buffer<C> from = dense<C>(under_index(call.tensor(3), index));
    Buffer<std::int64_t> counts(values.size(), call.boolean(5) ? 1 : 0);
    const std::int64_t stride = self.rank() == 0 ? 0 : shape.strides[dim];
    if (index.numel() != 0)
      for_each_index(shape, index, dim, [&](std::size_t i, std::int64_t along, std::int64_t other) {
        const auto at = static_cast<std::size_t>(other + along * stride);
        values[at] = counts[at]++ == 0 ? from[i] : reduce_with(how, values[at], from[i]);
      });
    if (how == "mean")
      for (std::size_t i = 0; i < values.size(); ++i)
        if (counts[i] > 1) values[i] = mean_of(values[i], counts[i]);
    store_dense(values, out);
  };
  if (compute_of(self.dtype) == Compute::kInt)
    reduce(TypeTag<std::int64_t>{});
  else
    with_floating(self.dtype, reduce);
  return out;
}

// ---- embedding ----------------------------------------------------------------------------

Value embedding(KernelCall& call) {
  const Tensor& weight = call.tensor(0);
  const Tensor& indices = call.tensor(1);
  if (weight.rank() != 2) throw KernelError("embedding: the weight has two dimensions");
  Extents sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  Tensor out = call.make_result(0, weight.dtype, sizes);
  const Buffer<std::int64_t> rows = dense<std::int64_t>(indices);
  for_each_position(out, indices.rank(), [&](std::size_t i, std::int64_t offset) {
    const Tensor from{weight.dtype,
                      {weight.sizes[1]},
                      {weight.strides[1]},
                      weight.offset + plain_index(rows[i], weight.sizes[0]) * weight.strides[0],
                      weight.storage};
    copy_elements(from, block_at(out, indices.rank(), offset));
  });
  return out;
}

// Rows of grad added to the rows of their indices; padding_idx gets nothing.
Value embedding_backward(KernelCall& call) {
  const Tensor& grad = call.tensor(0);
  const Buffer<std::int64_t> rows = dense<std::int64_t>(call.tensor(1));
  check_gradient_rows(grad, static_cast<std::int64_t>(rows.size()));
  const std::int64_t weights = call.integer(2), padding = call.integer(3), length = grad.sizes.back();
  Tensor out = call.make_result(0, grad.dtype, {weights, length});
  Buffer<std::int64_t> uses(static_cast<std::size_t>(weights), 0);
  if (call.boolean(4))
    for (std::int64_t row : rows) ++uses[static_cast<std::size_t>(plain_index(row, weights))];
  with_floating(grad.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Buffer<C> from = dense<C>(grad);
    Buffer<C> sum(static_cast<std::size_t>(weights * length), C(0));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == padding) continue;
      const std::int64_t row = plain_index(rows[i], weights);
      C* to = sum.data() + row * length;
      const C* source = from.data() + static_cast<std::int64_t>(i) * length;
      const C divisor = call.boolean(4) ? static_cast<C>(uses[static_cast<std::size_t>(row)]) : C(1);
      for (std::int64_t j = 0; j < length; ++j) to[j] = to[j] + source[j] / divisor;
    }
    store_dense(sum, out);
  });
  return out;
}

Value repeat_interleave(KernelCall& call) {
  const Buffer<std::int64_t> repeats = dense<std::int64_t>(call.tensor(0));
  Buffer<std::int64_t> rows;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0) throw KernelError("repeat_interleave: negative count");
    rows.insert(rows.end(), static_cast<std::size_t>(repeats[i]), static_cast<std::int64_t>(i));
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  if (!call[1].is_none() && call.integer(1) != count)
    throw KernelError("repeat_interleave: output_size is " + std::to_string(call.integer(1)) +
                      " but the counts add up to " + std::to_string(count));
  Tensor out = call.make_result(0, call.tensor(0).dtype, {count});
  store_dense(rows, out);
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.gather.default", gather},
    {"aten.index_add.default", index_add},
    {"aten.index_add_.default", index_add_in_place},
    {"aten.index_select.default", index_select},
    {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten.scatter.src", scatter},
    {"aten.scatter.value", scatter},
    {"aten.scatter_.src", scatter_in_place},
    {"aten.scatter_.value", scatter_in_place},
    {"aten.scatter_add.default", scatter_add},
    {"aten.scatter_add_.default", scatter_add_in_place},
    {"aten.scatter_reduce.two", scatter_reduce},
    {"torchtitan.deterministic_scatter_add.default", deterministic_scatter_add},
};

}  // namespace

std::span<const KernelRow> index_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
