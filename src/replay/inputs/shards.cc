#include "replay/inputs/shards.h"

namespace epweave::replay {

Shard find_shard(const Extents& global, const Extents& local, const std::vector<MeshAxis>& axes, Rank ranks) {
  Shard shard;
  shard.global = global;
  const auto give_up = [&](const char* why) {
    shard.problem = why;
    return shard;
  };
  if (global.size() != local.size()) return give_up("its global shape has another number of dimensions");
  shard.first.assign(ranks, Extents(local.size(), 0));
  std::size_t next = 0;
  for (std::size_t d = 0; d < local.size(); ++d) {
    if (global[d] == local[d]) continue;
    if (local[d] == 0 || global[d] % local[d] != 0) {
      return give_up(
          "it is cut unevenly: ranks hold different amounts of it, and replay runs one program on all ranks; "
          "epweave specialize G --all -o DIR writes each rank's own");
    }
    const std::int64_t pieces = global[d] / local[d];
    const std::size_t begin = next;
    std::int64_t found = 1;
    while (found < pieces && next < axes.size()) found *= axes[next++].extent;
    if (found != pieces) return give_up("no axes of its mesh explain how it is cut");
    for (Rank rank = 0; rank < ranks; ++rank) {
      std::int64_t piece = 0;
      for (std::size_t a = next; a-- > begin;)
        piece = piece * axes[a].extent + static_cast<std::int64_t>(rank) / axes[a].stride % axes[a].extent;
      shard.first[rank][d] = piece * local[d];
    }
  }
  return shard;
}

}  // namespace epweave::replay
