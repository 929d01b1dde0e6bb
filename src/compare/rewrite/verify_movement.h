// What a rewrite moves through storage of its own, on a rank and between ranks: values that are
// packed, sent by one launch instead of several, and cut out again.
//
//   A   %w0 = wait(all_gather(%p)), %w1 = wait(all_gather(%q))
//   B   %buf = pack([%p, %q]); %w = wait(all_gather_out(slice(%buf), out=%buf)); %v0, %v1 = columns of %w
//   proved: %v0 and %w0 are the same elements of %p of the same ranks, in the same order (movement.h)
//
// B's new nodes are followed in their order, storage by storage: which elements each piece of
// memory holds, and what a view of it shows (moved_memory.h). A new launch is accounted for if what
// it moves is what launches of A moved (moved_values.h, moved_launches.h); a new write, if it fills
// storage that the rewrite made. Everything that is read must be as it was when it was computed:
// nothing may write it later. A gather whose source lies in the buffer that it fills sends from the
// rank's own place: its place in the group, or in a graph for all ranks a coordinate that is this
// place on each of them. What a write that is not followed may change, of any storage, is unknown
// from there on:
//
//   %v0 = view(%k); add_(%v0, 1); %c = clone(%k)     what %c has of %v0's elements is unknown
//
// A view of memory that the rewrite made has the value where it is first read, which may be behind
// writes that come behind the view:
//
//   %v0 = view(%buf); %t = t(%v0); copy_(%buf, %w); mm(%x, %t)     %v0 is proved in front of mm
//
// Reports rewrite-moved: a value is not what it is said to be.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "analysis/aliases.h"
#include "analysis/users.h"
#include "compare/rewrite/moved_groups.h"
#include "compare/rewrite/moved_launches.h"
#include "compare/rewrite/moved_memory.h"
#include "compare/rewrite/moved_values.h"
#include "compare/rewrite/movement.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class MovementCheck {
 public:
  // All outlive the check.
  MovementCheck(RewriteClaims& claims, Numbers& numbers, const Effects& effects_a, const LaterWrites& in_b);

  // Proves that a value was moved, and finds what that accounts for; in the order of B, once it is
  // known which values are whole.
  void visit(NodeId b);
  // Whether B moves values at all: only then is known at its end what is accounted for.
  bool has_moved() const { return has_moved_; }
  // Behind all of B: which launches are accounted for.
  void settle_launches();
  // Waits of A that no node of B stands for, though a launch of B brings what they wait for.
  const IdSet<NodeId>& waited() const { return waited_; }
  // Of a new node that communicates or writes.
  bool accounts_for(NodeId b) const { return accounted_.contains(b); }

 private:
  bool is_new(NodeId b) const;
  bool shows_before_it_is_there(NodeId b);
  void prove_read_by(NodeId b);
  bool follow(NodeId b);
  bool lies_as_recorded(const Node& node);
  bool make_view(NodeId b, const Node& node);
  std::optional<std::int64_t> offset_of(const TensorType& type, const MovedStorage& storage) const;
  std::optional<ExprId> place_of(Arg arg) const;
  void find_own_part(std::size_t storage, const TensorType& shown);
  bool begins_at(ExprId start, NodeId coordinate, std::int64_t count) const;
  const std::vector<NodeId>& list_coordinates();
  std::optional<std::int64_t> find_last_place(NodeId coordinate) const;
  std::optional<std::size_t> find_storage(Arg shown, const Node& node);
  bool make_result(NodeId b, const Node& node);
  bool launch_each(NodeId b, const Node& node);
  bool write(NodeId b, const Node& node);
  bool sends_own_place(const Node& node, NodeId out);
  const ProcessGroup* find_recorded_group(Arg group) const;
  bool write_copy(NodeId b, const Node& node);
  bool write_pieces(const Node& node, Arg out);
  void prove(NodeId b);
  bool may_be_overwritten(NodeId b) const;
  bool is_regrouped(NodeId origin, const MovedContent& value) const;

  void forget_writes_of(NodeId b);
  std::optional<std::vector<MovedView>> find_written(NodeId b, NodeId memory) const;
  const MovedView* find_shown_moved(NodeId b) const;

  std::optional<MovedView> view_of(Arg arg);
  std::optional<MovedView> view_of(NodeId b);
  std::optional<MovedContent> read(Arg arg);
  std::optional<MovedContent> read_joined(Arg list, std::int64_t dim, DType dtype);
  bool write_to(Arg target, const MovedContent& what);
  std::optional<MovedContent> launch(NodeId b, const Node& node, MovedContent sent);
  std::optional<MovedContent> pack(const Node& node);
  std::optional<MovedContent> pack_gather(const Node& node);
  bool packs_all(const Node& node) const;
  std::optional<MovedContent> pack_scatter(const Node& node);
  MovedView keep(NodeId b, MovedContent value);
  std::size_t add_storage(NodeId b, const TensorType& type, MovedContent value, NodeId list = {});

  std::optional<std::int64_t> origin_of(const TensorType& type) const;
  std::optional<std::vector<std::int64_t>> integers(Arg list) const;

  RewriteClaims& claims_;
  Numbers& numbers_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  const LaterWrites& later_in_b_;
  // Of B as it is: a moved value is no storage of its own there.
  std::optional<Effects> memory_;
  std::optional<LaterWrites> later_in_memory_;
  MovementTerms terms_;
  std::optional<MovedGroups> groups_;
  std::optional<MovedValues> values_;  // of A
  MovedMemory storages_{terms_};
  std::map<NodeId, MovedView> views_;                 // of new nodes, and of A's that new ones read
  std::map<NodeId, std::size_t> tuples_;              // of several views of one storage
  std::map<NodeId, std::vector<std::size_t>> lists_;  // of several results: their storages
  std::vector<NodeId> unread_;                        // moved values that show what is not there yet
  std::optional<std::vector<NodeId>> coordinates_;    // of the rank
  MovedLaunches launches_;
  IdSet<NodeId> accounted_, waited_;
  bool has_moved_ = false;
};

}  // namespace epweave
