// The blocks of a tensor that index tensors name, as `self[indices]` reads and writes them: found,
// then read, written or added to.
//
// Where several meet in one place they are added in the order of the index, one at a time; without
// adding the last one stays. A wrong index is refused: at once on the CPU, on a device where the
// host waits. A bool mask as index is counted by the host, as in PyTorch: it waits for the device.
#pragma once

#include "replay/kernels/ops/index_call.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {

enum class Negative : std::uint8_t { kRefused, kFromTheEnd };

// self[indices] and where each position's block of self begins.
struct Indexed : cpu::IndexCall {
  Tensor offsets;  // int64, by position
};
Indexed resolve(Scratch& scratch, const Tensor& self, const std::vector<Value>& given, Negative negative);

// Indices of which only that of a dimension is given: the dimensions before it are taken whole.
std::vector<Value> index_at(std::size_t dim, const Value& index);

// A tensor that is broadcast to `indexed.sizes`, as [positions..., block...].
Tensor broadcast_rows(const Indexed& indexed, const Tensor& values);

// `rows` is [positions..., block...] in all of these. rows = self at the offsets, of one dtype:
void read_blocks(Scratch& scratch, const Tensor& self, const Indexed& indexed, const Tensor& rows);
// target = rows at the offsets.
void write_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows);
// target += rows at the offsets, in the target's compute type. `skipped`: an offset that is left
// out; -1: none.
void add_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped = -1);

// The positions sorted by offset, those of one offset in their order.
Scratch::Sorted sort_positions(Scratch& scratch, const Indexed& indexed);
tasks::SortedPositions read_sorted(const Scratch::Sorted& sorted);

}  // namespace epweave::replay::shared
