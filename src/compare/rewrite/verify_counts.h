// Do the split sizes of an exchange count the rows that it sends to each rank? A part that sends
// rows which it sorted itself, by numbers of its own, sends each to the rank that the whole sends
// it to only then.
//
//   marks  = scatter_(zeros_like(scores), -1, ids, True)     one mark for each id of a token
//   counts = sum(marks, [0])                                 how many rows each id has
//   rows   = x[sort(reshape(ids, [-1]))[1] // k]
//   all_to_all(rows, all_to_all(counts), counts)             counts[i] rows are those of id i
//
// Rows lie in runs, of each id, or of each rank and id: of as many rows as a list is repeated by
// (check_runs).
//
//   theirs = all_to_all(counts)
//   owner  = index_select(repeat(arange(2), [2]), 0, repeat_interleave(theirs))
//   received[sort(owner)[1]]                         row i of `owner` is of the run of received[i]
//   ends   = cumsum(sum(view(theirs, [2, 2]), [0]))  where the groups of these rows end
//
// Or each row is picked by its place: of run j of the transposed counts, the rows of that run from
// where it began on.
//
//   sizes  = reshape(t(view(theirs, [2, 2])), [-1])          of rank 0 and 1 for id 0, then for id 1
//   from   = reshape(t(view(cumsum(theirs) - theirs, [2, 2])), [-1])
//   run    = repeat_interleave(sizes)
//   places = from[run] + arange - (cumsum(sizes) - sizes)[run]
//   received[places]                                 in groups that end at `ends`
//
// Read off the graph of the whole: the same calls make the sizes of a part. That the part counts
// and sorts the same of the ids is read off its own graph (compare_ids). The sizes are followed
// back to the ids that they count, through sums of neighbours, and for what a rank receives through
// an exchange by equal shares within the same group. Whatever else makes them is not known to
// count. Ids of which neither is made of the other are known to be others. They are counted from
// the first on: rows that are sorted by them downwards lie in another order.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "analysis/effects.h"
#include "analysis/value_numbers.h"
#include "ir/graph.h"
#include "ops/bind.h"

namespace epweave {

class CountCheck {
 public:
  CountCheck(const Graph& graph, const Effects& effects, const ValueNumbers& numbers);

  enum class Verdict { kCounted, kUnknown, kOthers };
  struct Finding {
    Verdict verdict = Verdict::kUnknown;
    // Of kOthers: one, if rows are sorted downwards by it. Of kUnknown, where both are known and
    // not shown to be one.
    NodeId counted, sorted_by;
  };
  // An all-to-all of rows in the order that the node `sort` gives.
  Finding check(NodeId exchange, NodeId sort) const;
  // Where groups of such rows end: sums of counts from the first on.
  Finding check_ends(NodeId ends, NodeId sort) const;
  // Whether rows in the order that `sort` gives, then exchanged if there is an exchange, lie in
  // runs of as many rows as `counts` says.
  Finding check_runs(NodeId counts, NodeId exchange, NodeId sort) const;
  // The same rows, picked by their places: where groups of whole runs end.
  Finding check_ends_of_places(NodeId ends, NodeId places, NodeId exchange, NodeId sort) const;

  // Only whether what is counted is what is sorted.
  Finding compare_ids(NodeId exchange, NodeId sort) const;
  Finding compare_ids_of_ends(NodeId ends, NodeId sort) const;

 private:
  // How many rows there are of each bucket of neighbouring ids: of this rank, or what it was sent
  // of them over a group.
  struct Histogram {
    NodeId ids;
    std::optional<Arg> received_over;
  };
  using Counted = std::vector<std::optional<Histogram>>;  // none: what is not known to count
  using Sizes = std::vector<Arg>;

  std::optional<Histogram> counted_by(const Sizes& sizes) const;
  std::optional<Histogram> counted_by_ends(NodeId ends) const;
  // `ranks`: of the exchange that gives what was received; none: any number.
  std::optional<Histogram> follow(NodeId vector, std::optional<std::size_t> ranks) const;
  bool counts_classes(NodeId ends, NodeId sort) const;
  Finding find_ends_of_places(NodeId ends, NodeId places, NodeId exchange, NodeId sort) const;
  NodeId counts_of_runs(NodeId picked) const;
  NodeId index_of(NodeId picked) const;
  // Numbers in a grid of so many columns.
  struct Grid {
    NodeId list;
    std::int64_t columns = 0;
  };
  std::optional<Grid> grid_of(NodeId value) const;
  // Of a list of the numbers of a grid column by column.
  std::optional<Grid> transposed(NodeId list) const;
  NodeId sums_before(NodeId list) const;
  struct PlacesByRun {
    NodeId from, sizes;  // where the rows of each run begin; how many there are
  };
  std::optional<PlacesByRun> places_by_run(NodeId places) const;
  struct Term {
    NodeId value;
    bool is_subtracted;
  };
  std::vector<Term> terms_of(NodeId sum) const;
  bool is_one(NodeId x, NodeId y) const { return x && y && numbers_[x] == numbers_[y]; }
  std::optional<std::int64_t> length_of_cycle(NodeId list) const;
  NodeId vector_of(Arg number, std::size_t place) const;
  NodeId entry_of(NodeId entry, std::size_t place) const;
  NodeId marked_ids(NodeId marks) const;
  bool differ_in_each_row(NodeId ids) const;
  NodeId integers_behind(NodeId value) const;
  NodeId ids_behind(NodeId value) const;
  NodeId key_of(NodeId sort) const;

  NodeId first_input(NodeId value) const;
  bool keeps_integers(NodeId value) const;
  bool is_even(const Node& exchange, std::optional<std::size_t> ranks) const;
  std::optional<std::vector<bool>> summed_dimensions(NodeId sum) const;
  Finding in_order(NodeId sort, std::size_t ids) const;
  bool sums_neighbours(NodeId sum) const;
  bool is_sum_from_first(NodeId scan) const;
  bool is_list(NodeId value) const;
  std::optional<std::int64_t> length_of(NodeId list) const;
  bool sums_rows_of_marks(NodeId sum) const;
  const Counted& list_counted(NodeId exchange) const;
  Finding compare(const Counted& counted, NodeId key) const;
  bool is_made_of(NodeId value, NodeId of) const;
  bool is_same(Arg a, Arg b) const;
  Sizes list(const Node& node, std::string_view name) const;
  std::uint32_t writes_to(NodeId value) const { return writes_[effects_.storage_of(value)]; }
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool is_of(NodeId id, OpFamily family) const { return has_family(node(id), family); }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  const ValueNumbers& numbers_;
  SideTable<NodeId, std::uint32_t> writes_;  // by storage
  // What each product of the same rows asks for.
  mutable std::map<NodeId, Counted> counted_;                      // by exchange
  mutable std::map<std::array<NodeId, 4>, Finding> ends_checked_;  // by ends, places, exchange and sort
};

}  // namespace epweave
