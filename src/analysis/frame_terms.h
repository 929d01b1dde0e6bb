// The terms of frames (placement/rows/frames.h, compare/rewrite/verify_frames.h), each once: two
// frames are the same if their numbers are.
//   FrameId tokens = terms.intern({FrameTerms::kTokenOrder, FrameId(), {}});
//   FrameId sorted = terms.intern({FrameTerms::kSort, FrameId(), {terms.word(Arg::node(sort))}});
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "analysis/value_numbers.h"
#include "base/id.h"

namespace epweave {

using FrameId = Id<struct FrameTag>;

class FrameTerms {
 public:
  enum Kind : std::uint32_t {
    kTokenOrder,
    kSort,
    kPick,
    kPlace,
    kExchange,  // by tables that count the rows of each rank
    kDeal,      // exchanged by tables that do not: to each rank the rows that lie in its place
    kGather,    // all ranks' rows
    kScatter,   // one rank's share of the sum of all ranks' rows
    kEach,
    kJoin,     // several rows one behind another
    kRuns,     // rows alike, as many of each kind as a list counts
    kUnknown,  // what a value says: one that has the same number has the same
    kOwn,      // the same, and data made it: it is not the order of the tokens
  };
  static constexpr std::uint64_t kNoFrame = ~std::uint64_t{0};
  struct Term {
    Kind kind;
    FrameId base;  // of rows before
    std::vector<std::uint64_t>
        values;  // words; of kEach: how many; of kJoin: of each its frame, or kNoFrame, and extent
    friend auto operator<=>(const Term&, const Term&) = default;
  };

  FrameTerms(const Graph& graph, const ValueNumbers& numbers) : graph_(graph), numbers_(numbers) {}

  FrameId intern(Term term);
  const Term& operator[](FrameId id) const { return *terms_[id.index()]; }

  // A value by its number, or a literal.
  static constexpr std::uint64_t kNodeWord = std::uint64_t{1} << 63;  // marks a node's number
  std::uint64_t word(Arg a) const {
    return a.is_node() ? kNodeWord | numbers_[a.as_node()].index() : a.bits() & ~kNodeWord;
  }
  static NodeId node_of(std::uint64_t word) { return NodeId(static_cast<std::uint32_t>(word & ~kNodeWord)); }

  // Whether it is made of one of which nothing is known: not which rows it has, and not that others
  // are not the same.
  bool is_unknown(FrameId id) const { return is_unknown_[id.index()]; }
  // Whether a part has its rows in an order of its own, as data make it.
  bool is_own(FrameId id) const { return is_own_[id.index()]; }
  // Whether it is made of rows that were sent to ranks by the places where they lay: of a part,
  // others go to a rank than of the whole.
  bool is_sent_by_place(FrameId id) const { return is_sent_by_place_[id.index()]; }
  // Whether it is made of rows that lie in runs.
  bool is_in_runs(FrameId id) const { return is_in_runs_[id.index()]; }
  // The runs that it is made of alone; none: of other rows.
  FrameId runs_below(FrameId id) const;
  // Whether the parts together may have other rows than the whole.
  bool may_lack_rows(FrameId id) const { return is_unknown(id) || is_sent_by_place(id); }

  // Whether two frames may be one, computed twice where value numbering cannot see it
  // (same_code.h).
  bool may_be_same(FrameId a, FrameId b) const;

 private:
  // Whether it is true of a term that a new one is made of.
  static bool is_true_below(const Term& term, const std::vector<bool>& of_terms);
  bool may_be_same_word(std::uint64_t a, std::uint64_t b) const;

  const Graph& graph_;
  const ValueNumbers& numbers_;
  std::map<Term, FrameId> ids_;
  std::vector<const Term*> terms_;
  std::vector<bool> is_unknown_, is_own_, is_sent_by_place_, is_in_runs_;
};

}  // namespace epweave
