#include "replay/kernels/device/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

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

// `bytes` of the storage, from `first` on.
std::byte* bytes_at(const std::shared_ptr<Storage>& storage, std::size_t first, std::size_t bytes) {
  EPWEAVE_CHECK(first + bytes <= storage->bytes());
  return storage->data() + first;
}

// Pieces that lie one behind the other in the result: one kernel, by the widest units that all of
// them have.
void move(Launcher& launcher, const Meeting& meeting, std::span<const Piece> pieces, const Tensor& out) {
  const std::size_t first = pieces.front().to, bytes = pieces.back().to + pieces.back().bytes - first;
  MoveTask task{};
  task.to = bytes_at(out.storage, static_cast<std::size_t>(out.offset) * out.element_bytes() + first, bytes);
  std::uintptr_t bits = sizeof(Bytes16) | reinterpret_cast<std::uintptr_t>(task.to);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::shared_ptr<Storage>& data = meeting.contributions[pieces[i].member].data;
    const std::byte* from = bytes_at(data, pieces[i].from, pieces[i].bytes);
    task.from[i] = from;
    task.ends[i] = static_cast<std::int64_t>(pieces[i].to + pieces[i].bytes - first);
    bits |= reinterpret_cast<std::uintptr_t>(from) | pieces[i].bytes;
    launcher.pool().use(*data, launcher.stream());
  }
  task.unit = 1 << std::countr_zero(bits);
  for (std::size_t i = 0; i < pieces.size(); ++i) task.ends[i] /= task.unit;
  launcher.launch(task, task.ends[pieces.size() - 1], {&out});
}

void move(Launcher& launcher, const Meeting& meeting, const Tensor& out) {
  const std::vector<Piece> pieces = list_pieces(meeting);
  constexpr std::size_t kMost = kMaxMembers;  // that a kernel takes
  for (std::size_t i = 0; i < pieces.size(); i += kMost)
    move(launcher, meeting, std::span(pieces).subspan(i, std::min(kMost, pieces.size() - i)), out);
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
