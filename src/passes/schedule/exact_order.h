// The best order of a small step: every order of its kernels, launches and waits, but for those
// that cannot be better than the best one found.
//
//   at most kMovable nodes that take time or wait; others go in front of their first user
//
// A step that large has at most a few hundred thousand orders that are worth a look; the count is
// limited anyway.
#pragma once

#include <optional>

#include "passes/schedule/order_value.h"

namespace epweave {

inline constexpr std::size_t kMovable = 12;

std::vector<Place> list_movable(const ScheduleProblem& problem);

// An order within the budget that takes less than `below` seconds, the best there is; none if there
// is none.
std::optional<std::vector<Place>> find_exact_order(const ScheduleProblem& problem, std::int64_t budget,
                                                   double below);

}  // namespace epweave
