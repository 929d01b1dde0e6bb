#include "replay/kernels/device/dense_launches.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <span>

#include "base/error.h"
#include "replay/values/merge_dimensions.h"

namespace epweave::replay::device {
namespace {

// Dimensions with larger strides of the first operand go first.
void order_by_first(Shape& shape, std::span<Strided* const> operands) {
  const auto reach = [&](int d) { return std::abs(operands[0]->strides[d]); };
  for (int end = 1; end < shape.rank; ++end)
    for (int d = end; d > 0 && reach(d - 1) < reach(d); --d) {
      std::swap(shape.sizes[d - 1], shape.sizes[d]);
      for (Strided* operand : operands) std::swap(operand->strides[d - 1], operand->strides[d]);
    }
}

// The dimensions before the last as rows of `vectors` vectors; none where these are more than two,
// or too many vectors.
std::optional<VectorRows> vector_rows(const Shape& shape, std::int64_t vectors) {
  if (shape.rank == 0 || shape.rank > 3) return std::nullopt;
  const std::int64_t outer = shape.rank == 3 ? shape.sizes[0] : 1,
                     inner = shape.rank > 1 ? shape.sizes[shape.rank - 2] : 1, all = outer * inner * vectors;
  if (shape.rank == 1) return VectorRows{all, 0, 0, true};
  if (all > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return VectorRows{all, static_cast<std::uint32_t>(vectors), static_cast<std::uint32_t>(inner), false};
}
// Strides in units of `unit` bytes, of elements of `bytes`.
VectorOperand vector_operand(const Shape& shape, const Strided& operand, std::int64_t bytes = 1,
                             std::int64_t unit = 1) {
  const int rank = shape.rank;
  return {operand.data,
          {rank == 3 ? operand.strides[0] * bytes / unit : 0,
           rank > 1 ? operand.strides[rank - 2] * bytes / unit : 0},
          operand.strides[rank - 1] == 0};
}

// ---- maps ---------------------------------------------------------------------------------

struct VectorKind {
  TaskKind kind;
  ElementOp op;
  Stored out, in;
  int inputs, length, vectors;
};
template <class Task>
constexpr VectorKind vector_kind() {
  static_assert(sizeof(Task) == sizeof(VectorMap<Task::kInputs>));
  return {kind_of<Task>, Task::kOp,     Task::kOutStored, Task::kInStored,
          Task::kInputs, Task::kLength, Task::kVectors};
}
constexpr VectorKind kVectorKinds[] = {
#define EPWEAVE_KIND(Name, ...) vector_kind<__VA_ARGS__>(),
    EPWEAVE_VECTOR_MAPS(EPWEAVE_KIND)
#undef EPWEAVE_KIND
};

template <int N>
const VectorKind* find_kind(const MapTask<N>& task) {
  const auto fits = [&](const VectorKind& kind) {
    return kind.inputs == N && kind.op == task.op && kind.out == task.out.stored &&
           std::all_of(task.in, task.in + N, [&](const Strided& in) { return in.stored == kind.in; });
  };
  const auto* found = std::find_if(std::begin(kVectorKinds), std::end(kVectorKinds), fits);
  const Compute computed = task.out.stored == Stored::kComplex64 ? Compute::kComplex : Compute::kFloat;
  return found != std::end(kVectorKinds) && task.compute == computed ? found : nullptr;
}

template <int N>
std::optional<DenseLaunch<VectorMap<N>>> find_dense_map(const MapTask<N>& task) {
  const VectorKind* kind = find_kind(task);
  const int last = task.shape.rank - 1;
  if (kind == nullptr || last < 0 || task.out.strides[last] != 1 || task.shape.sizes[last] < kind->length)
    return std::nullopt;
  const auto rows = vector_rows(task.shape, (task.shape.sizes[last] + kind->length - 1) / kind->length);
  if (!rows) return std::nullopt;
  VectorMap<N> map{*rows, task.shape.sizes[last], vector_operand(task.shape, task.out), {}, task.number};
  for (int k = 0; k < N; ++k) {
    if (task.in[k].strides[last] != 0 && task.in[k].strides[last] != 1) return std::nullopt;
    map.in[k] = vector_operand(task.shape, task.in[k]);
  }
  return DenseLaunch<VectorMap<N>>{kind->kind, map, rows->indices(kind->vectors)};
}

// ---- copies and fills ---------------------------------------------------------------------

// The largest unit, at most 16 bytes, of which the rows of `elements` elements of `bytes` bytes are
// multiples, and begin at multiples.
std::uintptr_t unit_of_rows(const Shape& shape, std::uintptr_t bytes,
                            std::initializer_list<const Strided*> operands) {
  const int last = shape.rank - 1;
  std::uintptr_t all = 16 | static_cast<std::uintptr_t>(shape.sizes[last]) * bytes;
  for (const Strided* operand : operands) {
    all |= reinterpret_cast<std::uintptr_t>(operand->data);
    for (int d = 0; d < last; ++d) all |= static_cast<std::uintptr_t>(std::abs(operand->strides[d])) * bytes;
  }
  return all & (~all + 1);  // the lowest bit
}
struct CopyKind {
  std::uintptr_t unit;
  TaskKind kind;
};
constexpr CopyKind kCopyKinds[] = {
    {16, TaskKind::kCopy16}, {8, TaskKind::kCopy8}, {4, TaskKind::kCopy4}, {2, TaskKind::kCopy2}};

int bytes_of_stored(Stored stored) {
  switch (stored) {
    case Stored::kBool:
    case Stored::kUint8:
    case Stored::kInt8:
      return 1;
    case Stored::kInt16:
    case Stored::kUint16:
    case Stored::kBfloat16:
    case Stored::kFloat16:
      return 2;
    case Stored::kInt32:
    case Stored::kUint32:
    case Stored::kFloat32:
      return 4;
    case Stored::kInt64:
    case Stored::kFloat64:
    case Stored::kComplex64:
      break;
  }
  return 8;
}

}  // namespace

void merge_dimensions(Shape& shape, std::span<Strided* const> operands) {
  order_by_first(shape, operands);
  std::array<std::int64_t*, 4> strides{};
  EPWEAVE_CHECK(operands.size() <= strides.size());
  for (std::size_t k = 0; k < operands.size(); ++k) strides[k] = operands[k]->strides;
  const std::span<std::int64_t> sizes(shape.sizes, static_cast<std::size_t>(shape.rank));
  shape.rank = static_cast<int>(replay::merge_dimensions(sizes, std::span(strides).first(operands.size())));
}

std::optional<DenseLaunch<VectorMap<1>>> find_dense(const MapTask<1>& task) {
  return find_dense_map(task);
}
std::optional<DenseLaunch<VectorMap<2>>> find_dense(const MapTask<2>& task) {
  return find_dense_map(task);
}

std::optional<DenseLaunch<UnitCopy>> find_dense(const CopyTask& task) {
  const int last = task.shape.rank - 1;
  if (last < 0 || task.to.strides[last] != 1 || task.from.strides[last] != 1) return std::nullopt;
  const std::uintptr_t unit =
      unit_of_rows(task.shape, static_cast<std::uintptr_t>(task.bytes), {&task.to, &task.from});
  const auto* kind = std::find_if(std::begin(kCopyKinds), std::end(kCopyKinds),
                                  [&](const CopyKind& each) { return each.unit == unit; });
  if (kind == std::end(kCopyKinds)) return std::nullopt;
  const auto bytes = static_cast<std::int64_t>(unit);
  const auto rows = vector_rows(task.shape, task.shape.sizes[last] * task.bytes / bytes);
  if (!rows) return std::nullopt;
  return DenseLaunch<UnitCopy>{kind->kind,
                               {*rows, vector_operand(task.shape, task.to, task.bytes, bytes),
                                vector_operand(task.shape, task.from, task.bytes, bytes)},
                               rows->indices(UnitCopyTask<Bytes16>::kVectors)};
}

std::optional<DenseLaunch<UnitFillTask>> find_dense(const MapTask<0>& task) {
  constexpr std::int64_t kUnit = sizeof(Bytes16);
  const int last = task.shape.rank - 1, bytes = bytes_of_stored(task.out.stored);
  if (last < 0 || task.out.strides[last] != 1) return std::nullopt;
  if (unit_of_rows(task.shape, static_cast<std::uintptr_t>(bytes), {&task.out}) != sizeof(Bytes16))
    return std::nullopt;
  const auto rows = vector_rows(task.shape, task.shape.sizes[last] * bytes / kUnit);
  if (!rows) return std::nullopt;
  UnitFillTask fill{*rows, vector_operand(task.shape, task.out, bytes, kUnit), {}};
  // The general kernel's own elements.
  MapTask<0> elements = task;
  elements.shape = {1, true, {kUnit / bytes}};
  elements.out.data = &fill.unit;
  elements.out.strides[0] = 1;
  for (std::int64_t i = 0; i < kUnit / bytes; ++i) elements.run(i);
  return DenseLaunch<UnitFillTask>{TaskKind::kFill16, fill, rows->indices(UnitFillTask::kVectors)};
}

}  // namespace epweave::replay::device
