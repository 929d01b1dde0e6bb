// generalize: one graph for all ranks from the graphs of some.
//
//   rank 0    %g = all_gather(%p, 2, "23")   %ge = ge(%ids, 0)      %y = clone(getitem(split(%x, 8, 2), 0))
//   rank 1    %g = all_gather(%p, 2, "24")   %ge = ge(%ids, 1024)   %y = clone(getitem(split(%x, 8, 2), 1))
//   made      %g = all_gather(%p, 2, "23")   info rank_groups = {"23": [["24", [1, 3]]]}
//             %o = mul(%coordinate_tp, 1024)   %ge = ge(%ids, %o)
//             %y = clone(slice(%x, 2, 8 * c_tp, 8 + 8 * c_tp))
//
// Nodes are paired in order. What differs is explained: a group (the members on each rank are the
// group of one axis), a mesh (through the rank), a number that is an affine function of the rank's
// coordinates along mesh axes, an element of a split into equal pieces whose index is a
// coordinate, a device that ranks call by another index (cuda:1 for cuda:0; the graph has the first
// rank's). What is not explained is named, and then nothing is made. Numbers that must follow a
// coordinate though they do not differ between the given ranks (analysis/rank_literals.h) are
// unexplained, too; with `repair` they are replaced, and where the given ranks do not tell which
// axis a number follows, that proof does. A view that begins at a place of the rank's has an offset
// that follows the coordinate. Where the given ranks have some places of an axis, a number that
// follows it is a guess at the others: the axis counts such numbers, and names the rank that would
// show the last of them (where a ring wraps around, and an edge is).
//
// specialize of the result gives each of the graphs back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"
#include "passes/generalize/findings.h"
#include "passes/generalize/job_axes.h"
#include "passes/generalize/rank_numbers.h"

namespace epweave {

struct Generalization {
  std::vector<Rank> ranks;
  std::vector<GeneralizeAxis> axes;
  GeneralizePairs pairs;
  std::vector<Explained> explained;
  std::vector<Unexplained> unexplained;
  std::optional<std::string> structure;  // the first difference that is none of arguments
  std::vector<std::string> unproved;     // numbers that look like one rank's
  std::optional<Graph> graph;            // none where something is unexplained
};

// The graphs share a context. Throws InputError for graphs of different jobs, worlds, or of one
// rank twice.
Generalization generalize(const std::vector<Graph>& graphs, Repair repair);

}  // namespace epweave
