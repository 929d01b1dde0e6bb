// Wrong halves of a step: what they say of the values that one hands to the other, and of what they
// return, is changed at one place.
//
//   roles of two inputs or outputs of a half exchanged; an input's role another input's
//   another value of the same type returned
#pragma once

#include <optional>

#include "ir/graph.h"
#include "testing/dice.h"
#include "testing/record_changes.h"

namespace epweave {

// None: the place that was drawn does not allow the change.
std::optional<RecordChange> change_interface(const Graph& half, Dice& dice);

}  // namespace epweave
