// What a part of a region's node takes for an input: the input's own part, its whole, or what is
// cut from that.
//
//   part(v, k)     of the region -> part k    Whole -> whole(v)    Split(d) -> slice of whole(v)
//   prefix(v, k)   cat(part 0 .. part k)
//
// Slices and prefixes are made at first demand, and once for all regions that share them.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ir/graph.h"
#include "passes/chunk/chunk_joins.h"
#include "passes/chunk/chunk_plan.h"
#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_storage.h"
#include "passes/chunk/chunk_values.h"
#include "passes/chunk/chunk_wholes.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {

class PartAccess {
 public:
  // All must outlive this.
  PartAccess(const Graph& graph, const ChunkPlan& plan, ChunkWriter& writer, PartSizes& sizes,
             PartJoins& joins, const PartedStorage& storage, ChunkedValues& values, WholeAccess& wholes);

  // What part k of the region's node `user` takes for its input number `leaf`.
  Arg argument(NodeId user, NodeId input, std::size_t leaf, std::size_t k);
  // Part k of a divided value, for a node of a region. Throws PassError where it cannot be cut.
  Arg part(NodeId id, std::size_t k, NodeId user);
  // Numbers from outside of which parts were taken: the whole ones may have no user left.
  const std::vector<NodeId>& numbers_in_parts() const { return numbers_in_parts_; }

 private:
  // The parts of a whole value: nodes, or numbers for sizes; and when they were made.
  struct Pieces {
    std::size_t time = 0;
    std::vector<Arg> args;
  };
  // The value, dimension (-1: a number), blocks, and who shares them.
  using PiecesKey = std::tuple<std::uint32_t, int, std::uint32_t, std::uint32_t>;
  // The value, the last part, and who shares them.
  using PrefixKey = std::tuple<NodeId, std::size_t, std::uint32_t>;

  const Placement& seen_by(NodeId user, NodeId input) const;
  std::uint32_t sharers(NodeId user) const;
  Arg prefix(NodeId id, const Access& access, std::size_t k, NodeId user);
  Arg part_of_number(NodeId id, std::size_t k, NodeId user);
  Arg slice(NodeId id, const Access& access, std::size_t k, NodeId user);
  template <class Cut>
  Arg piece(const PiecesKey& key, NodeId id, std::size_t k, const Cut& cut);
  [[noreturn]] void fail_part(NodeId id, NodeId user) const;

  const Graph& in_;
  const ChunkPlan& plan_;
  const Placements& placements_;
  ChunkWriter& writer_;
  PartSizes& sizes_;
  PartJoins& joins_;
  const PartedStorage& storage_;
  ChunkedValues& values_;
  WholeAccess& wholes_;
  std::map<PiecesKey, Pieces> pieces_;
  std::map<PrefixKey, Arg> prefixes_;
  std::vector<NodeId> numbers_in_parts_;
};

}  // namespace epweave
