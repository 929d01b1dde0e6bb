#include "replay/inputs/recipe_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "analysis/world.h"
#include "ops/op.h"
#include "replay/inputs/input_facts.h"
#include "replay/inputs/recipe.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kAnyVocabulary = 1000;

std::int64_t find_table_rows(const Graph& graph) {
  const Context& context = *graph.context;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.op == nullptr || node.op->family != OpFamily::kEmbedding || node.args.empty()) continue;
    const Arg table = context.args[node.args].front();
    const TensorType* type =
        table.is_node() ? tensor_of(context, graph.step().nodes[table.as_node()].type) : nullptr;
    if (type == nullptr || type->sizes.empty()) continue;
    if (const auto rows = context.exprs.constant(type->sizes[0])) return *rows;
  }
  return kAnyVocabulary;
}

std::string print(const nlohmann::ordered_json& row) {
  std::string text = "{";
  for (const auto& [key, value] : row.items())
    text += fmt::format("{}\"{}\": {}", text.size() == 1 ? "" : ", ", key, value.dump());
  return text + "}";
}

std::string constant_row(std::string_view name) {
  return print({{"name", name}, {"make", "constant"}, {"value", 1}});
}

}  // namespace

std::string integers_row(const Graph& graph, std::string_view name) {
  return print({{"name", name}, {"make", "integers"}, {"below", find_table_rows(graph)}});
}

std::string recipe_of(const std::vector<std::string>& rows) {
  return fmt::format("{{\"inputs\": [{}]}}", fmt::join(rows, ", "));
}

std::vector<RecipeAdvice> advise_rows(const Graph& graph) {
  const World world = read_world(graph);
  const InputFacts facts(graph, world);
  std::vector<RecipeAdvice> advice;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const TensorType* type = tensor_of(*graph.context, facts.node_of(i).type);
    if (type == nullptr) continue;
    const std::string_view name = facts.recipe_name(i);
    const RecipeRow* row =
        torchtitan_recipe().find({facts.role_text(i, &InputRole::role), name, type->rank(), type->dtype});
    if (row == nullptr)
      advice.push_back({facts.placeholders()[i], "no row of the shipped recipe fits it",
                        type->dtype == DType::kBool ? constant_row(name) : integers_row(graph, name)});
    else if (row->make == Generator::kTokens && !facts.find_vocabulary())
      advice.push_back(
          {facts.placeholders()[i], "no parameter's name tells the vocabulary", integers_row(graph, name)});
  }
  return advice;
}

}  // namespace epweave::replay
