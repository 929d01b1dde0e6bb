#include "replay/inputs/recipe_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/world.h"
#include "replay/inputs/indexed_extents.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kAnyVocabulary = 1000;

std::string print(const nlohmann::ordered_json& row) {
  std::string text = "{";
  for (const auto& [key, value] : row.items())
    text += fmt::format("{}\"{}\": {}", text.size() == 1 ? "" : ", ", key, value.dump());
  return text + "}";
}

RecipeAdvice advise_row(const IndexedExtents& indexed, NodeId input, const TensorType& type,
                        std::string_view name) {
  RecipeAdvice advice{.place = 0, .input = input};
  if (type.dtype == DType::kBool) {
    advice.row = print({{"name", name}, {"make", "constant"}, {"value", 1}});
    return advice;
  }
  const auto extent = indexed.of_first_embedding();
  advice.is_guess = !extent;
  advice.row = print({{"name", name}, {"make", "integers"}, {"below", extent.value_or(kAnyVocabulary)}});
  return advice;
}

}  // namespace

std::vector<RecipeAdvice> advise_rows(const Graph& graph, const InputFacts& facts, const Recipe& recipe) {
  const IndexedExtents indexed(graph);
  std::vector<RecipeAdvice> list;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const TensorType* type = tensor_of(*graph.context, facts.node_of(i).type);
    if (type == nullptr) continue;
    const std::string_view name = facts.recipe_name(i);
    const RecipeRow* row =
        recipe.find({facts.role_text(i, &InputRole::role), name, type->rank(), type->dtype});
    const bool lacks_vocabulary = row != nullptr && row->make == Generator::kTokens &&
                                  facts.find_vocabulary().value_or(0) <= 0 && facts.reads_elements(i);
    if ((row != nullptr && !lacks_vocabulary) || indexed.of(facts.placeholders()[i])) continue;
    RecipeAdvice advice = advise_row(indexed, facts.placeholders()[i], *type, name);
    advice.is_guess = advice.is_guess && facts.reads_elements(i);
    advice.place = i;
    advice.problem =
        row == nullptr ? "no row of the recipe fits it" : "no parameter's name tells the vocabulary";
    list.push_back(std::move(advice));
  }
  return list;
}

std::vector<RecipeAdvice> advise_rows(const Graph& graph) {
  const World world = read_world(graph);
  return advise_rows(graph, InputFacts(graph, world), torchtitan_recipe());
}

std::vector<UnmadeInput> list_unmade(const Graph& graph) {
  const World world = read_world(graph);
  const InputFacts facts(graph, world);
  std::vector<UnmadeInput> list;
  for (std::size_t i = 0; i < facts.size(); ++i)
    if (InputProblem problem = facts.problem(i); !problem.empty())
      list.push_back({facts.placeholders()[i], std::string(facts.recipe_name(i)), std::move(problem)});
  return list;
}

std::string rows_of(const std::vector<RecipeAdvice>& advice) {
  std::vector<std::string> rows;
  for (const RecipeAdvice& row : advice)
    if (std::ranges::find(rows, row.row) == rows.end()) rows.push_back(row.row);
  return fmt::format("{}", fmt::join(rows, ", "));
}

std::string recipe_of(const std::vector<RecipeAdvice>& advice) {
  return fmt::format("{{\"inputs\": [{}]}}", rows_of(advice));
}

std::string name_guesses(const Graph& graph, const std::vector<RecipeAdvice>& advice) {
  std::vector<std::string> names;
  for (const RecipeAdvice& row : advice)
    if (row.is_guess) names.push_back(fmt::format("%{}", graph.text(graph.step().nodes[row.input].name)));
  if (names.empty()) return "";
  return fmt::format("{} is a guess: nothing tells which integers {} may have", kAnyVocabulary,
                     fmt::join(names, ", "));
}

}  // namespace epweave::replay
