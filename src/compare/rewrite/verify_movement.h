// What a rewrite moves through storage of its own, on a rank and between ranks: values that are
// packed, sent by one launch instead of several, and cut out again.
//
//   A   %w0 = wait(all_gather(%p)), %w1 = wait(all_gather(%q))
//   B   %buf = pack([%p, %q]); %w = wait(all_gather_out(slice(%buf), out=%buf)); %v0, %v1 = columns of %w
//   proved: %v0 and %w0 are the same elements of %p of the same ranks, in the same order (movement.h)
//
// B's new nodes are followed in their order, storage by storage: which elements each piece of
// memory holds, and what a view of it shows. A new launch is accounted for if what it moves is what
// launches of A moved (moved_launches.h); a new write, if it writes storage that the rewrite made.
// Everything that is read must be as it was when it was computed: nothing may write it later. A
// gather whose source lies in the buffer that it fills sends from the rank's own place: its place
// in the group, or in a graph for all ranks a coordinate that is this place on each of them. What a
// write that is not followed may change, of any storage, is unknown from there on:
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
#include "analysis/write_places.h"
#include "compare/rewrite/moved_launches.h"
#include "compare/rewrite/movement.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class MovementCheck {
 public:
  MovementCheck(RewriteClaims& claims, Numbers& numbers, const Effects& effects_a, const Effects& effects_b);

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
  struct Storage {
    Sequence content;
    std::int64_t packed = 0;  // the most elements that one of them, a reduction, moved at once
    DType dtype = DType::kFloat32;
    // Where memory of B has the first of these elements; none: they do not lie there in this order.
    std::optional<std::int64_t> origin;
    std::map<std::int64_t, std::int64_t> shown;  // ranges that claimed values show, as begin and end
    NodeId memory;                               // by its first value
    // A buffer for all ranks of which each fills its own part, which begins at this number of
    // elements: `content` has that part first. None: once the other parts are there, and elsewhere.
    std::optional<ExprId> own_start;
    NodeId place;  // the coordinate that gives it, or none
    // The memory that the launch which gives this reads until it is waited for; none: no launch is
    // under way.
    NodeId sent;
    NodeId list;  // the launch of which this is one of several results, each in memory of its own
  };
  struct RecordedGroup {
    const Graph* graph = nullptr;
    const ProcessGroup* group = nullptr;
  };
  // Elements of a storage, as a tensor.
  struct View {
    std::size_t storage = 0;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset = 0;
    bool is_own = false;  // of the rank's own part: `offset` is from where that begins
  };
  struct Read {
    Sequence elements;
    std::int64_t packed = 0;
    std::optional<ExprId> own_start = std::nullopt;  // as in Storage
    NodeId place = {};
  };

  bool is_new(NodeId b) const;
  const Sequence& of_a(NodeId a);
  NodeId moved_operand(NodeId a);
  bool is_written_before(NodeId value, NodeId reader);
  std::optional<Sequence> move_in_a(NodeId a);
  Sequence leaf(NodeId a);
  std::optional<Sequence> send(const Node& node, const Sequence& sent, bool of_b);

  bool shows_before_it_is_there(NodeId b);
  void prove_read_by(NodeId b);
  bool follow(NodeId b);
  bool lies_as_recorded(const Node& node);
  bool make_view(NodeId b, const Node& node);
  std::optional<std::int64_t> offset_of(const TensorType& type, const Storage& storage) const;
  std::optional<ExprId> place_of(Arg arg) const;
  std::optional<std::size_t> find_storage(Arg shown, const Node& node);
  bool make_result(NodeId b, const Node& node);
  bool launch_each(NodeId b, const Node& node);
  bool write(NodeId b, const Node& node);
  bool sends_own_place(const Node& node, NodeId out);
  const ProcessGroup* find_recorded_group(Arg group) const;
  bool is_place_in(NodeId coordinate, const ProcessGroup& group) const;
  bool write_copy(NodeId b, const Node& node);
  bool write_pieces(const Node& node, Arg out);
  void prove(NodeId b);
  bool show_apart(NodeId b);
  bool may_share_memory(std::size_t storage, std::size_t other) const;
  bool may_be_overwritten(NodeId b) const;
  bool is_regrouped(NodeId origin, const Read& value) const;

  void begin_launch(std::size_t storage, NodeId operand);
  void end_launch(std::size_t storage);
  void disturb_launches(NodeId memory, NodeId writer);

  void forget_writes_of(NodeId b);
  std::optional<std::vector<View>> find_written(NodeId b, NodeId memory) const;
  const View* find_shown_moved(NodeId b) const;
  void forget(std::size_t storage, NodeId writer);
  void forget(const View& view, NodeId writer);

  std::optional<View> view_of(Arg arg);
  std::optional<View> view_of(NodeId b);
  std::optional<Sequence> elements_of(const View& view) const;
  bool put(const View& view, const Sequence& what);
  std::optional<Read> read(Arg arg);
  std::optional<Read> read_joined(Arg list, std::int64_t dim, DType dtype);
  bool write_to(Arg target, const Read& what);
  std::optional<Read> launch(NodeId b, const Node& node, Read sent);
  std::optional<Read> pack(const Node& node);
  std::optional<Read> pack_gather(const Node& node);
  bool packs_all(const Node& node) const;
  std::optional<Read> pack_scatter(const Node& node);
  View keep(NodeId b, Read value);
  std::size_t add_storage(NodeId b, const TensorType& type, Read value);

  bool reserve(std::int64_t pieces);
  std::optional<std::int64_t> origin_of(const TensorType& type) const;
  std::optional<std::vector<std::int64_t>> sizes_of(const TensorType* type) const;
  void number_lookups();
  NodeId lookup_split(const Graph& graph, StringId name) const;
  std::optional<std::uint64_t> group_of(const Graph& graph, Arg group, bool of_b);
  std::size_t number_group(const Graph& graph, const ProcessGroup& group);
  std::optional<std::vector<std::int64_t>> numbers(std::span<const ExprId> exprs) const;
  std::optional<std::vector<std::int64_t>> integers(Arg list) const;

  RewriteClaims& claims_;
  Numbers& numbers_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  LaterWrites later_in_a_, later_in_b_;
  std::optional<WritePlaces> writes_in_a_;  // once asked for, with the places
  IdVector<NodeId, std::uint32_t> place_in_a_;
  // Of B as it is: a moved value is no storage of its own there.
  std::optional<Effects> memory_;
  std::optional<LaterWrites> later_in_memory_;
  MovementTerms terms_;
  std::map<NodeId, Sequence> of_a_;
  std::map<NodeId, View> views_;                      // of new nodes, and of A's that new ones read
  std::map<NodeId, std::size_t> tuples_;              // of several views of one storage
  std::map<NodeId, std::vector<std::size_t>> lists_;  // of several results: their storages
  std::vector<Storage> storages_;
  std::vector<std::size_t> under_way_;                      // storages that launches write now
  std::vector<NodeId> unread_;                              // moved values that show what is not there yet
  std::map<NodeId, std::vector<std::size_t>> storages_in_;  // by the first value of a memory
  std::vector<RecordedGroup> groups_;                       // of those that are one, the first
  std::map<std::pair<const Graph*, StringId>, std::size_t> group_numbers_;
  SideTable<NodeId, NodeId> lookups_;                   // of A: the first node that looks the same group up
  std::map<StringId, std::vector<NodeId>> lookups_of_;  // the first of each axis, by recorded name
  MovedLaunches launches_;
  std::int64_t pieces_ = 0;  // of all sequences that are kept
  IdSet<NodeId> accounted_, waited_;
  bool has_moved_ = false;
};

}  // namespace epweave
