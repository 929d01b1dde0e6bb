// How a value is cut into parts and rejoined from them.
//
//   cut(%x: [u0, 256], 0)    %x_split = split_with_sizes(%x, [%h, %h], 0)   %x_split_0 = %x_split[0]   ...
//   concatenate              %y_chunk_materialized = cat([%y_chunk0, %y_chunk1], 0)
//   add                      %y_chunk_materialized = add(%y_chunk0, %y_chunk1)
//
// A dimension in blocks is taken apart first: 4*s rows in 4 blocks are viewed as [4, s], cut or
// joined along the second, and viewed as one dimension again.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {

class PartJoins {
 public:
  PartJoins(const Graph& graph, const ChunkPlan& plan, ChunkWriter& writer, PartSizes& sizes);

  // The part values of `whole`, which stands for `origin`, along `dim`, for `user` in a region.
  struct Cut {
    NodeId whole, origin, user;
    int dim = 0;
    PolyId blocks = {};
  };
  // Throws PassError where not every part has a share of the dimension.
  std::vector<Arg> cut(const Cut& cut);
  // The whole of a region's value.
  NodeId concatenate(NodeId original, std::span<const Arg> parts, const Placement& placement);
  // The same with the dimensions in this order in memory, outermost first, in which the parts are
  // joined:
  //
  //   order {1, 0} of %y: [8, u]{1, 8}     %y_chunk0_in_order = permute(%y_chunk0, [1, 0])    ...
  //                                        %y_chunk_in_order = cat([%y_chunk0_in_order, ..], 0): [u, 8]
  //                                        %y_chunk_materialized = permute(%y_chunk_in_order, [1, 0])
  NodeId concatenate_in_order(NodeId original, std::span<const Arg> parts, std::vector<std::int64_t> order);
  // The first parts of `origin` in the order in memory that they have, for a node of a region that
  // takes these alone:
  //
  //   %y_prefix1_chunk1 = cat([%y_chunk0, %y_chunk1], 2)       permuted, and back, as above
  struct Prefix {
    NodeId origin;
    RegionId region;
    int dim = 0;
  };
  NodeId concatenate_prefix(const Prefix& prefix, std::span<const Arg> parts);
  // Added from the first part to the last: ((p0 + p1) + p2) + ...; gradients in eager order from
  // the last to the first.
  NodeId add(NodeId original, std::span<const Arg> parts);

 private:
  [[noreturn]] void refuse_extent(const Cut& cut, ExprId extent) const;
  std::vector<Arg> cut_plain(const Cut& cut);
  // What a view into blocks or into another order, or out of them, is made for.
  struct View {
    std::string name;
    std::string_view chunk_role;
    ProvenanceRole role;
    NodeId origin;
    RegionId region;
    std::optional<std::size_t> part = {};
  };
  Node view_in_blocks(NodeId tensor, int dim, PolyId blocks, const View& view);
  Node view_as_rows(NodeId tensor, int dim, const View& view);
  // A dimension and the order in memory of all, outermost first.
  struct InOrder {
    int dim;
    const std::vector<std::int64_t>& order;
  };
  std::vector<std::int64_t> memory_order(const TensorType& type);
  NodeId join_in_order(std::span<const Arg> parts, const InOrder& joined, View view);
  static std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order);
  struct DimRange {
    int begin, count;
  };
  Node permute(NodeId tensor, const std::vector<std::int64_t>& order, const View& view);
  std::vector<Arg> list_sizes(NodeId tensor, DimRange without, const View& view);
  Node make_view(NodeId tensor, const std::vector<Arg>& shape, const View& view);
  NodeId contiguous(NodeId piece, PartSizes::SizeUse place, std::size_t part);
  bool is_contiguous(NodeId id);

  const Graph& graph_;
  const ChunkPlan& plan_;
  ChunkWriter& writer_;
  PartSizes& sizes_;
};

// The dimension along which a join of a chunked graph concatenates parts, also in blocks or in
// another order; none: it is no such join.
std::optional<std::int64_t> find_joined_dim(const Context& context, const Body& chunked, NodeId join);

}  // namespace epweave
