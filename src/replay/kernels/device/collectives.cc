#include "replay/kernels/device/collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {

void reduce(Launcher& launcher, const ReduceOperands& operands, const Tensor& out) {
  if (operands.data.size() > static_cast<std::size_t>(kMaxMembers))
    throw CollectiveError(fmt::format("a device reduces among at most {} ranks, here are {}", kMaxMembers,
                                      operands.data.size()));
  const bool is_complex = operands.dtype == DType::kComplex64;
  ReduceTask task{};
  std::copy(operands.data.begin(), operands.data.end(), task.operands);
  task.members = static_cast<int>(operands.data.size());
  task.out = out.bytes();
  task.stored = is_complex ? Stored::kFloat32 : stored_of(operands.dtype);
  if (task.stored == Stored::kBool || task.stored == Stored::kUint16 || task.stored == Stored::kUint32)
    throw CollectiveError(fmt::format("{} cannot be reduced", info(operands.dtype).name));
  static_assert(static_cast<int>(Reduction::kProduct) == static_cast<int>(ReduceOp::kProduct));
  task.op = static_cast<ReduceOp>(find_reduction(operands.reduction));
  launcher.launch(task, (is_complex ? 2 : 1) * out.numel(), {&out});
}

namespace {

// This member's elements of the reduction of all contributions.
void reduce_contributions(Launcher& launcher, const Meeting& meeting, const Tensor& out) {
  const Contribution& own = meeting.contributions[meeting.member];
  ReduceOperands operands{{}, own.dtype, own.reduction};
  for (const Contribution& part : meeting.contributions) {
    operands.data.push_back(part.data->data() + first_reduced(meeting) * info(own.dtype).bytes);
    launcher.pool().use(*part.data, launcher.stream());
  }
  reduce(launcher, operands, out);
}

// Bytes are moved as bytes.
void move(Launcher& launcher, const Meeting& meeting, const Tensor& out) {
  for (const Piece& piece : list_pieces(meeting)) {
    const auto bytes = static_cast<std::int64_t>(piece.bytes);
    const Tensor from{DType::kUint8,
                      {bytes},
                      {1},
                      static_cast<std::int64_t>(piece.from),
                      meeting.contributions[piece.member].data};
    const Tensor to{
        DType::kUint8,
        {bytes},
        {1},
        out.offset * static_cast<std::int64_t>(out.element_bytes()) + static_cast<std::int64_t>(piece.to),
        out.storage};
    check_bounds(from);
    check_bounds(to);
    launcher.map({ElementOp::kCopy, DType::kUint8, to, {&from}, 1, Value()});
  }
}

}  // namespace

void make_result(Launcher& launcher, const Meeting& meeting, const Tensor& result) {
  const bool reduces = !meeting.contributions[0].reduction.empty();
  // In place where the result is row-major.
  const bool is_direct = result.is_contiguous();
  const Tensor out = is_direct ? result : make_tensor(launcher, result.dtype, result.sizes);
  if (reduces)
    reduce_contributions(launcher, meeting, out);
  else
    move(launcher, meeting, out);
  if (!is_direct) launcher.map({ElementOp::kCopy, result.dtype, result, {&out}, 1, Value()});
}

}  // namespace epweave::replay::device
