// Equal blocks of a value, one for each rank, cut along one dimension and joined along another.
// They stand between a collective, whose blocks lie along dimension 0, and a product that wants
// them along another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

class RankBlocks {
 public:
  explicit RankBlocks(const Graph& graph) : context_(*graph.context), body_(graph.step()) {}

  struct BlockDims {
    std::size_t from = 0, to = 0;
  };
  // Where `join` puts the `ranks` equal blocks of `value`, cut along `from`, in their order along
  // `to`.
  std::optional<BlockDims> find(NodeId join, NodeId value, std::int64_t ranks) const;

  // Of a join of blocks: the split (or none, where slices cut), the pieces, the join.
  std::vector<NodeId> list_nodes(NodeId join) const;

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  const TensorType* tensor(NodeId id) const { return tensor_of(context_, node(id).type); }
  bool is_of(NodeId id, OpFamily family) const {
    return node(id).op != nullptr && node(id).op->family == family;
  }
  // The dimension along which the node is block `index` of the equal ones of `value`; or none.
  std::optional<std::size_t> find_cut(NodeId id, NodeId value, std::size_t index, std::int64_t ranks) const;
  bool has_equal_pieces(NodeId split, std::size_t dim, std::int64_t own, std::int64_t ranks) const;
  std::optional<std::size_t> dimension(NodeId id, std::string_view param, std::size_t rank) const;

  const Context& context_;
  const Body& body_;
};

}  // namespace epweave
