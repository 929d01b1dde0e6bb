// Random calls of row-wise ops, from a table: one row per op, with what its operands must be like.
//
//   {"aten.pow.Tensor_Tensor", "p t"}      a positive number to a power between -1 and 1
#pragma once

#include "testing/dice.h"
#include "testing/step_builder.h"

namespace epweave {

// A call on `x` and `y`, both f32 [rows, width]; the result is f32 of the same shape, and its
// numbers moderate if theirs are.
NodeId make_elementwise_call(StepBuilder& build, Dice& dice, NodeId x, NodeId y);

}  // namespace epweave
