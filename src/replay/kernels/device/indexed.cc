#include "replay/kernels/device/indexed.h"

#include <algorithm>
#include <cstring>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// The mask's indices, found by the host.
void expand_mask(Scratch& scratch, const Tensor& mask, std::vector<Value>& to) {
  for (const Buffer<std::int64_t>& column : cpu::find_true(scratch.launcher().download(mask))) {
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
    if (cpu::is_mask(index))
      expand_mask(scratch, index.tensor(), indices);
    else
      indices.push_back(index);
  }
  Indexed result{cpu::read_indices(self, std::move(indices)), {}};
  const std::int64_t count = count_elements(result.common);
  result.offsets = scratch.filled(DType::kInt64, {count}, Value(std::int64_t{0}));
  for (std::size_t d = 0; d < result.indices.size(); ++d) {
    if (result.indices[d].is_none()) continue;
    const Tensor& index = result.indices[d].tensor();
    Strided named = strided(index, result.common);
    named.stored = stored_of(index.dtype);
    scratch.launcher().launch(
        ResolveIndexTask{shape_of(result.common), named, result.offsets.data<std::int64_t>(), self.sizes[d],
                         self.strides[d], scratch.launcher().sink(), negative == Negative::kFromTheEnd},
        count, {&index, &result.offsets});
  }
  return result;
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
