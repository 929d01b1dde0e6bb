// Wrong halves of a step: what they say of the values that one hands to the other, and of what they
// return, is changed at one place.
//
//   roles of two inputs or outputs of a half exchanged; an input's role another input's
//   another value of the same type returned
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"
#include "testing/dice.h"

namespace epweave {

struct HalfChange {
  Graph graph;
  std::string kind, place;
};

// None: the place that was drawn does not allow the change.
std::optional<HalfChange> change_interface(const Graph& half, Dice& dice);

}  // namespace epweave
