// On a device: ops of whole rows by one kernel each (tasks/whole_row_tasks.h), where the rows lie
// so that it can read them. It gives the bits of the steps of scratch.h.
#pragma once

#include <array>

#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {

// Rows whose elements lie one behind the other in a dtype that is computed in float32.
std::optional<tasks::RowPlace> find_place(const Rows& rows);
// The same of one row, for all.
std::optional<tasks::RowPlace> find_place_of_all(const Tensor& row);

template <class Op>
struct RowOperands {
  std::array<std::optional<tasks::RowPlace>, Op::kInputs> in;
  std::optional<tasks::RowPlace> out;  // of an op with results
  std::int64_t rows;
};
// Launches the op. False, and nothing is done: the CPU computes, there are no elements, the sum of
// a row has tiles, or an operand has no place.
template <class Op>
bool launch_rows(Scratch& scratch, const Op& op, const RowOperands<Op>& operands,
                 std::initializer_list<const Tensor*> tensors) {
  if (scratch.queue() == nullptr || operands.rows == 0 || op.length == 0) return false;
  if (op.length > math::kSumTile) return false;
  if (Op::kHasResult && !operands.out) return false;
  tasks::WholeRowTask<Op> task{};
  for (std::size_t i = 0; i < operands.in.size(); ++i) {
    if (!operands.in[i]) return false;
    task.in[i] = *operands.in[i];
  }
  if (operands.out) task.out = *operands.out;
  task.rows = operands.rows;
  task.op = op;
  task.thread_bits = task.bits_for(op.length, task.rows);
  launch(*scratch.queue(), task, task.blocks(), tensors);
  return true;
}

template <class Op>
struct ColumnOperands {
  std::array<std::optional<tasks::RowPlace>, Op::kInputs> in;
  std::int64_t rows, columns;
  Scratch::Sum sum = Scratch::Sum::kTotal;
};
// The sums of op's terms by column, [1, columns]. None: the CPU computes, there are no elements, an
// operand has no place, or the inputs are of two dtypes. `tensors`: what the op reads.
template <class Op>
std::optional<Tensor> sum_columns(Scratch& scratch, const Op& op, const ColumnOperands<Op>& operands,
                                  std::initializer_list<const Tensor*> tensors) {
  if (scratch.queue() == nullptr || operands.rows == 0 || operands.columns == 0) return std::nullopt;
  tasks::ColumnLanesTask<Op> task{};
  for (std::size_t i = 0; i < operands.in.size(); ++i) {
    if (!operands.in[i] || operands.in[i]->stored != operands.in[0]->stored) return std::nullopt;
    task.in[i] = *operands.in[i];
  }
  const std::int64_t tiles = math::count_sum_tiles(operands.rows), sums = operands.columns * tiles;
  const Tensor lanes = scratch.make(DType::kFloat32, {sums, math::kLanes});
  const Tensor out = scratch.make(DType::kFloat32, {operands.columns, tiles});
  task.rows = operands.rows;
  task.columns = operands.columns;
  task.tiles = tiles;
  task.lanes = lanes.data<float>();
  task.op = op;
  launch(*scratch.queue(), task, sums * math::kLanes, tensors);
  const bool divides = tiles == 1 && operands.sum == Scratch::Sum::kMean;
  const float divisor = divides ? static_cast<float>(operands.rows) : 0.0f;
  scratch.launch(tasks::LaneTotalTask<float>{lanes.data<float>(), out.data<float>(), divisor}, sums,
                 {&lanes, &out});
  const Tensor totals = tiles == 1 ? out : scratch.add_tiles(out, operands.rows, operands.sum);
  return totals.view({1, operands.columns}, {operands.columns, 1}, totals.offset);
}

// The sums of rows where they lie, one behind the other or side by side: [rows, 1] in float32.
// None: they are to be loaded first.
std::optional<Tensor> sum_in_place(Scratch& scratch, const Rows& rows, Scratch::Sum sum);

}  // namespace epweave::replay::shared
