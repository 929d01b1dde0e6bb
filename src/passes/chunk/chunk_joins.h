// How a value is cut into parts and rejoined from them.
//
//   cut(%x: [u0, 256], 0)    %x_split = split_with_sizes(%x, [%h, %h], 0)   %x_split_0 = %x_split[0]   ...
//   concatenate              %y_chunk_materialized = cat([%y_chunk0, %y_chunk1], 0)
//   add                      %y_chunk_materialized = add(%y_chunk0, %y_chunk1)
//
// A dimension in blocks is taken apart first: 4*s rows in 4 blocks are viewed as [4, s], cut or joined along
// the second, and viewed as one dimension again.
#pragma once

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
  // Added from the first part to the last: ((p0 + p1) + p2) + ...; gradients in eager order from the last to
  // the first.
  NodeId add(NodeId original, std::span<const Arg> parts);

 private:
  std::vector<Arg> cut_plain(const Cut& cut);
  // What a view into blocks, or out of them, is made for.
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
  struct DimRange {
    int begin, count;
  };
  std::vector<Arg> list_sizes(NodeId tensor, DimRange without, const View& view);
  Node make_view(NodeId tensor, const std::vector<Arg>& shape, const View& view);
  NodeId contiguous(NodeId piece, PartSizes::Place place, std::size_t part);
  bool is_contiguous(NodeId id);

  const Graph& graph_;
  const ChunkPlan& plan_;
  ChunkWriter& writer_;
  PartSizes& sizes_;
};

}  // namespace epweave
