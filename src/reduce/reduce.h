// Shrinks a graph while a property of it holds: what is left of a failing training step is small
// enough to read.
//
//   before   3,474 nodes: a pass declines them           after   %x = placeholder, %w = placeholder, %mm =
//   mm(%x, %w), output
//
// Delta debugging: pieces are left out, large ones first, and stay out if the property still holds.
//
//   outputs     returned values, with all that only they need
//   nodes       a run of calls; values of them that others take become placeholders of the same
//               type
//   inputs      placeholders that nobody takes
//   tables      symbols, groups, nested graphs, info, the log of passes with all provenance
//   facts       source locations, other metadata, module paths, EP labels
//
// Rounds of these until one changes nothing. Only graphs of sound structure are tried. The result
// is small, not the smallest. The same graph and property give the same result, however many
// candidates are tried at once: those that are tried ahead are the ones that come next if none
// before them has the property, and the first that has it counts.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct ReduceHooks {
  std::function<bool(const Graph&)> holds;       // the property
  std::function<void(const Graph&)> on_smaller;  // each time a smaller graph has it
  std::function<bool()> is_stopped;              // asked before each try: gives up with the best so far
  std::size_t width = 1;                         // candidates tried at once, at most
  // Which of 1 to `width` graphs is the first that has the property. Without: `holds`, one after
  // the other.
  std::function<std::optional<std::size_t>(std::span<const Graph>)> find_first;
};

struct Reduction {
  Graph graph;
  std::size_t tries = 0;    // those tried ahead in vain are not counted
  bool is_finished = true;  // false: stopped
};

// The property holds of `graph`.
Reduction reduce_graph(const Graph& graph, const ReduceHooks& hooks);

}  // namespace epweave
