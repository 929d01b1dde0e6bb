// All kernels of the device, by number: what the host names when it launches one.
#pragma once

#include "replay/kernels/tasks/attention_tasks.h"
#include "replay/kernels/tasks/covered_matmul_task.h"
#include "replay/kernels/tasks/draw_task.h"
#include "replay/kernels/tasks/fused_attention_task.h"
#include "replay/kernels/tasks/hash_task.h"
#include "replay/kernels/tasks/index_tasks.h"
#include "replay/kernels/tasks/rearrange_tasks.h"
#include "replay/kernels/tasks/row_tasks.h"
#include "replay/kernels/tasks/tiled_matmul_task.h"
#include "replay/kernels/tasks/vector_tasks.h"
#include "replay/kernels/tasks/whole_row_tasks.h"

namespace epweave::replay::tasks {

// X(name, type); a thread per index.
// clang-format off
#define EPWEAVE_DEVICE_TASKS(X) \
  X(Map0, MapTask<0>) \
  X(Map1, MapTask<1>) \
  X(Map2, MapTask<2>) \
  X(Map3, MapTask<3>) \
  X(Copy, CopyTask) \
  EPWEAVE_VECTOR_MAPS(X) \
  X(Copy16, UnitCopyTask<Bytes16>) \
  X(Copy8, UnitCopyTask<std::uint64_t>) \
  X(Copy4, UnitCopyTask<std::uint32_t>) \
  X(Copy2, UnitCopyTask<std::uint16_t>) \
  X(Fill16, UnitFillTask) \
  X(Progression, ProgressionTask) \
  X(Draw, DrawTask) \
  X(LaneSumFloat, LaneSumTask<float>) \
  X(LaneSumDouble, LaneSumTask<double>) \
  X(LaneSumInt, LaneSumTask<std::int64_t>) \
  X(ColumnLanes, ColumnLanesTask<ColumnSum>) \
  X(RmsNormWeightLanes, ColumnLanesTask<RmsNormWeightGradient>) \
  X(LaneTotalFloat, LaneTotalTask<float>) \
  X(LaneTotalDouble, LaneTotalTask<double>) \
  X(LaneTotalInt, LaneTotalTask<std::int64_t>) \
  X(LaneMaximumFloat, LaneMaximumTask<float>) \
  X(LaneMaximumDouble, LaneMaximumTask<double>) \
  X(RowMaximumFloat, RowMaximumTask<float>) \
  X(RowMaximumDouble, RowMaximumTask<double>) \
  X(FindInTileFloat, FindInTileTask<float>) \
  X(FindInTileDouble, FindInTileTask<double>) \
  X(FindInTileInt, FindInTileTask<std::int64_t>) \
  X(FindAmongTilesFloat, FindAmongTilesTask<float>) \
  X(FindAmongTilesDouble, FindAmongTilesTask<double>) \
  X(FindAmongTilesInt, FindAmongTilesTask<std::int64_t>) \
  X(CumulativeFloat, CumulativeTask<float>) \
  X(CumulativeDouble, CumulativeTask<double>) \
  X(CumulativeInt, CumulativeTask<std::int64_t>) \
  X(CumulativeComplex, CumulativeTask<math::Complex>) \
  X(RunningMaximumFloat, RunningMaximumTask<float>) \
  X(RunningMaximumDouble, RunningMaximumTask<double>) \
  X(RunningMaximumInt, RunningMaximumTask<std::int64_t>) \
  X(SolveFloat, SolveTask<float>) \
  X(SolveDouble, SolveTask<double>) \
  X(ScanTiles, ScanTilesTask) \
  X(AddCarry, AddCarryTask) \
  X(MergeFloat, MergeTask<float>) \
  X(MergeDouble, MergeTask<double>) \
  X(MergeInt, MergeTask<std::int64_t>) \
  X(Assert, AssertTask) \
  X(ResolveIndex, ResolveIndexTask) \
  X(ReadBlocks, ReadBlocksTask) \
  X(WriteBlocks, WriteBlocksTask) \
  X(AddBlocksFloat, AddBlocksTask<float>) \
  X(AddBlocksDouble, AddBlocksTask<double>) \
  X(AddBlocksInt, AddBlocksTask<std::int64_t>) \
  X(AddBlocksComplex, AddBlocksTask<math::Complex>) \
  X(ReadDenseBlocks, ReadDenseBlocksTask) \
  X(WriteDenseBlocks, WriteDenseBlocksTask) \
  X(AddDenseBlocks, AddDenseBlocksTask) \
  X(CountUses, CountUsesTask) \
  X(Gather, GatherTask) \
  X(ScatterFloat, ScatterTask<float>) \
  X(ScatterDouble, ScatterTask<double>) \
  X(ScatterInt, ScatterTask<std::int64_t>) \
  X(ScatterComplex, ScatterTask<math::Complex>) \
  X(ScatterReduceFloat, ScatterReduceTask<float>) \
  X(ScatterReduceDouble, ScatterReduceTask<double>) \
  X(ScatterReduceInt, ScatterReduceTask<std::int64_t>) \
  X(DivideByCountFloat, DivideByCountTask<float>) \
  X(DivideByCountDouble, DivideByCountTask<double>) \
  X(DivideByCountInt, DivideByCountTask<std::int64_t>) \
  X(Triangle, TriangleTask) \
  X(CountFlags, CountFlagsTask) \
  X(FindFlags, FindFlagsTask) \
  X(Coordinates, CoordinatesTask) \
  X(Pick, PickTask) \
  X(OneHot, OneHotTask) \
  X(Histogram, HistogramTask) \
  X(SearchDouble, SearchTask<double>) \
  X(SearchInt, SearchTask<std::int64_t>) \
  X(LinspaceFloat, LinspaceTask<float>) \
  X(LinspaceDouble, LinspaceTask<double>) \
  X(Repeat, RepeatTask) \
  X(CheckCounts, CheckCountsTask) \
  X(CheckOffsets, CheckOffsetsTask) \
  X(LossFloat, LossTask<float>) \
  X(LossDouble, LossTask<double>) \
  X(LossBackwardFloat, LossBackwardTask<float>) \
  X(LossBackwardDouble, LossBackwardTask<double>) \
  X(Cover, CoverTask) \
  X(CompareCover, CompareCoverTask) \
  X(CausalCover, CausalCoverTask) \
  X(MaskScores, MaskScoresTask) \
  X(PackMask, PackMaskTask) \
  X(Move, MoveTask) \
  X(PackProgram, PackProgramTask) \
  X(Reduce, ReduceTask)

// X(name, type); a block of threads per index. Of a and b: N: rows lie one behind the other,
// T: columns do. Products of two T have MatmulTask. 8 and 4: tiles of 128 and of 64.
#define EPWEAVE_TILED_MATMULS(X, Name, kStored) \
  X(Name##NN8, TiledMatmulTask<kStored, Along::kDepth, Along::kOther, 8>) \
  X(Name##NT8, TiledMatmulTask<kStored, Along::kDepth, Along::kDepth, 8>) \
  X(Name##TN8, TiledMatmulTask<kStored, Along::kOther, Along::kOther, 8>) \
  X(Name##NN4, TiledMatmulTask<kStored, Along::kDepth, Along::kOther, 4>) \
  X(Name##NT4, TiledMatmulTask<kStored, Along::kDepth, Along::kDepth, 4>) \
  X(Name##TN4, TiledMatmulTask<kStored, Along::kOther, Along::kOther, 4>)
#define EPWEAVE_COVERED_MATMULS(X, Name, kStored) \
  X(Name##NN8, CoveredMatmulTask<kStored, Along::kDepth, Along::kOther, 8>) \
  X(Name##TN8, CoveredMatmulTask<kStored, Along::kOther, Along::kOther, 8>) \
  X(Name##NN4, CoveredMatmulTask<kStored, Along::kDepth, Along::kOther, 4>) \
  X(Name##TN4, CoveredMatmulTask<kStored, Along::kOther, Along::kOther, 4>)
#define EPWEAVE_DEVICE_BLOCK_TASKS(X) \
  X(Matmul, MatmulTask<float>) \
  X(MatmulDouble, MatmulTask<double>) \
  X(MatmulInt, MatmulTask<std::int64_t>) \
  EPWEAVE_TILED_MATMULS(X, MatmulFloat32, Stored::kFloat32) \
  EPWEAVE_TILED_MATMULS(X, MatmulBfloat16, Stored::kBfloat16) \
  EPWEAVE_TILED_MATMULS(X, MatmulFloat16, Stored::kFloat16) \
  EPWEAVE_TILED_MATMULS(X, MatmulFloat64, Stored::kFloat64) \
  EPWEAVE_COVERED_MATMULS(X, CoveredFloat32, Stored::kFloat32) \
  EPWEAVE_COVERED_MATMULS(X, CoveredBfloat16, Stored::kBfloat16) \
  X(Weigh, WeighTask) \
  X(WeighBackward, WeighBackwardTask<float>) \
  X(WeighBackwardDouble, WeighBackwardTask<double>) \
  X(Delta, DeltaTask<float>) \
  X(DeltaDouble, DeltaTask<double>)
// X(name, type); a block of threads per index, which goes through steps.
#define EPWEAVE_DEVICE_ROW_TASKS(X) \
  X(Softmax, WholeRowTask<SoftmaxRow>) \
  X(LogSoftmax, WholeRowTask<LogSoftmaxRow>) \
  X(SoftmaxBackward, WholeRowTask<SoftmaxBackwardRow>) \
  X(LogSoftmaxBackward, WholeRowTask<LogSoftmaxBackwardRow>) \
  X(RmsNorm, WholeRowTask<RmsNormRow>) \
  X(RmsNormBackward, WholeRowTask<RmsNormBackwardRow>) \
  X(RowSum, WholeRowTask<RowSum>) \
  X(Hash, HashTask)
// X(name, type); a block of warps per index. Of each dtype by the widths of a head, of queries and
// keys and of values, that rows in shared memory have at most.
#define EPWEAVE_FUSED_ATTENTION(X, Name, ...) \
  X(FusedForward##Name, FusedForwardTask<__VA_ARGS__>) \
  X(FusedQueries##Name, FusedGradientTask<__VA_ARGS__, GradientsOf::kQueries>) \
  X(FusedKeys##Name, FusedGradientTask<__VA_ARGS__, GradientsOf::kKeys>)
#define EPWEAVE_DEVICE_WARP_TASKS(X) \
  EPWEAVE_FUSED_ATTENTION(X, Bfloat16By64, Stored::kBfloat16, 64, 64) \
  EPWEAVE_FUSED_ATTENTION(X, Bfloat16By128, Stored::kBfloat16, 128, 128) \
  EPWEAVE_FUSED_ATTENTION(X, Bfloat16By192, Stored::kBfloat16, 192, 128) \
  EPWEAVE_FUSED_ATTENTION(X, Float16By192, Stored::kFloat16, 192, 128)
// clang-format on

enum class TaskKind : std::uint16_t {
#define EPWEAVE_NAME(Name, ...) k##Name,
  EPWEAVE_DEVICE_TASKS(EPWEAVE_NAME) EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_NAME)
      EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_NAME) EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_NAME)
#undef EPWEAVE_NAME
};

template <class Task>
struct KindOf;
template <class Task>
inline constexpr TaskKind kind_of = KindOf<Task>::value;
#define EPWEAVE_KIND(Name, ...)                          \
  template <>                                            \
  struct KindOf<__VA_ARGS__> {                           \
    static constexpr TaskKind value = TaskKind::k##Name; \
  };
EPWEAVE_DEVICE_TASKS(EPWEAVE_KIND)
EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_KIND)
EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_KIND)
EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_KIND)
#undef EPWEAVE_KIND

// Whether an index is a block of threads, not a thread: of EPWEAVE_DEVICE_BLOCK_TASKS, of
// EPWEAVE_DEVICE_ROW_TASKS, of EPWEAVE_DEVICE_WARP_TASKS.
inline constexpr bool is_warp_kind(TaskKind kind) {
  return kind >= TaskKind::kFusedForwardBfloat16By64;
}
inline constexpr bool is_row_kind(TaskKind kind) {
  return kind >= TaskKind::kSoftmax && !is_warp_kind(kind);
}
template <class Task>
inline constexpr bool is_warp_task = is_warp_kind(kind_of<Task>);
template <class Task>
inline constexpr bool is_row_task = is_row_kind(kind_of<Task>);
template <class Task>
inline constexpr bool is_block_task = kind_of<Task> >= TaskKind::kMatmul&& kind_of<Task> < TaskKind::kSoftmax;

inline constexpr std::size_t bytes_of_task(TaskKind kind) {
  switch (kind) {
#define EPWEAVE_SIZE(Name, ...) \
  case TaskKind::k##Name:       \
    return sizeof(__VA_ARGS__);
    EPWEAVE_DEVICE_TASKS(EPWEAVE_SIZE)
    EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_SIZE)
    EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_SIZE)
    EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_SIZE)
#undef EPWEAVE_SIZE
  }
  return 0;  // no kind has any other number
}

// A launch's parameters fit into what CUDA takes as arguments.
#define EPWEAVE_FITS(Name, ...) \
  static_assert(sizeof(__VA_ARGS__) <= 4000 && std::is_trivially_copyable_v<__VA_ARGS__>);
EPWEAVE_DEVICE_TASKS(EPWEAVE_FITS)
EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_FITS)
EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_FITS)
EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_FITS)
#undef EPWEAVE_FITS

}  // namespace epweave::replay::tasks
