// Numbers that must follow a coordinate though the given ranks do not show that they do, or which
// coordinate (analysis/rank_literals.h).
#pragma once

#include <string>
#include <vector>

#include "passes/generalize/affine.h"
#include "passes/generalize/findings.h"

namespace epweave {

enum class Repair : std::uint8_t { kNo, kYes };

// A number that follows one of several axes, as far as the given ranks show.
struct UndecidedNumber {
  ArgumentPlace place;
  std::vector<Arg> leaves;  // on each rank
  AffineAnswer answer;
};

// Replaces, with `repair`, what the lookups of `made` prove to follow a coordinate; refuses all
// else. Returns a line for each number that looks like one rank's and is not proved to be.
std::vector<std::string> repair_numbers(const RankJob& job, const JobAxes& axes, Repair repair,
                                        std::vector<UndecidedNumber> undecided, Graph& made,
                                        Findings& findings);

}  // namespace epweave
