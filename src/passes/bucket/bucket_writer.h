// Writes one launch in place of several: packs what they send, launches, waits, and cuts each one's
// result out.
//
//   gathers            buf = _pre_bucket_all_gather([p, q], ..); own = slice(buf); g = all_gather_into_tensor_out(own, out=buf)
//                      w = wait_tensor(g); rows = view(w, [ranks, -1]); p', q' = columns of rows, copied each into a buffer
//   reduce-scatters    buf = _pre_bucket_reduce_scatter([x, y], ..); r = reduce_scatter_tensor(buf, ..)
//                      w = wait_tensor(r); x', y' = pieces of w
//   all-reduces        buf = cat([view(x, [-1]), view(y, [-1])]); r = all_reduce(buf, ..); w = wait_tensor(r); x', y' = pieces of w
//
// Plain calls, or a list of tensors in place of a buffer: Packing.
//
// Packing and launch stand behind the last of what is sent, at the place of the first launch at the
// earliest; wait and cutting in front of the first wait (WaitPlace), or behind the launch. What
// took a result too early for that moves behind it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "analysis/effects.h"
#include "passes/bucket/bucket_plan.h"
#include "passes/bucket/group_coordinates.h"
#include "passes/bucket/mergeable.h"
#include "passes/bucket/merged_graph.h"
#include "passes/bucket/new_nodes.h"

namespace epweave {

struct MergedLaunch {
  NodeId pack;  // of gathers: what casts the members' operands
  NodeId launch, wait;
  std::vector<NodeId> waits;  // by member, where each has one of its own; `wait` is the first of them
  MergeKind kind = MergeKind::kAllGather;
  bool backward = false;
};

// Where the wait for merged reduce-scatters stands: in front of the first of theirs, or of the
// last. kWithLaunch, of all kinds: packing, launch, wait and cutting together behind the first
// member's launch, and where that is in front of what is sent, what is between them is sorted; what
// takes a result may stand in front of it, and the caller orders the step.
enum class WaitPlace : std::uint8_t { kFirst, kLast, kWithLaunch };

// How gathers and reduce-scatters are packed and cut: with the calls above, or with plain ones.
//
//   gathers            buf = empty(..); own = copy_(slice(buf), cat([view(p, [-1]), view(q, [-1])])); g = all_gather_into_tensor_out(own, out=buf)
//                      columns of rows, each copied and shaped
//   reduce-scatters    buf = view(cat([view(x, [ranks, -1]), view(y, [ranks, -1])], 1), [elements])
//
// kListed: reduce-scatters are not packed, the others plainly. Each tensor has a wait of its own.
//
//   reduce-scatters    l = reduce_scatter_tensor_coalesced([view(x, [-1]), view(y, [-1])], ..)
//                      x' = view(wait_tensor(getitem(l, 0)), ..); y' = view(wait_tensor(getitem(l, 1)), ..)
enum class Packing : std::uint8_t { kOneCall, kPlain, kListed };

class BucketWriter {
 public:
  // `coordinates`: in a graph for all ranks, of the axes on which gathers are merged. New nodes say
  // that `pass` added them.
  BucketWriter(MergedGraph& merged, GroupCoordinates coordinates, WaitPlace of_reductions,
               Packing packing = Packing::kOneCall, std::string_view pass = "bucket");

  // `members` in the order in which they are packed. Without an entry in `scope` the bucket is of
  // no plan, and its nodes name the modules of the launches that they stand for.
  MergedLaunch write(std::span<const Mergeable* const> members, const BucketScope& scope);

  // What nodes that were written do to storage that others of them show: for an order of the step.
  const std::vector<OrderEdge>& order_edges() const { return edges_; }

  // The step, once all buckets are written.
  void finish() { nodes_.finish(); }

 private:
  void begin(std::span<const Mergeable* const> members, const BucketScope& scope);
  Node make_model(std::span<const Mergeable* const> stood_for, const BucketScope& scope, StringId reason);
  std::vector<StringId> list_modules(std::span<const Mergeable* const> members);
  void turn_to(std::size_t member);
  void turn_to_all();
  NodeId add_split(NodeId of, bool of_columns);
  NodeId add_element(NodeId of, std::size_t index);
  // Of its part of the buffer that all ranks' parts are gathered in, in elements of its dtype.
  std::int64_t share_of(std::size_t member) const;
  NodeId pack_gather();
  NodeId pack_gather_plainly();
  NodeId launch_gather(NodeId own, NodeId buffer);
  // Of the rank's own part of the buffer.
  Arg place_of(const Mergeable& gather) const;
  NodeId add_own_part(NodeId buffer, const Mergeable& gather, std::int64_t elements);
  Arg add_product(Arg place, std::int64_t by);
  Arg group_of_launch() const;
  NodeId pack_scatter();
  NodeId concatenate_scatter();
  NodeId launch_scatters();
  NodeId pack_reduce();
  std::vector<Arg> flatten_members();
  void cut_gather(NodeId wait);
  void cut_columns(NodeId rows);
  void cut_pieces(NodeId wait);
  std::vector<NodeId> wait_for_each(NodeId launch);
  void stand_for(std::size_t member, NodeId value);
  void place();
  void place_together();
  void drop_members();

  std::int64_t elements_of(std::size_t member) const;  // of a member's result, or its share of each rank's
  Arg operand(std::size_t member) const;
  Arg foreach_groups();

  MergedGraph& merged_;
  GroupCoordinates coordinates_;
  WaitPlace of_reductions_;
  Packing packing_;
  Graph& graph_;
  Context& context_;
  NewNodes nodes_;
  StringId pass_;
  std::vector<OrderEdge> edges_;

  // Of the bucket that is being written:
  std::span<const Mergeable* const> members_;
  DType dtype_ = DType::kFloat32;  // of the buffer: the first of those with the smallest elements
  // What its new nodes have: those of the whole bucket, and, where it is of no plan's entry, those
  // of each member.
  Node bucket_model_;
  std::vector<Node> members_models_;
  std::vector<NodeId> front_, back_;
  std::vector<NodeId> results_;  // by member
};

}  // namespace epweave
