// The size nodes of a chunked graph: how many rows a part has.
//
//   %u0_tokens = sym_size(%x, 0)   %u0_part = floordiv(%u0_tokens, 2)   %u0_part_x3 = mul(%u0_part, 3)
//
// behind the inputs, one for the whole graph; sizes that no input has for an extent are read off a tensor
// where they are needed.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "analysis/token_extent.h"
#include "passes/chunk_writer.h"

namespace epweave {

class PartSizes {
 public:
  PartSizes(const Graph& chunked, const ChunkPlan& plan, ChunkWriter& writer);

  // Where the sizes stand that are made for a use: the value whose size it is, and the region that wants it.
  struct Place {
    NodeId origin;
    RegionId region;
  };
  // Whether every part has the same share of the extent.
  bool is_divisible(ExprId extent) { return tokens_.is_linear(extent); }
  // A part's share of the number `whole`, which scales with the tokens.
  NodeId of_number(NodeId whole, Place place);
  // A part's share of the extent, where an input has the token count for an extent.
  std::optional<NodeId> of_extent(ExprId extent);
  // A part's share of the tensor's dimension.
  NodeId of_dimension(NodeId tensor, int dim, Place place);
  // Puts the nodes that serve the whole graph behind the inputs.
  void place_behind_inputs();

 private:
  struct PairHash {
    std::size_t operator()(const std::pair<std::uint32_t, std::int64_t>& p) const {
      return std::hash<std::int64_t>()(p.second * 1000003 + p.first);
    }
  };
  NodeId multiple(TokenMultiple multiple);
  NodeId add(const NewCall& call);

  const Graph& out_;
  const ChunkPlan& plan_;
  ChunkWriter& writer_;
  TokenExtents tokens_;
  std::vector<NodeId> behind_inputs_;
  std::unordered_map<std::pair<std::uint32_t, std::int64_t>, NodeId, PairHash> multiples_;
};

}  // namespace epweave
