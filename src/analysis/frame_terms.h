// The terms of frames (placement/rows/frames.h, compare/rewrite/verify_frames.h), each once: two frames are the same if
// their numbers are.
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
  enum Kind : std::uint32_t { kTokenOrder, kSort, kPick, kPlace, kExchange, kEach };
  struct Term {
    Kind kind;
    FrameId base;                       // of rows before
    std::vector<std::uint64_t> values;  // words; of kEach: how many
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

  // Whether two frames may be one, computed twice where value numbering cannot see it (same_code.h).
  bool may_be_same(FrameId a, FrameId b) const;

 private:
  bool may_be_same_word(std::uint64_t a, std::uint64_t b) const;

  const Graph& graph_;
  const ValueNumbers& numbers_;
  std::map<Term, FrameId> ids_;
  std::vector<const Term*> terms_;
};

}  // namespace epweave
