// Ops that read or write elements named by an index tensor, on the device (index_tasks.h).
//
// A wrong index is a fault that the host sees where it waits for the device. A bool mask as index is counted
// by the host, as in PyTorch: it waits for the device.
#include <algorithm>
#include <cstring>

#include "replay/cpu/elements.h"
#include "replay/device/kernels.h"
#include "replay/device/scratch.h"

namespace epweave::replay::device {
namespace {

int bytes_of_element(const Tensor& tensor) {
  if (tensor.element_bytes() > sizeof(std::uint64_t))
    throw KernelError("no kernel of a device moves " + std::string(info(tensor.dtype).name));
  return static_cast<int>(tensor.element_bytes());
}

enum class Negative : std::uint8_t { kRefused, kFromTheEnd };

// self[indices]: the offset of each position's block of self, and the block: the dimensions not indexed.
struct Indexed {
  Extents common;            // of the broadcast indices
  Extents sizes;             // of the result
  std::size_t position = 0;  // of the broadcast dimensions in `sizes`
  Tensor offsets;            // int64, by position
  Extents block_sizes, block_strides;
};

// The true elements' indices along each dimension.
void expand_mask(Scratch& scratch, const Tensor& mask, std::vector<Value>& to) {
  const Tensor host = scratch.launcher().download(mask);
  const Buffer<std::int64_t> flags = cpu::dense<std::int64_t>(host);
  std::vector<std::vector<std::int64_t>> found(mask.rank());
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = mask.rank(); d-- > 0; rest /= mask.sizes[d])
      found[d].push_back(rest % mask.sizes[d]);
  }
  for (const std::vector<std::int64_t>& column : found) {
    HostMemory memory;
    const Tensor indices = make_tensor(memory, DType::kInt64, {static_cast<std::int64_t>(column.size())});
    if (!column.empty()) std::memcpy(indices.bytes(), column.data(), column.size() * sizeof(std::int64_t));
    to.emplace_back(scratch.launcher().place(indices));
  }
}

Indexed resolve(Scratch& scratch, const Tensor& self, const std::vector<Value>& given, Negative negative) {
  std::vector<Value> indices;
  for (const Value& index : given) {
    if (index.is_none() || index.tensor().dtype != DType::kBool)
      indices.push_back(index);
    else
      expand_mask(scratch, index.tensor(), indices);
  }
  if (indices.size() > self.rank()) throw KernelError("more indices than dimensions");
  Indexed result;
  std::vector<const Tensor*> tensors;
  std::size_t first = self.rank(), last = 0;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (indices[d].is_none()) continue;
    tensors.push_back(&indices[d].tensor());
    first = std::min(first, d);
    last = d;
  }
  result.common = cpu::broadcast_sizes(tensors);
  const std::int64_t count = count_elements(result.common);
  result.offsets = scratch.filled(DType::kInt64, {count}, Value(std::int64_t{0}));
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (indices[d].is_none()) continue;
    const Tensor& index = indices[d].tensor();
    Strided named = strided(index, result.common);
    named.stored = stored_of(index.dtype);
    scratch.launcher().launch(
        ResolveIndexTask{shape_of(result.common), named, result.offsets.data<std::int64_t>(), self.sizes[d],
                         self.strides[d], scratch.launcher().sink(), negative == Negative::kFromTheEnd},
        count, {&index, &result.offsets});
  }
  // Adjacent indices leave their dimensions in place; others come first.
  result.position = tensors.size() == last - first + 1 ? first : 0;
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (d < indices.size() && !indices[d].is_none()) continue;
    result.block_sizes.push_back(self.sizes[d]);
    result.block_strides.push_back(self.strides[d]);
  }
  result.sizes = result.block_sizes;
  result.sizes.insert(result.sizes.begin() + static_cast<std::ptrdiff_t>(result.position),
                      result.common.begin(), result.common.end());
  return result;
}

// Whether any index is read at all where the indexed dimension is empty: a fault is raised, nothing is copied.
bool can_copy(const Tensor& self) {
  return self.numel() != 0;
}

// A tensor of `indexed.sizes` as [positions..., block...].
Tensor index_first(const Indexed& indexed, Tensor tensor) {
  const auto from = static_cast<std::ptrdiff_t>(indexed.position);
  const auto count = static_cast<std::ptrdiff_t>(indexed.common.size());
  std::rotate(tensor.sizes.begin(), tensor.sizes.begin() + from, tensor.sizes.begin() + from + count);
  std::rotate(tensor.strides.begin(), tensor.strides.begin() + from, tensor.strides.begin() + from + count);
  return tensor;
}

// `rows` is [positions..., block...].
IndexedBlocks blocks_of(const Indexed& indexed, const Tensor& self, const Tensor& rows) {
  IndexedBlocks blocks{};
  blocks.positions = shape_of(indexed.common);
  blocks.block = shape_of(indexed.block_sizes);
  blocks.block_count = count_elements(indexed.block_sizes);
  blocks.offsets = indexed.offsets.data<std::int64_t>();
  blocks.indexed.data = self.bytes();
  std::copy(indexed.block_strides.begin(), indexed.block_strides.end(), blocks.indexed.strides);
  static_cast<void>(shape_of(rows.sizes));
  blocks.rows.data = rows.bytes();
  std::copy(rows.strides.begin(), rows.strides.end(), blocks.rows.strides);
  return blocks;
}

Tensor read_blocks(KernelCall& call, const Tensor& self, const std::vector<Value>& indices,
                   Negative negative) {
  Scratch scratch(call);
  const Indexed indexed = resolve(scratch, self, indices, negative);
  Tensor out = call.make_result(0, self.dtype, indexed.sizes);
  if (!can_copy(self)) return out;
  scratch.launcher().launch(
      ReadBlocksTask{blocks_of(indexed, self, index_first(indexed, out)), bytes_of_element(self)},
      out.numel(), {&self, &out, &indexed.offsets});
  return out;
}
Value index(KernelCall& call) {
  return read_blocks(call, call.tensor(0), call[1].items(), Negative::kFromTheEnd);
}
Value embedding(KernelCall& call) {
  if (call.tensor(0).rank() != 2) throw KernelError("embedding: the weight has two dimensions");
  return read_blocks(call, call.tensor(0), {call[1]}, Negative::kRefused);
}
// The dimension's index between dimensions that are taken whole.
std::vector<Value> index_at(std::size_t dim, const Value& index) {
  std::vector<Value> indices(dim + 1);
  indices[dim] = index;
  return indices;
}
Value index_select(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  if (self.rank() == 0) throw KernelError("index_select: on a device of tensors with dimensions");
  Tensor index = call.tensor(2);
  if (index.rank() == 0) index = index.view({1}, {1}, index.offset);
  return read_blocks(call, self, index_at(dim, index), Negative::kRefused);
}

// ---- writes -------------------------------------------------------------------------------

// target += rows at the offsets, in the compute type. `skipped`: an offset that is left out.
void add_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped) {
  const DType dtype = computed_dtype(target.dtype);
  const Tensor sum = scratch.copied(target, dtype), from = scratch.dense(rows, dtype);
  const std::int64_t count = count_elements(indexed.common);
  with_real(target.dtype, [&](auto zero) {
    using C = decltype(zero);
    const IndexedBlocks blocks = blocks_of(indexed, sum, from);
    scratch.launcher().launch(AddBlocksTask<C>{blocks, count, skipped}, blocks.block_count,
                              {&sum, &from, &indexed.offsets});
  });
  cpu::copy_elements(sum, target);
}

// A target whose strides are those of its row-major copy: offsets are the same in both.
bool is_row_major(const Tensor& tensor) {
  return tensor.strides == contiguous_strides(tensor.sizes);
}

void put_blocks(KernelCall& call, const Tensor& target) {
  Scratch scratch(call);
  const bool adds = call.boolean(3);
  const Tensor& values = call.tensor(2);
  if (!adds || is_row_major(target)) {
    const Indexed indexed = resolve(scratch, target, call[1].items(), Negative::kFromTheEnd);
    if (count_elements(indexed.sizes) == 0 || !can_copy(target)) return;
    const cpu::Operand operand = cpu::broadcast_operand(values, indexed.sizes);
    const Tensor rows =
        index_first(indexed, {values.dtype, indexed.sizes, operand.strides, values.offset, values.storage});
    if (adds) return add_blocks(scratch, target, indexed, rows, -1);
    // Bits are moved: values of the target's dtype.
    const Tensor same = values.dtype == target.dtype ? rows : scratch.copied(rows, target.dtype);
    const IndexedBlocks blocks = blocks_of(indexed, target, same);
    return scratch.launcher().launch(
        WriteBlocksTask{blocks, count_elements(indexed.common), bytes_of_element(target)}, blocks.block_count,
        {&target, &same, &indexed.offsets});
  }
  const Tensor dense = scratch.copied(target, target.dtype);
  const Indexed indexed = resolve(scratch, dense, call[1].items(), Negative::kFromTheEnd);
  if (count_elements(indexed.sizes) == 0 || !can_copy(target)) return;
  const cpu::Operand operand = cpu::broadcast_operand(values, indexed.sizes);
  add_blocks(
      scratch, dense, indexed,
      index_first(indexed, {values.dtype, indexed.sizes, operand.strides, values.offset, values.storage}),
      -1);
  cpu::copy_elements(dense, target);
}

Tensor copy_of(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Tensor out = call.make_result(0, self.dtype, self.sizes);
  cpu::copy_elements(self, out);
  return out;
}
Value index_put(KernelCall& call) {
  Tensor out = copy_of(call);
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
  const std::size_t dim = cpu::checked_dim(call.integer(1), target.rank());
  const Tensor source = scratch.dense(call.tensor(3), computed_dtype(target.dtype));
  const Tensor alpha = scratch.filled(source.dtype, {}, call[4]);
  const Tensor scaled = scratch.map(ElementOp::kMul, {&source, &alpha});
  const Tensor dense = scratch.copied(target, target.dtype);
  const Indexed indexed = resolve(scratch, dense, index_at(dim, call[2]), Negative::kRefused);
  if (indexed.sizes != scaled.sizes) throw KernelError("index_add: a row of the source per index");
  if (scaled.numel() == 0 || !can_copy(dense)) return;
  add_blocks(scratch, dense, indexed, index_first(indexed, scaled), -1);
  cpu::copy_elements(dense, target);
}
Value index_add(KernelCall& call) {
  Tensor out = copy_of(call);
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
  scratch.launcher().launch(
      CountUsesTask{indexed.offsets.data<std::int64_t>(), uses.numel(), uses.data<std::int64_t>()},
      uses.numel(), {&indexed.offsets, &uses});
  const Tensor rows = as_matrix(scratch.dense(grad, dtype), uses.numel(), grad.sizes.back());
  const Tensor divided = scratch.map(ElementOp::kDiv, {&rows, &uses});
  return divided.view(grad.sizes, contiguous_strides(grad.sizes), 0);
}

// Rows of grad added to the rows of their indices; padding_idx gets nothing.
Value embedding_backward(KernelCall& call) {
  const Tensor& grad = call.tensor(0);
  const std::int64_t weights = call.integer(2), padding = call.integer(3), length = grad.sizes.back();
  const DType dtype = with_float(grad.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  Scratch scratch(call);
  const Tensor sum = scratch.filled(dtype, {weights, length}, Value(0.0));
  const Indexed indexed = resolve(scratch, sum, {call[1]}, Negative::kRefused);
  if (grad.numel() != 0 && can_copy(sum))
    add_blocks(scratch, sum, indexed, call.boolean(4) ? divide_by_uses(scratch, indexed, grad, dtype) : grad,
               padding < 0 ? -1 : padding * length);
  return store_result(call, 0, grad.dtype, {weights, length}, sum);
}

// ---- an index of the tensor's rank --------------------------------------------------------

AlongIndex along_index(Launcher& launcher, const Tensor& tensor, const Tensor& index, std::size_t dim) {
  if (index.rank() != tensor.rank())
    throw KernelError("the index has another number of dimensions than the tensor");
  AlongIndex along{};
  along.shape = shape_of(index.sizes);
  along.index = strided(index, index.sizes);
  along.index.stored = stored_of(index.dtype);
  along.dim = static_cast<int>(dim);
  along.limit = tensor.rank() == 0 ? 1 : tensor.sizes[dim];
  along.sink = launcher.sink();
  return along;
}
Strided plain_strides(const Tensor& tensor) {
  Strided result{};
  result.data = tensor.bytes();
  std::copy(tensor.strides.begin(), tensor.strides.end(), result.strides);
  return result;
}

Value gather(KernelCall& call) {
  const Tensor &self = call.tensor(0), &index = call.tensor(2);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  Tensor out = call.make_result(0, self.dtype, index.sizes);
  Launcher& launcher = launcher_of(call);
  const AlongIndex along = along_index(launcher, self, index, dim);
  if (self.numel() == 0 && index.numel() != 0) throw KernelError("gather from an empty tensor");
  launcher.launch(GatherTask{along, plain_strides(self), plain_strides(out), bytes_of_element(self)},
                  index.numel(), {&self, &index, &out});
  return out;
}

// `target` = or += the source, a tensor (its part under the index) or a number.
struct Scatter {
  std::size_t dim;
  const Tensor& index;
  const Value& source;
  bool adds;
};
void scatter_into(KernelCall& call, const Tensor& target, const Scatter& scatter) {
  const Tensor& index = scatter.index;
  if (index.numel() == 0) return;
  if (target.numel() == 0) throw KernelError("scatter into an empty tensor");
  Scratch scratch(call);
  const DType dtype = computed_dtype(target.dtype);
  const Tensor sum = scratch.copied(target, dtype);
  Tensor source;
  if (scatter.source.is_tensor()) {
    Tensor part = scatter.source.tensor();
    if (part.rank() != index.rank())
      throw KernelError("scatter: src and index have different numbers of dimensions");
    for (std::size_t d = 0; d < part.rank(); ++d)
      if (index.sizes[d] > part.sizes[d]) throw KernelError("scatter: the index is larger than src");
    part.sizes = index.sizes;
    source = scratch.dense(part, dtype);
  } else {
    source = scratch.filled(dtype, {}, scatter.source);
  }
  std::int64_t inner = 1;
  for (std::size_t d = scatter.dim + 1; d < index.rank(); ++d) inner *= index.sizes[d];
  const std::int64_t length = index.rank() == 0 ? 1 : index.sizes[scatter.dim];
  with_real(target.dtype, [&](auto zero) {
    using C = decltype(zero);
    const ScatterTask<C> task{along_index(scratch.launcher(), sum, index, scatter.dim),
                              plain_strides(sum),
                              plain_strides(source),
                              inner,
                              length,
                              scatter.adds,
                              !scatter.source.is_tensor()};
    scratch.launcher().launch(task, index.numel() / length, {&sum, &index, &source});
  });
  cpu::copy_elements(sum, target);
}
template <bool kAdds>
Scatter read_scatter(KernelCall& call) {
  return {cpu::checked_dim(call.integer(1), call.tensor(0).rank()), call.tensor(2), call[3], kAdds};
}
template <bool kAdds>
Value scatter(KernelCall& call) {
  Tensor out = copy_of(call);
  scatter_into(call, out, read_scatter<kAdds>(call));
  return out;
}
template <bool kAdds>
Value scatter_in_place(KernelCall& call) {
  scatter_into(call, call.tensor(0), read_scatter<kAdds>(call));
  return call.tensor(0);
}
Value deterministic_scatter_add(KernelCall& call) {
  Tensor out = copy_of(call);
  scatter_into(call, out, {0, call.tensor(1), call[2], true});
  return out;
}

// ---- counts -------------------------------------------------------------------------------

Value repeat_interleave(KernelCall& call) {
  Scratch scratch(call);
  Launcher& launcher = scratch.launcher();
  const Tensor& self = call.tensor(0);
  const Tensor ends = scratch.copied(self, DType::kInt64);
  const std::int64_t rows = ends.numel();
  launcher.launch(CumulativeTask<std::int64_t>{ends.data<std::int64_t>(), rows}, rows == 0 ? 0 : 1, {&ends});
  std::int64_t count = 0;
  if (!call[1].is_none()) {
    count = call.integer(1);
  } else if (rows != 0) {  // the host must know the size
    const Tensor last = launcher.download(ends.view({}, {}, rows - 1));
    count = *last.data<std::int64_t>();
  }
  launcher.launch(CheckCountsTask{ends.data<std::int64_t>(), rows, count, launcher.sink()}, 1, {&ends});
  const Tensor out = scratch.make(DType::kInt64, {count});
  launcher.launch(RepeatTask{ends.data<std::int64_t>(), rows, out.data<std::int64_t>()}, count,
                  {&ends, &out});
  return store_result(call, 0, self.dtype, {count}, out);
}

constexpr KernelRow kRows[] = {
    {"aten._unsafe_index.Tensor", index},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.embedding.default", embedding},
    {"aten.embedding_dense_backward.default", embedding_backward},
    {"aten.gather.default", gather},
    {"aten.index.Tensor", index},
    {"aten.index_add.default", index_add},
    {"aten.index_add_.default", index_add_in_place},
    {"aten.index_put.default", index_put},
    {"aten.index_put_.default", index_put_in_place},
    {"aten.index_select.default", index_select},
    {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten.scatter.src", scatter<false>},
    {"aten.scatter.value", scatter<false>},
    {"aten.scatter_.src", scatter_in_place<false>},
    {"aten.scatter_.value", scatter_in_place<false>},
    {"aten.scatter_add.default", scatter<true>},
    {"aten.scatter_add_.default", scatter_in_place<true>},
    {"torchtitan.deterministic_scatter_add.default", deterministic_scatter_add},
};

}  // namespace

std::span<const KernelRow> index_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
