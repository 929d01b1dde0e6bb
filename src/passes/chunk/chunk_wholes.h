// The whole of a value, for who wants it: what was written whole, or, at first demand, made of a
// region's parts.
//
//   Split(d) -> cat(parts, d)    Partial -> add(parts)    Carried -> the last part    Local: refused
//   made of sizes, or a view of what is joined: the call once more, on wholes
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/chunk/chunk_joins.h"
#include "passes/chunk/chunk_plan.h"
#include "passes/chunk/chunk_storage.h"
#include "passes/chunk/chunk_strides.h"
#include "passes/chunk/chunk_values.h"
#include "passes/chunk/chunk_views.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {

class WholeAccess {
 public:
  // All must outlive this.
  WholeAccess(const Graph& graph, const ChunkPlan& plan, Graph& chunked, ChunkWriter& writer,
              PartJoins& joins, JoinStrides& strides, const PartedStorage& storage, ChunkedValues& values);

  // What stands for the whole value where `user` takes it. Throws PassError where nothing can.
  NodeId whole(NodeId id, NodeId user);
  // Parts of views that were made again as views of joins: nothing may take them any more.
  std::vector<NodeId> list_needless_parts();

 private:
  NodeId find(NodeId id, NodeId user) const;
  void set_made(NodeId id, NodeId made);
  std::string_view reason_to_write_again(NodeId id);
  NodeId write_again(NodeId id, std::string_view reason);
  NodeId join(NodeId id, NodeId user);
  [[noreturn]] void fail_join(NodeId id, NodeId user) const;
  NodeId concatenate_in_order(NodeId id);

  const Graph& in_;
  const Placements& placements_;
  Graph& out_;
  ChunkWriter& writer_;
  PartJoins& joins_;
  JoinStrides& strides_;
  const PartedStorage& storage_;
  ChunkedValues& values_;
  ViewJoins views_;
  const IdSet<NodeId> made_of_sizes_;
};

}  // namespace epweave
