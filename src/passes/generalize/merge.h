// What stands for all ranks where their graphs differ: groups, meshes, devices, numbers, elements,
// offsets of views.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/generalize/affine.h"
#include "passes/generalize/findings.h"
#include "passes/generalize/group_pairs.h"
#include "passes/generalize/rank_numbers.h"

namespace epweave {

struct MergedDifferences {
  std::vector<std::uint32_t> numbers_of_axis;  // found from the given ranks to follow each axis
  std::vector<UndecidedNumber> undecided;
  std::optional<Arg> devices;  // of each rank (analysis/devices_on_rank.h), where they differ
};

// Writes it into `made`, a copy of the first graph. The graphs have one structure
// (find_structure_difference); nodes are paired in order.
MergedDifferences merge_differences(const RankJob& job, const JobAxes& axes, Graph& made, GroupPairs& groups,
                                    Findings& findings);

}  // namespace epweave
