// What values that number rows say: that they are the order of a sort, the way back from one, each
// row once (frames.h). By the name that a value had when it was made: of storage that is written
// they say nothing.
#pragma once

#include <cstdint>

#include "analysis/effects.h"
#include "analysis/frame_terms.h"
#include "analysis/value_numbers.h"
#include "base/id.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class RowNumbers {
 public:
  // All must outlive it.
  RowNumbers(const Graph& graph, const Effects& effects, const ValueNumbers& numbers, Facts& facts);

  bool is_written(NodeId value) const { return effects_.is_written(effects_.storage_of(value)); }
  // The sort whose order the value is, by its number.
  NodeId sort_of(Arg order) const;
  // A word for terms: an order by its sort, else the value.
  std::uint64_t word(const FrameTerms& terms, Arg index) const;
  // 0, 1, ..
  bool counts(NodeId index) const;
  // Each row once.
  bool is_permutation(Arg index) const;
  // The order whose way back the value is when it is made.
  NodeId undone_by(NodeId value) const;

 private:
  // By what its numbers are, also once more divided by 1; none where they may be written.
  NodeId as_made(Arg numbers) const;

  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  const ValueNumbers& numbers_;
  Facts& facts_;
  IdSet<NodeId> permutations_;  // by number
};

}  // namespace epweave
