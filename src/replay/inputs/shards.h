// Which part of a global tensor each rank holds.
//
// A local extent that is 1/k of the global one (the input's `global_shape`) is cut along the mesh
// axes in the input entry after it (`device_mesh`), whose extents multiply to k: the last axis
// outermost, as FSDP cuts what another axis has cut before (torch's _StridedShard). Where several
// axes could be meant, the assignment of axes to dimensions in order of both is taken. Where none
// fits (uneven shards), there is no shard, and a reason.
#pragma once

#include <string>
#include <vector>

#include "replay/collectives/groups.h"
#include "replay/collectives/mesh_ops.h"
#include "replay/values/tensor.h"

namespace epweave::replay {

struct Shard {
  Extents global;
  std::vector<Extents> first;  // by rank: the first index in each dimension
  std::string problem;         // why there is none

  bool is_whole(const Extents& local) const { return global == local; }
};
Shard find_shard(const Extents& global, const Extents& local, const std::vector<MeshAxis>& axes, Rank ranks);

// Calls visit(place in the shard, place in the global tensor, elements) for each run of the last
// dimension.
template <class Visit>
void for_each_run(const Tensor& local, const Extents& first, const Extents& global, const Visit& visit) {
  if (local.numel() == 0) return;
  const Extents strides = contiguous_strides(global);
  const std::int64_t length = local.sizes.empty() ? 1 : local.sizes.back();
  Extents index(local.rank(), 0);
  for (std::int64_t at = 0; at < local.numel(); at += length) {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < local.rank(); ++d) place += (index[d] + first[d]) * strides[d];
    visit(at, place, length);
    for (std::size_t d = local.rank(); d-- > 1;) {
      if (++index[d - 1] < local.sizes[d - 1]) break;
      index[d - 1] = 0;
    }
  }
}

}  // namespace epweave::replay
