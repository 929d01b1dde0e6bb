// The rows of a recipe that a graph needs beyond those that ship.
//
//   %input_ids = placeholder : i64[2, 16] role=user which=input_ids
//   %e = aten.embedding(%weight, %input_ids)            weight: [1000, 64]
//       {"name": "input_ids", "make": "integers", "below": 1000}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave::replay {

struct RecipeAdvice {
  NodeId input;
  std::string problem;  // "no row of the recipe fits it"
  std::string row;      // a JSON object
};

// Of the inputs that the shipped recipe cannot make, in their order.
std::vector<RecipeAdvice> advise_rows(const Graph& graph);

// A row that makes the integers of an input: below the rows of the table that the graph's first
// embedding reads; 1000 where it has none.
std::string integers_row(const Graph& graph, std::string_view name);

// {"inputs": [row, ..]}
std::string recipe_of(const std::vector<std::string>& rows);

}  // namespace epweave::replay
