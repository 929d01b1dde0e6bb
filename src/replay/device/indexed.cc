#include "replay/device/indexed.h"

#include <algorithm>
#include <cstring>

#include "replay/cpu/elements.h"

namespace epweave::replay::device {
namespace {

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

}  // namespace

int bytes_of_element(const Tensor& tensor) {
  if (tensor.element_bytes() > sizeof(std::uint64_t))
    throw KernelError("no kernel of a device moves " + std::string(info(tensor.dtype).name));
  return static_cast<int>(tensor.element_bytes());
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

Tensor index_first(const Indexed& indexed, Tensor tensor) {
  const auto from = static_cast<std::ptrdiff_t>(indexed.position);
  const auto count = static_cast<std::ptrdiff_t>(indexed.common.size());
  std::rotate(tensor.sizes.begin(), tensor.sizes.begin() + from, tensor.sizes.begin() + from + count);
  std::rotate(tensor.strides.begin(), tensor.strides.begin() + from, tensor.strides.begin() + from + count);
  return tensor;
}

std::vector<Value> index_at(std::size_t dim, const Value& index) {
  std::vector<Value> indices(dim + 1);
  indices[dim] = index;
  return indices;
}

Tensor broadcast_rows(const Indexed& indexed, const Tensor& values) {
  const cpu::Operand operand = cpu::broadcast_operand(values, indexed.sizes);
  return index_first(indexed, {values.dtype, indexed.sizes, operand.strides, values.offset, values.storage});
}

void read_blocks(Scratch& scratch, const Tensor& self, const Indexed& indexed, const Tensor& rows) {
  scratch.launcher().launch(ReadBlocksTask{blocks_of(indexed, self, rows), bytes_of_element(self)},
                            rows.numel(), {&self, &rows, &indexed.offsets});
}

Scratch::Sorted sort_positions(Scratch& scratch, const Indexed& indexed) {
  return scratch.sort_rows(as_matrix(indexed.offsets, 1, indexed.offsets.numel()),
                           Scratch::Direction::kAscending);
}
SortedPositions read_sorted(const Scratch::Sorted& sorted) {
  return {sorted.values.data<std::int64_t>(), sorted.indices.data<std::int64_t>(), sorted.values.numel()};
}

void write_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows) {
  // Bits are moved: rows of the target's dtype.
  const Tensor same = rows.dtype == target.dtype ? rows : scratch.copied(rows, target.dtype);
  const IndexedBlocks blocks = blocks_of(indexed, target, same);
  const Scratch::Sorted sorted = sort_positions(scratch, indexed);
  scratch.launcher().launch(WriteBlocksTask{blocks, read_sorted(sorted), bytes_of_element(target)},
                            sorted.values.numel() * blocks.block_count,
                            {&target, &same, &indexed.offsets, &sorted.values, &sorted.indices});
}

void add_blocks_in_place(Scratch& scratch, const Tensor& sum, const Indexed& indexed, const Tensor& rows,
                         std::int64_t skipped) {
  const Tensor from = scratch.dense(rows, sum.dtype);
  const Scratch::Sorted sorted = sort_positions(scratch, indexed);
  with_real(sum.dtype, [&](auto zero) {
    using C = decltype(zero);
    const IndexedBlocks blocks = blocks_of(indexed, sum, from);
    scratch.launcher().launch(AddBlocksTask<C>{blocks, read_sorted(sorted), skipped},
                              sorted.values.numel() * blocks.block_count,
                              {&sum, &from, &indexed.offsets, &sorted.values, &sorted.indices});
  });
}

void add_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped) {
  const Tensor sum = scratch.copied(target, computed_dtype(target.dtype));
  add_blocks_in_place(scratch, sum, indexed, rows, skipped);
  cpu::copy_elements(sum, target);
}

}  // namespace epweave::replay::device
