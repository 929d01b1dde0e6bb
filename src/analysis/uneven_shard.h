// Parameters whose shards are not all of one size, so that ranks run steps of other extents: torch
// cuts a dimension of 2,048 over 3 ranks into 683, 683 and 682, and the last rank slices its
// padding off.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/mesh_calls.h"

namespace epweave {

// One dimension of an input, or of a gradient that is returned.
struct UnevenShard {
  NodeId value;
  StringId fqn;  // of the parameter
  std::size_t dim = 0;
  std::int64_t local = 0, global = 0;  // extents
  std::int64_t gathered_by = 1;        // ranks, by its first gather, or its reduce-scatter; 1: none is found
  bool is_only_one = true;             // no other dimension is cut unevenly
};

// In the order of the inputs, for each the first such dimension; by the global shapes that the
// graph records of its parameters, by their meshes, and by how many ranks gather them: of 4 rows
// the ranks of a mesh [2, 3] hold 2, 2 and 0 where 3 gather them, not half.
std::vector<UnevenShard> find_uneven_shards(const Graph& graph);

// The same of the gradients that the step returns, in their order, where the parameter is no input,
// as in a backward half that reads gathered parameters.
std::vector<UnevenShard> find_uneven_gradients(const Graph& graph);

// What other ranks hold of such dimensions, by the meshes that the graph records of its parameters.
class ShardExtents {
 public:
  explicit ShardExtents(const Graph& graph);

  // Where a whole shard, to which all are padded, has the extent `whole`: what the other axes
  // leave of the dimension is cut into pieces of that along the axis of the mesh over which it is
  // gathered, and the last ranks have what is left, or nothing. None where the mesh is not
  // recorded, or no axis fits, or axes that fit would give the rank several extents.
  std::optional<std::int64_t> find(const UnevenShard& shard, std::int64_t whole, RankChange change) const;

  // The extents that a whole shard can have where this rank holds what it does. None where the mesh
  // is not recorded or the rank is not in it, or no axis fits.
  std::set<std::int64_t> list_wholes(const UnevenShard& shard, std::uint32_t rank) const;

 private:
  std::map<StringId, MeshValue> meshes_;  // by parameter
};

// "%arg3_1 (layers.0.w, 683 of 2048)"
std::string describe(const Graph& graph, const UnevenShard& shard);

// "%arg3_1 (layers.0.w, 683 of 2048) and 4 more inputs are cut unevenly: specialize gives ranks
// that hold less their own program, or refuses". "" if none is.
std::string describe(const Graph& graph, const std::vector<UnevenShard>& shards);

}  // namespace epweave
