#include "replay/kernels/shared/blocks.h"

#include <cstring>

#include "replay/kernels/shared/whole_rows.h"

namespace epweave::replay::shared {
namespace {

using tasks::IndexedBlocks;

// Bool masks become the indices of their true elements, which the host finds.
void expand_mask(Scratch& scratch, const Tensor& mask, std::vector<Value>& to) {
  HostMemory memory;
  for (const Buffer<std::int64_t>& column : cpu::find_true(scratch.download(mask))) {
    const Tensor indices = make_tensor(memory, DType::kInt64, {static_cast<std::int64_t>(column.size())});
    if (!column.empty()) std::memcpy(indices.bytes(), column.data(), column.size() * sizeof(std::int64_t));
    to.emplace_back(scratch.place(indices));
  }
}

// On the CPU: the rows in the target's compute type, row-major and not in its storage, which is
// written.
Tensor summands(Scratch& scratch, const Tensor& rows, const Tensor& target) {
  const DType dtype = computed_dtype(target.dtype);
  return rows.storage == target.storage ? scratch.copied(rows, dtype) : scratch.dense(rows, dtype);
}

// ---- a device -----------------------------------------------------------------------------

IndexedBlocks blocks_of(const Indexed& indexed, const Tensor& self, const Tensor& rows) {
  IndexedBlocks blocks{};
  blocks.positions = shape_of(indexed.common);
  blocks.block = shape_of(indexed.block_sizes);
  blocks.block_count = count_elements(indexed.block_sizes);
  blocks.offsets = indexed.offsets.data<std::int64_t>();
  blocks.indexed.data = self.bytes();
  std::copy(indexed.block_strides.begin(), indexed.block_strides.end(), blocks.indexed.strides);
  blocks.rows = plain_strides(rows);
  return blocks;
}

// The same of blocks that are dense, and of rows as [positions, block].
struct DensePlaces {
  Tensor rows;
  std::int64_t length;  // elements of a block
};
std::optional<DensePlaces> find_dense_places(const Indexed& indexed, const Tensor& self, const Tensor& rows) {
  const std::optional<Tensor> matrix = find_matrix(rows, indexed.common.size());
  const Tensor block{self.dtype, indexed.block_sizes, indexed.block_strides, 0, self.storage};
  const std::int64_t length = count_elements(indexed.block_sizes);
  if (!matrix || (matrix->strides[1] != 1 && length != 1) || !block.is_contiguous()) return std::nullopt;
  return DensePlaces{*matrix, length};
}
std::optional<tasks::DenseBlocks> dense_blocks(const Indexed& indexed, const Tensor& self,
                                               const Tensor& rows) {
  const std::optional<DensePlaces> dense = find_dense_places(indexed, self, rows);
  if (!dense) return std::nullopt;
  const int element = bytes_of_element(self);
  const std::int64_t bytes = dense->length * element;
  return tasks::DenseBlocks{self.bytes(),
                            rows.bytes(),
                            dense->rows.strides[0] * element,
                            bytes,
                            (bytes + static_cast<std::int64_t>(sizeof(tasks::Bytes16)) - 1) /
                                static_cast<std::int64_t>(sizeof(tasks::Bytes16)),
                            element};
}

// The target has the strides that `indexed` was found with.
void add_on_device(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                   std::int64_t skipped) {
  const bool is_read_in_place =
      rows.storage != target.storage && computed_dtype(rows.dtype) == computed_dtype(target.dtype);
  const Tensor from = is_read_in_place ? rows : scratch.copied(rows, computed_dtype(target.dtype));
  const Scratch::Sorted sorted = sort_positions(scratch, indexed);
  const std::initializer_list<const Tensor*> tensors{&target, &from, &indexed.offsets, &sorted.values,
                                                     &sorted.indices};
  const std::optional<DensePlaces> dense = find_dense_places(indexed, target, from);
  if (dense && computed_dtype(target.dtype) == DType::kFloat32) {
    const std::int64_t fours = (dense->length + 3) / 4;
    return scratch.launch(
        tasks::AddDenseBlocksTask{{target.bytes(), 1, stored_of(target.dtype)},
                                  {from.bytes(), dense->rows.strides[0], stored_of(from.dtype)},
                                  dense->length,
                                  fours,
                                  read_sorted(sorted),
                                  skipped},
        sorted.values.numel() * fours, tensors);
  }
  IndexedBlocks blocks = blocks_of(indexed, target, from);
  blocks.indexed.stored = stored_of(target.dtype);
  blocks.rows.stored = stored_of(from.dtype);
  with_any(target.dtype, [&](auto zero) {
    scratch.launch(tasks::AddBlocksTask<decltype(zero)>{blocks, read_sorted(sorted), skipped},
                   sorted.values.numel() * blocks.block_count, tensors);
  });
}

// ---- the CPU: a block at a time -----------------------------------------------------------

// Calls visit(offset of the position's block, that of its rows) in the order of the positions.
template <class Visit>
void for_each_block_of(const Indexed& indexed, const Tensor& rows, const Visit& visit) {
  const auto* offsets = indexed.offsets.data<std::int64_t>();
  cpu::for_each_position(rows, indexed.common.size(),
                         [&](std::size_t i, std::int64_t offset) { visit(offsets[i], offset); });
}
Tensor block_of(const Tensor& tensor, const Indexed& indexed) {
  return {tensor.dtype, indexed.block_sizes, indexed.block_strides, 0, tensor.storage};
}

// Copies blocks that are dense, single elements among them, as bytes.
class BlockCopy {
 public:
  BlockCopy(Tensor from, Tensor to) : from_(std::move(from)), to_(std::move(to)) {
    if (from_.dtype == to_.dtype && from_.is_contiguous() && to_.is_contiguous())
      bytes_ = static_cast<std::size_t>(from_.numel()) * from_.element_bytes();
  }
  void copy(std::int64_t from, std::int64_t to) {
    from_.offset = from;
    to_.offset = to;
    if (bytes_ != 0)
      std::memcpy(to_.bytes(), from_.bytes(), bytes_);
    else
      cpu::copy_elements(from_, to_);
  }

 private:
  Tensor from_, to_;
  std::size_t bytes_ = 0;
};

// Of a target whose blocks are dense and of the compute type: a sum in place.
template <class C>
void add_in_place(const Tensor& target, const Indexed& indexed, const Tensor& from, std::int64_t skipped) {
  const std::int64_t length = count_elements(indexed.block_sizes);
  for_each_block_of(indexed, from, [&](std::int64_t at, std::int64_t offset) {
    if (at == skipped) return;
    C* to = target.data<C>() + at;
    const C* source = reinterpret_cast<const C*>(from.storage->data()) + offset;
    for (std::int64_t j = 0; j < length; ++j) to[j] = to[j] + source[j];
  });
}
// Of any other: each block that is added to is summed up in the compute type and stored once.
template <class C>
void add_by_target(const Tensor& target, const Indexed& indexed, const Tensor& from,
                   const Scratch::Sorted& sorted) {
  const std::int64_t length = count_elements(indexed.block_sizes);
  const tasks::SortedPositions positions = read_sorted(sorted);
  Tensor block = block_of(target, indexed);
  Buffer<C> sum;
  for (std::int64_t s = 0; s < positions.count; ++s) {
    block.offset = target.offset + positions.offsets[s];
    if (positions.is_first(s)) sum = cpu::dense<C>(block);
    const C* source = from.data<C>() + positions.positions[s] * length;
    for (std::int64_t j = 0; j < length; ++j)
      sum[static_cast<std::size_t>(j)] = sum[static_cast<std::size_t>(j)] + source[j];
    if (positions.is_last(s)) cpu::store_dense(sum, block);
  }
}
void add_on_cpu(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped) {
  const Tensor from = summands(scratch, rows, target);
  cpu::with_compute(target.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if (target.dtype == from.dtype && block_of(target, indexed).is_contiguous())
      return add_in_place<C>(target, indexed, from, skipped);
    EPWEAVE_CHECK(skipped == -1);
    add_by_target<C>(target, indexed, from, sort_positions(scratch, indexed));
  });
}

}  // namespace

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
  bool is_first = true;
  for (std::size_t d = 0; d < result.indices.size(); ++d) {
    if (result.indices[d].is_none()) continue;
    if (is_first) result.offsets = scratch.make(DType::kInt64, {count});
    const Tensor& index = result.indices[d].tensor();
    tasks::Strided named = strided(index, result.common);
    named.stored = stored_of(index.dtype);
    scratch.launch(
        tasks::ResolveIndexTask{shape_of(result.common), named, result.offsets.data<std::int64_t>(),
                                self.sizes[d], self.strides[d], scratch.sink(),
                                negative == Negative::kFromTheEnd, is_first},
        count, {&index, &result.offsets});
    is_first = false;
  }
  if (is_first) result.offsets = scratch.filled(DType::kInt64, {count}, Value(std::int64_t{0}));
  return result;
}

std::vector<Value> index_at(std::size_t dim, const Value& index) {
  std::vector<Value> indices(dim + 1);
  indices[dim] = index;
  return indices;
}

Tensor broadcast_rows(const Indexed& indexed, const Tensor& values) {
  const cpu::Operand operand = cpu::broadcast_operand(values, indexed.sizes);
  return cpu::index_first(indexed,
                          {values.dtype, indexed.sizes, operand.strides, values.offset, values.storage});
}

void read_blocks(Scratch& scratch, const Tensor& self, const Indexed& indexed, const Tensor& rows) {
  if (rows.numel() == 0) return;
  if (scratch.queue() != nullptr) {
    const std::initializer_list<const Tensor*> tensors{&self, &rows, &indexed.offsets};
    if (const std::optional<tasks::DenseBlocks> blocks = dense_blocks(indexed, self, rows))
      return scratch.launch(tasks::ReadDenseBlocksTask{*blocks, indexed.offsets.data<std::int64_t>()},
                            indexed.offsets.numel() * blocks->pieces, tensors);
    return scratch.launch(tasks::ReadBlocksTask{blocks_of(indexed, self, rows), bytes_of_element(self)},
                          rows.numel(), tensors);
  }
  BlockCopy blocks(block_of(self, indexed), cpu::block_at(rows, indexed.common.size(), 0));
  for_each_block_of(indexed, rows,
                    [&](std::int64_t at, std::int64_t offset) { blocks.copy(self.offset + at, offset); });
}

Scratch::Sorted sort_positions(Scratch& scratch, const Indexed& indexed) {
  return scratch.sort_rows(as_matrix(indexed.offsets, 1, indexed.offsets.numel()),
                           Scratch::Direction::kAscending);
}
tasks::SortedPositions read_sorted(const Scratch::Sorted& sorted) {
  return {sorted.values.data<std::int64_t>(), sorted.indices.data<std::int64_t>(), sorted.values.numel()};
}

void write_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows) {
  if (rows.numel() == 0) return;
  // Rows that lie in the target's memory are those of before.
  const bool is_own = rows.storage == target.storage;
  if (scratch.queue() == nullptr) {
    const Tensor from = is_own ? scratch.copied(rows, rows.dtype) : rows;
    BlockCopy blocks(cpu::block_at(from, indexed.common.size(), 0), block_of(target, indexed));
    for_each_block_of(indexed, from,
                      [&](std::int64_t at, std::int64_t offset) { blocks.copy(offset, target.offset + at); });
    return;
  }
  // Bits are moved: rows of the target's dtype.
  const Tensor same = rows.dtype == target.dtype && !is_own ? rows : scratch.copied(rows, target.dtype);
  const Scratch::Sorted sorted = sort_positions(scratch, indexed);
  if (const std::optional<tasks::DenseBlocks> dense = dense_blocks(indexed, target, same))
    return scratch.launch(tasks::WriteDenseBlocksTask{*dense, read_sorted(sorted)},
                          sorted.values.numel() * dense->pieces,
                          {&target, &same, &indexed.offsets, &sorted.values, &sorted.indices});
  const IndexedBlocks blocks = blocks_of(indexed, target, same);
  scratch.launch(tasks::WriteBlocksTask{blocks, read_sorted(sorted), bytes_of_element(target)},
                 sorted.values.numel() * blocks.block_count,
                 {&target, &same, &indexed.offsets, &sorted.values, &sorted.indices});
}

void add_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped) {
  if (rows.numel() == 0) return;
  if (scratch.queue() == nullptr) return add_on_cpu(scratch, target, indexed, rows, skipped);
  add_on_device(scratch, target, indexed, rows, skipped);
}

}  // namespace epweave::replay::shared
