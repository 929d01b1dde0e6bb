// The rows of a recipe that a graph needs beyond those that it has.
//
//   %kinds = placeholder : i64[2, 16] role=user which=kinds
//   %x = aten.mul.Tensor(%kinds, 3)
//       {"name": "kinds", "make": "integers", "below": 1000}
//
// Integers that choose a place are made without a row (indexed_extents.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "replay/inputs/input_facts.h"
#include "replay/inputs/recipe.h"

namespace epweave::replay {

struct RecipeAdvice {
  std::size_t place;  // among the placeholders
  NodeId input;
  std::string problem;    // "no row of the recipe fits it"
  std::string row;        // a JSON object
  bool is_guess = false;  // nothing tells which integers it may have
};

// Of the inputs that the recipe cannot make, in their order.
std::vector<RecipeAdvice> advise_rows(const Graph& graph, const InputFacts& facts, const Recipe& recipe);
std::vector<RecipeAdvice> advise_rows(const Graph& graph);  // of the recipe that ships

// An input that no recipe makes, as a parameter of which ranks hold different amounts.
struct UnmadeInput {
  NodeId input;
  std::string name;  // that recipes go by
  InputProblem problem;
};
std::vector<UnmadeInput> list_unmade(const Graph& graph);

// "row, row", each once.
std::string rows_of(const std::vector<RecipeAdvice>& advice);

// {"inputs": [row, ..]}
std::string recipe_of(const std::vector<RecipeAdvice>& advice);

// "1000 is a guess: nothing tells which integers y has", of all that are; or empty.
std::string name_guesses(const Graph& graph, const std::vector<RecipeAdvice>& advice);

}  // namespace epweave::replay
