#include "replay/device/collectives.h"

#include <fmt/format.h>

#include "replay/cpu/elements.h"

namespace epweave::replay::device {
namespace {

// Elements [first, first + count) of the reduction of all contributions.
void reduce(Launcher& launcher, const Meeting& meeting, const Tensor& out) {
  const std::vector<Contribution>& parts = meeting.contributions;
  if (parts.size() > static_cast<std::size_t>(kMaxMembers))
    throw CollectiveError(
        fmt::format("a device reduces among at most {} ranks, here are {}", kMaxMembers, parts.size()));
  const bool is_complex = parts[0].dtype == DType::kComplex64;
  const std::int64_t width = is_complex ? 2 : 1;
  ReduceTask task{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    task.operands[i] = parts[i].data->data();
    launcher.pool().use(*parts[i].data, launcher.stream());
  }
  task.members = static_cast<int>(parts.size());
  task.first = width * static_cast<std::int64_t>(first_reduced(meeting));
  task.out = out.bytes();
  task.stored = is_complex ? Stored::kFloat32 : stored_of(parts[0].dtype);
  if (task.stored == Stored::kBool || task.stored == Stored::kUint16 || task.stored == Stored::kUint32)
    throw CollectiveError(fmt::format("{} cannot be reduced", info(parts[0].dtype).name));
  static_assert(static_cast<int>(Reduction::kProduct) == static_cast<int>(ReduceOp::kProduct));
  task.op = static_cast<ReduceOp>(find_reduction(parts[0].reduction));
  launcher.launch(task, width * out.numel(), {&out});
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
    reduce(launcher, meeting, out);
  else
    move(launcher, meeting, out);
  if (!is_direct) launcher.map({ElementOp::kCopy, result.dtype, result, {&out}, 1, Value()});
}

}  // namespace epweave::replay::device
