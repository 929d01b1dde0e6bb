// Which part of a global tensor each rank holds.
//
// A dimension is cut along axes of the tensor's mesh, one after the other. Each cuts what the rank
// has after the cuts before it:
//
//   w[8], an axis of 2 ranks, then one of 2       ranks hold rows 01, 23, 45, 67
//   in pieces (torch's _StridedShard)             the rank's rows are cut into `pieces` first, each of which
//                                                 is cut among the axis's ranks: of 2 pieces 01 45, 23 67
//
// Where the file records the placements of the tensor (DTensor), they say which axes and in which
// order (read_cuts). Older files do not: find_cuts takes the axes whose extents multiply to what
// the local extent lacks of the global one, the last axis first, as FSDP cuts what another axis has
// cut before. Where several axes could be meant, the assignment of axes to dimensions in order of
// both is taken.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "replay/collectives/groups.h"
#include "replay/collectives/mesh_ops.h"
#include "replay/values/tensor.h"

namespace epweave::replay {

struct Cut {
  std::size_t dim = 0;
  MeshAxis axis;
  std::int64_t pieces = 1;
};
struct Cuts {
  std::vector<Cut> list;  // of one dimension: in the order in which they are made
  std::string problem;    // why the tensor cannot be cut
  std::string remedy;     // of the problem, where one is known
};

// What a file records of a tensor's placement (python/epweave/roles.py).
struct RecordedPlacements {
  Arg placements;              // for each axis torch's class and its fields: [["Shard", 0], ["Replicate"]]
  const Arg* order = nullptr;  // null: that of the axes; else of each dimension: [[0, [1, 0]]]
  std::vector<MeshAxis> axes;  // of the mesh
};
// `rank`: how many dimensions the tensor has.
Cuts read_cuts(const Context& context, const RecordedPlacements& recorded, std::size_t rank);
Cuts find_cuts(const Extents& global, const Extents& local, const std::vector<MeshAxis>& axes);

// Indices of a dimension of the global tensor that follow one another.
struct IndexRun {
  std::int64_t first = 0, length = 0;
  bool operator==(const IndexRun&) const = default;
};
// By dimension: what a rank holds, in its order.
using ShardRuns = std::vector<std::vector<IndexRun>>;

struct Shard {
  Extents global;
  std::vector<Cut> cuts;
  std::string problem;  // why there is none
  std::string remedy;   // as of Cuts

  // Of a shard without a problem.
  ShardRuns runs_of(Rank rank) const;
};
// A dimension whose extent the cuts do not divide (uneven shards) is a problem, and so is one that
// is not `local` behind them.
Shard cut_shard(const Extents& global, const Extents& local, Cuts cuts);

// Calls visit(place in the shard, place in the global tensor, elements) for each run of the last
// dimension.
template <class Visit>
void for_each_run(const ShardRuns& runs, const Extents& global, const Visit& visit) {
  const auto is_empty = [](const std::vector<IndexRun>& of_dim) {
    return std::ranges::all_of(of_dim, [](const IndexRun& run) { return run.length == 0; });
  };
  if (std::ranges::any_of(runs, is_empty)) return;
  const Extents strides = contiguous_strides(global);
  std::int64_t local = 0;
  const auto walk = [&](const auto& self, std::size_t dim, std::int64_t place) -> void {
    if (dim == runs.size()) return visit(local, place, std::int64_t{1});  // a tensor of no dimension
    for (const IndexRun& run : runs[dim]) {
      if (dim + 1 == runs.size()) {
        visit(local, place + run.first, run.length);
        local += run.length;
        continue;
      }
      for (std::int64_t i = 0; i < run.length; ++i)
        self(self, dim + 1, place + (run.first + i) * strides[dim]);
    }
  };
  walk(walk, 0, 0);
}

}  // namespace epweave::replay
