// The blocks of a tensor that index tensors name, as `self[indices]` reads and writes them: found
// on the device, then read, written or added to.
//
// A wrong index is a fault that the host sees where it waits for the device. A bool mask as index
// is counted by the host, as in PyTorch: it waits for the device.
#pragma once

#include "replay/kernels/device/scratch.h"
#include "replay/kernels/ops/index_call.h"

namespace epweave::replay::device {

// Throws KernelError for elements that no kernel moves.
int bytes_of_element(const Tensor& tensor);

enum class Negative : std::uint8_t { kRefused, kFromTheEnd };

// self[indices] and where each position's block of self begins.
struct Indexed : cpu::IndexCall {
  Tensor offsets;  // int64, by position
};
using cpu::index_first;

// The positions sorted by offset, those of one offset in their order.
Scratch::Sorted sort_positions(Scratch& scratch, const Indexed& indexed);
SortedPositions read_sorted(const Scratch::Sorted& sorted);

Indexed resolve(Scratch& scratch, const Tensor& self, const std::vector<Value>& given, Negative negative);

// Indices of which only that of a dimension is given: the dimensions before it are taken whole.
std::vector<Value> index_at(std::size_t dim, const Value& index);

// A tensor that is broadcast to `indexed.sizes`, as [positions..., block...].
Tensor broadcast_rows(const Indexed& indexed, const Tensor& values);

// `rows` is [positions..., block...] in all of these. out = self at the offsets:
void read_blocks(Scratch& scratch, const Tensor& self, const Indexed& indexed, const Tensor& rows);
// target = rows at the offsets; where several meet the last one stays.
void write_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows);
// sum += rows at the offsets, ascending. `sum` is of a compute type. `skipped`: an offset that is
// left out; -1: none.
void add_blocks_in_place(Scratch& scratch, const Tensor& sum, const Indexed& indexed, const Tensor& rows,
                         std::int64_t skipped = -1);
// The same in the compute type of any target that has the strides of its row-major copy.
void add_blocks(Scratch& scratch, const Tensor& target, const Indexed& indexed, const Tensor& rows,
                std::int64_t skipped = -1);

}  // namespace epweave::replay::device
