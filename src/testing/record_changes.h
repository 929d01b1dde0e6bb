// Random changes of what a graph says beside its calls: the order, recorded types, facts about
// symbols, provenance.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"
#include "testing/dice.h"

namespace epweave {

struct RecordChange {
  Graph graph;
  std::string kind, place;
};

// None: the place that was drawn does not allow the change.
std::optional<RecordChange> draw_record_change(const Graph& graph, Dice& dice);

}  // namespace epweave
