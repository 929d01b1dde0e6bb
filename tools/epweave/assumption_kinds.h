// The assumptions of a proof as a person reads them: one of each kind. A part of a MoE model
// reads hundreds of numbers from its tensors, and the proof assumes of each what the original says
// of its.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace epweave::cli {

// Assumptions that say the same of other symbols or nodes.
struct AssumptionKind {
  std::string first;  // "in each part, 0 <= u4"; of a long sum its ends: "u1 + u2 + .. + u64 = 4*u0"
  std::size_t count = 0;
  // Why it is not proved, and what the model can write so that it is. Empty of facts about numbers,
  // which say all by themselves; `spelling` also where none is known.
  std::string_view why, spelling;
};

// In the order of their first ones.
std::vector<AssumptionKind> group_assumptions(const std::vector<std::string>& assumptions);

// "without an assumption", "under 2 assumptions", "under 4 kinds of assumption (470 in all)".
std::string count_assumptions(std::size_t kinds, std::size_t all);

}  // namespace epweave::cli
