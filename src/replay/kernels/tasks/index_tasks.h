// Kernels that read or write elements named by an index tensor; see tasks.h.
//
// Where several sources meet in one destination they are added in ascending row-major order of the
// index, one at a time. Blocks: positions are sorted by destination, a thread adds up those of one.
// An index of the tensor's rank: a thread goes through a column of it.
#pragma once

#include "replay/kernels/tasks/whole_row_tasks.h"

namespace epweave::replay::tasks {

// offsets[p] += index[p] * stride, the index broadcast to `shape`. `is_first`: they are 0 before.
// `allows_negative`: counted from the end.
struct ResolveIndexTask {
  Shape shape;
  Strided index;
  std::int64_t* offsets;
  std::int64_t size, stride;  // of the indexed dimension
  FaultSink sink;
  bool allows_negative, is_first;

  EPWEAVE_HD void run(std::int64_t p) const {
    std::int64_t i =
        math::load_element<std::int64_t>(index.data, index.stored, offset_of(shape, index.strides, p));
    std::int64_t offset = is_first ? 0 : offsets[p];
    if (size == 0) {
      sink.raise(FaultCode::kIndex, i, size);
    } else {
      if (allows_negative && i < 0 && i >= -size) i += size;
      offset += sink.check_index(i, size) * stride;
    }
    offsets[p] = offset;
  }
};

// The blocks that offsets name, and a tensor of [positions..., block...]: element (p, b) of both.
struct IndexedBlocks {
  Shape positions, block;
  std::int64_t block_count;  // elements of a block
  const std::int64_t* offsets;
  Strided indexed;  // strides over `block`
  Strided rows;     // strides over `positions`, then over `block`

  EPWEAVE_HD std::int64_t indexed_at(std::int64_t p, std::int64_t b) const {
    return offsets[p] + offset_of(block, indexed.strides, b);
  }
  EPWEAVE_HD std::int64_t rows_at(std::int64_t p, std::int64_t b) const {
    return offset_of(positions, rows.strides, p) + offset_of(block, rows.strides + positions.rank, b);
  }
};
// rows = indexed. Index: p * block_count + b.
struct ReadBlocksTask {
  IndexedBlocks blocks;
  int bytes;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t p = i / blocks.block_count, b = i % blocks.block_count;
    copy_bits(blocks.rows.data, blocks.rows_at(p, b), blocks.indexed.data, blocks.indexed_at(p, b), bytes);
  }
};
// Positions sorted by their offset, those of one offset ascending: a thread per (offset, element of
// the block).
struct SortedPositions {
  const std::int64_t* offsets;
  const std::int64_t* positions;
  std::int64_t count;

  EPWEAVE_HD bool is_first(std::int64_t s) const { return s == 0 || offsets[s - 1] != offsets[s]; }
  EPWEAVE_HD bool is_last(std::int64_t s) const { return s + 1 == count || offsets[s + 1] != offsets[s]; }
};
// indexed = rows: of several in one place the last one stays. Index: s * block_count + b.
struct WriteBlocksTask {
  IndexedBlocks blocks;
  SortedPositions sorted;
  int bytes;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t s = i / blocks.block_count, b = i % blocks.block_count;
    if (!sorted.is_last(s)) return;
    const std::int64_t p = sorted.positions[s];
    copy_bits(blocks.indexed.data, blocks.indexed_at(p, b), blocks.rows.data, blocks.rows_at(p, b), bytes);
  }
};
// indexed += rows, position after position, in the compute type, and stored once. Index: s *
// block_count + b.
template <class C>
struct AddBlocksTask {
  IndexedBlocks blocks;
  SortedPositions sorted;
  std::int64_t skipped;  // the offset of positions that are left out; -1: none

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t s = i / blocks.block_count, b = i % blocks.block_count;
    if (!sorted.is_first(s) || sorted.offsets[s] == skipped) return;
    const Strided &to = blocks.indexed, &from = blocks.rows;
    const std::int64_t place = blocks.indexed_at(sorted.positions[s], b);
    C sum = math::load_element<C>(to.data, to.stored, place);
    for (std::int64_t at = s;; ++at) {
      sum = sum + math::load_element<C>(from.data, from.stored, blocks.rows_at(sorted.positions[at], b));
      if (sorted.is_last(at)) break;
    }
    math::store_element(to.data, to.stored, place, sum);
  }
};

// ---- blocks that are dense ----------------------------------------------------------------

// Blocks and rows of `bytes` bytes that lie one behind the other, as pieces of 16 bytes, the last
// of them shorter.
struct DenseBlocks {
  void* indexed;
  void* rows;
  std::int64_t row_stride, bytes, pieces;  // the first two in bytes
  int element;                             // bytes of an element

  EPWEAVE_HD std::byte* block(std::int64_t offset) const {
    return static_cast<std::byte*>(indexed) + offset * element;
  }
  EPWEAVE_HD std::byte* row(std::int64_t position) const {
    return static_cast<std::byte*>(rows) + position * row_stride;
  }
  EPWEAVE_HD void copy(std::byte* to, const std::byte* from, std::int64_t piece) const {
    constexpr std::int64_t kPiece = sizeof(Bytes16);
    const std::int64_t first = piece * kPiece;
    to += first;
    from += first;
    if (first + kPiece <= bytes && is_aligned<Bytes16>(to) && is_aligned<Bytes16>(from)) {
      store_vector(reinterpret_cast<Bytes16*>(to), *reinterpret_cast<const Bytes16*>(from));
      return;
    }
    const std::int64_t left = bytes - first < kPiece ? bytes - first : kPiece;
    for (std::int64_t i = 0; i < left / element; ++i) copy_bits(to, i, from, i, element);
  }
};
// rows = indexed. Index: p * pieces + piece.
struct ReadDenseBlocksTask {
  DenseBlocks blocks;
  const std::int64_t* offsets;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t p = i / blocks.pieces;
    blocks.copy(blocks.row(p), blocks.block(offsets[p]), i % blocks.pieces);
  }
};
// indexed = rows: of several in one place the last one stays. Index: s * pieces + piece.
struct WriteDenseBlocksTask {
  DenseBlocks blocks;
  SortedPositions sorted;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t s = i / blocks.pieces;
    if (!sorted.is_last(s)) return;
    blocks.copy(blocks.block(sorted.offsets[s]), blocks.row(sorted.positions[s]), i % blocks.pieces);
  }
};
// indexed += rows as AddBlocksTask, of what is computed in float32, four elements at a time.
// `indexed`: rows begin at offsets. Index: s * fours + four.
struct AddDenseBlocksTask {
  RowPlace indexed, rows;
  std::int64_t length, fours;  // of a block
  SortedPositions sorted;
  std::int64_t skipped;  // as in AddBlocksTask

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t s = i / fours, j = i % fours * 4;
    const std::int64_t offset = sorted.offsets[s];
    if (!sorted.is_first(s) || offset == skipped) return;
    float sum[4], x[4];
    indexed.load(offset, j, length, sum);
    for (std::int64_t at = s;; ++at) {
      rows.load(sorted.positions[at], j, length, x);
      EPWEAVE_UNROLL
      for (int q = 0; q < 4; ++q) sum[q] = sum[q] + x[q];
      if (sorted.is_last(at)) break;
    }
    indexed.store(offset, j, length, sum);
  }
};

// counts[p] = how many positions name what position p names. Index: s.
struct CountUsesTask {
  SortedPositions sorted;
  std::int64_t* counts;

  EPWEAVE_HD void run(std::int64_t s) const {
    if (!sorted.is_first(s)) return;
    std::int64_t end = s;
    while (!sorted.is_last(end)) ++end;
    for (std::int64_t at = s; at <= end; ++at) counts[sorted.positions[at]] = end + 1 - s;
  }
};

// ---- an index of the tensor's rank --------------------------------------------------------

// `index` over `shape`, whose dimension `dim` names positions along that dimension of a tensor.
struct AlongIndex {
  Shape shape;
  Strided index;
  int dim;
  std::int64_t limit;  // extent of the tensor's dimension
  FaultSink sink;

  // The offset in a tensor of these strides that element i of the index names.
  EPWEAVE_HD std::int64_t target(const std::int64_t* strides, std::int64_t i) const {
    const std::int64_t named =
        math::load_element<std::int64_t>(index.data, index.stored, offset_of(shape, index.strides, i));
    const std::int64_t along = sink.check_index(named, limit);
    if (shape.rank == 0) return 0;
    std::int64_t offset = along * strides[dim];
    for (int d = shape.rank - 1; d >= 0; --d) {
      if (d != dim) offset += i % shape.sizes[d] * strides[d];
      i /= shape.sizes[d];
    }
    return offset;
  }
};
struct GatherTask {
  AlongIndex along;
  Strided from, out;  // out: strides over the index's shape
  int bytes;

  EPWEAVE_HD void run(std::int64_t i) const {
    copy_bits(out.data, offset_of(along.shape, out.strides, i), from.data, along.target(from.strides, i),
              bytes);
  }
};
// to[target] = or += source, in the order of the index. Both are of the compute type; the source is
// one number where `is_number`. Index: a column, all elements of the index that differ in `dim`
// only.
template <class C>
struct ScatterTask {
  AlongIndex along;
  Strided to, source;
  std::int64_t inner, length;  // elements of the index behind `dim`, and along it
  bool adds, is_number;

  EPWEAVE_HD void run(std::int64_t column) const {
    const std::int64_t first = column / inner * inner * length + column % inner;
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int64_t i = first + j * inner;
      C& target = static_cast<C*>(to.data)[along.target(to.strides, i)];
      const C value =
          static_cast<const C*>(source.data)[is_number ? 0 : offset_of(along.shape, source.strides, i)];
      target = adds ? target + value : value;
    }
  }
};

// The same with a reduction. `counts`: how many numbers each element of `to` is made of; both are
// row-major and of the compute type, as the source is. Index: a column.
enum class ScatterOp : std::uint8_t { kSum, kProduct, kLargest, kSmallest };
template <class C>
struct ScatterReduceTask {
  AlongIndex along;
  Strided to, source;
  std::int64_t* counts;
  std::int64_t inner, length;
  ScatterOp op;

  EPWEAVE_HD void run(std::int64_t column) const {
    const std::int64_t first = column / inner * inner * length + column % inner;
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int64_t i = first + j * inner, at = along.target(to.strides, i);
      C& target = static_cast<C*>(to.data)[at];
      const C value = static_cast<const C*>(source.data)[offset_of(along.shape, source.strides, i)];
      target = counts[at]++ == 0 ? value : combine(target, value);
    }
  }

 private:
  EPWEAVE_HD C combine(C a, C b) const {
    switch (op) {
      case ScatterOp::kLargest:
        return a != a ? a : b != b ? b : a < b ? b : a;
      case ScatterOp::kSmallest:
        return a != a ? a : b != b ? b : b < a ? b : a;
      default:
        if constexpr (math::is_int<C>)
          return op == ScatterOp::kSum ? math::wrapping_add(a, b) : math::wrapping_mul(a, b);
        else
          return op == ScatterOp::kSum ? a + b : a * b;
    }
  }
};
// data[i] /= counts[i], of integers rounded down; 0 and 1 leave it.
template <class C>
struct DivideByCountTask {
  C* data;
  const std::int64_t* counts;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t n = counts[i];
    if (n <= 1) return;
    if constexpr (math::is_int<C>)
      data[i] = data[i] / n - (data[i] % n < 0 ? 1 : 0);
    else
      data[i] = data[i] / static_cast<C>(n);
  }
};

// ---- negative log likelihood --------------------------------------------------------------

// losses[r] = -x[r, target] * weight[target], weights[r] = weight[target]; 0 where the target is
// ignored.
template <class C>
struct LossTask {
  const C* x;
  const C* weight;  // null: 1
  const std::int64_t* targets;
  std::int64_t classes, ignored;
  C* losses;
  C* weights;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t row) const {
    losses[row] = weights[row] = C(0);
    if (targets[row] == ignored) return;
    const std::int64_t target = sink.check_index(targets[row], classes);
    weights[row] = weight == nullptr ? C(1) : weight[target];
    losses[row] = -x[row * classes + target] * weights[row];
  }
};
// out[r, target] = -weight[target] * g, g being grad or grad / total; out is zeroed before.
template <class C>
struct LossBackwardTask {
  const C* grad;
  std::int64_t grad_stride;  // 0: one for all rows
  const C* weight;
  const C* total;  // null: not divided
  const std::int64_t* targets;
  std::int64_t classes, ignored;
  C* out;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t row) const {
    if (targets[row] == ignored) return;
    const std::int64_t target = sink.check_index(targets[row], classes);
    const C g = grad[row * grad_stride];
    const C scaled = total == nullptr ? g : g / total[0];
    out[row * classes + target] = -(weight == nullptr ? C(1) : weight[target]) * scaled;
  }
};

// ---- block tables -------------------------------------------------------------------------

// The pairs of blocks that attention looks at: 0 not at all, 1 masked, 2 all of it.
// cover[(row, column)] from the lists of two tables, of masked blocks and of full ones; rows are
// (batch, head, block). Index: the row.
struct BlockTable {
  const void *counts, *indices;  // [batch, head, row], [batch, head, row, width]; null: none
  Stored counts_stored, indices_stored;
  std::int64_t batches, heads, rows, width;  // batch and head may be 1 for all
};
struct CoverTask {
  BlockTable tables[2];
  std::int64_t all_heads, rows, columns;
  std::uint8_t* cover;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t row) const {
    for (std::int64_t k = 0; k < columns; ++k) cover[row * columns + k] = 0;
    for (int table = 0; table < 2; ++table)
      if (tables[table].indices != nullptr) mark(row, tables[table], static_cast<std::uint8_t>(table + 1));
  }

 private:
  EPWEAVE_HD void mark(std::int64_t row, const BlockTable& table, std::uint8_t value) const {
    const std::int64_t q = row % rows, h = row / rows % all_heads, b = row / rows / all_heads;
    const std::int64_t list =
        ((table.batches == 1 ? 0 : b) * table.heads + (table.heads == 1 ? 0 : h)) * table.rows + q;
    auto count = math::load_element<std::int64_t>(table.counts, table.counts_stored, list);
    if (count < 0 || count > table.width) {
      sink.raise(FaultCode::kBlock, count, table.width + 1);
      count = 0;
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const auto block =
          math::load_element<std::int64_t>(table.indices, table.indices_stored, list * table.width + k);
      if (block < 0 || block >= columns) return sink.raise(FaultCode::kBlock, block, columns);
      std::uint8_t& at = cover[row * columns + block];
      if (at != 0) return sink.raise(FaultCode::kTwice, block, 0);
      at = value;
    }
  }
};
// The tables by key must name the same pairs as those by query. Index: (batch, head, q block, k
// block).
struct CompareCoverTask {
  const std::uint8_t* by_query;  // [.., q block, k block]
  const std::uint8_t* by_key;    // [.., k block, q block]
  std::int64_t q_blocks, k_blocks;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t k = i % k_blocks, q = i / k_blocks % q_blocks, slab = i / k_blocks / q_blocks;
    if (by_query[i] != by_key[(slab * k_blocks + k) * q_blocks + q]) sink.raise(FaultCode::kTwice, k, 1);
  }
};
// Causal: queries of a block look at keys up to the last of them. Index: (q block, k block), as
// above.
struct CausalCoverTask {
  std::int64_t q_blocks, k_blocks, q_block, k_block, queries;
  std::uint8_t* cover;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t k = i % k_blocks, q = i / k_blocks % q_blocks;
    const std::int64_t end = (q + 1) * q_block;
    cover[i] = k * k_block <= (end < queries ? end : queries) - 1 ? 1 : 0;
  }
};

// ---- collectives --------------------------------------------------------------------------

enum class ReduceOp : std::uint8_t { kSum, kAvg, kMax, kMin, kProduct };
inline constexpr int kMaxMembers = 64;

// Bytes of several places, one place's behind the other's. A unit is 1, 2, 4, 8 or 16 bytes; each
// place begins and ends at one, and so does `to`.
struct MoveTask {
  const void* from[kMaxMembers];
  std::int64_t ends[kMaxMembers];  // of each place's units in `to`
  void* to;
  int unit;

  EPWEAVE_HD void run(std::int64_t i) const {
    int place = 0;
    while (i >= ends[place]) ++place;
    const std::int64_t at = place == 0 ? i : i - ends[place - 1];
    if (unit == sizeof(Bytes16))
      static_cast<Bytes16*>(to)[i] = static_cast<const Bytes16*>(from[place])[at];
    else
      copy_bits(to, i, from[place], at, unit);
  }
};

// out[i] = the members' elements first + i reduced in order (transport.h). Complex: float32 by
// parts.
struct ReduceTask {
  const void* operands[kMaxMembers];
  int members;
  std::int64_t first;
  void* out;
  Stored stored;
  ReduceOp op;

  EPWEAVE_HD void run(std::int64_t i) const {
    switch (stored) {
      case Stored::kFloat32:
      case Stored::kBfloat16:
      case Stored::kFloat16:
        return run_as<float>(i);
      case Stored::kFloat64:
        return run_as<double>(i);
      default:
        return run_as<std::int64_t>(i);
    }
  }

 private:
  // Integers wrap to their dtype after each step.
  EPWEAVE_HD std::int64_t wrapped(std::int64_t x) const {
    switch (stored) {
      case Stored::kInt8:
        return static_cast<std::int8_t>(x);
      case Stored::kUint8:
        return static_cast<std::uint8_t>(x);
      case Stored::kInt16:
        return static_cast<std::int16_t>(x);
      case Stored::kInt32:
        return static_cast<std::int32_t>(x);
      default:
        return x;
    }
  }
  template <class C>
  EPWEAVE_HD C combine(C a, C b) const {
    switch (op) {
      case ReduceOp::kMax:
        return a != a || a > b ? a : b;
      case ReduceOp::kMin:
        return a != a || a < b ? a : b;
      case ReduceOp::kProduct:
        if constexpr (math::is_int<C>)
          return wrapped(math::wrapping_mul(a, b));
        else
          return a * b;
      default:
        if constexpr (math::is_int<C>)
          return wrapped(math::wrapping_add(a, b));
        else
          return a + b;
    }
  }
  template <class C>
  EPWEAVE_HD void run_as(std::int64_t i) const {
    C sum = math::load_element<C>(operands[0], stored, first + i);
    for (int k = 1; k < members; ++k)
      sum = combine(sum, math::load_element<C>(operands[k], stored, first + i));
    if (op == ReduceOp::kAvg) sum = sum / static_cast<C>(members);
    math::store_element(out, stored, i, sum);
  }
};

}  // namespace epweave::replay::tasks
