// Drops nodes whose results nothing needs.
//
//     %le = aten.le.Scalar(%x, 5)                 (gone)
//     %all = aten.all.default(%le)                (gone)
//     aten._assert_async.msg(%all, "...")         (gone)
//     %relu = aten.relu.default(%x)               %relu = aten.relu.default(%x)
//     output(%relu)                               output(%relu)
//
// Needed are: inputs, outputs, calls that write to an argument, draw random numbers, or have other
// effects (wait_tensor), calls of ops that the op table does not know, and what these need in turn.
// A node that binds a symbol is needed by the nodes whose recorded type or arguments use the
// symbol.
//
// `aten._assert_async` counts as pure, unless asked otherwise: it is bound to a place in the
// program that later passes change, and it would keep its whole chain. A collective and its wait
// stay even if nothing reads the result, as in the reference: what a rank launches is an agreement
// with the others. A collective without a wait has no effect that anyone could see and goes; every
// rank's copy of the program drops the same one.
//
// Nested graphs are treated alike; those that nothing names any more are dropped.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace epweave {

enum class Assertions : std::uint8_t { kDropped, kKept };
Graph dce(const Graph& graph, Assertions assertions = Assertions::kDropped);

}  // namespace epweave
