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
// coordinates along one or two mesh axes, an element of a split into equal pieces whose index is a
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
#include <utility>
#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

enum class Repair : std::uint8_t { kNo, kYes };

struct GeneralizeAxis {
  std::string name;
  std::uint32_t stride = 1, extent = 1;
  bool is_observed = false;   // two of the given ranks differ along it
  std::optional<Rank> next;   // else, or of what is extrapolated, the rank whose trace would show it
  std::uint32_t seen = 1;     // places along it that the given ranks have
  std::uint32_t numbers = 0;  // found from these places to follow it
  bool is_extrapolated() const { return numbers != 0 && seen < extent; }
};

// Axes along which no given rank differs from the first at once: what depends on both together,
// not as a sum, would not show.
struct GeneralizePairs {
  std::vector<std::pair<std::string, std::string>> unseen;
  Rank next = 0;  // whose trace would show most of them
};

struct Explained {
  std::string node, argument, kind, expression;  // kind: group, mesh, device, coordinate, element
};

struct Unexplained {
  Site site;
  std::string argument, why;
  std::vector<std::string> values;  // per rank, in the order of `ranks`
  std::optional<Rank> next;         // the rank whose trace would decide it
};

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
