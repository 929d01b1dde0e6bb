// Writes an order that was found for a step: proves it, and records which nodes moved.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "cost/step_model.h"
#include "ir/graph.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

// Why a node of this kind stands where it does.
using MoveReason = std::string_view (*)(StepKind);

// `after` is equal to `before`, whose model this is, and gets the order. Returns how many nodes
// moved. Throws PassError schedule.illegal-order.
std::size_t apply_order(const Graph& before, const StepModel& model, std::span<const Place> order,
                        const ScheduleRules& rules, MoveReason reason, Graph& after);

}  // namespace epweave
