#include "replay/inputs/recipe_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/indexed_dims.h"
#include "ops/op.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kAnyVocabulary = 1000;

// The least extent that each input's elements index, in one walk over the step.
class IndexedExtents {
 public:
  explicit IndexedExtents(const Graph& graph) : context_(*graph.context), step_(graph.step()) {
    for (NodeId id : step_.order) {
      const Node& node = step_.nodes[id];
      if (node.kind == NodeKind::kPlaceholder) shown_.at(id) = id;
      if (node.op == nullptr) continue;
      note_indices(node);
      if (shows_elements(node.op->family))
        if (const Arg first = arg_of(context_, node, 0); first.is_node())
          shown_.at(id) = shown_[first.as_node()];
    }
  }

  // None where nothing that is known is indexed by it.
  std::optional<std::int64_t> of(NodeId input) const { return extents_[input]; }
  // Of the first embedding's table.
  std::optional<std::int64_t> vocabulary() const { return vocabulary_; }

 private:
  void note_indices(const Node& node) {
    for (const IndexedDim& indexed : list_indexed_dims(context_, node)) {
      const auto extent = indexed_extent(context_, step_, indexed);
      note(indexed.positions, extent);
      if (node.op->family == OpFamily::kEmbedding && !vocabulary_) vocabulary_ = extent;
    }
    if (node.op->family == OpFamily::kClassLoss) note_classes(node);
  }

  // Labels choose among the scores of each row.
  void note_classes(const Node& node) {
    const Arg scores = arg_of(context_, node, 0), labels = arg_of(context_, node, 1);
    if (!scores.is_node() || !labels.is_node()) return;
    const TensorType* type = tensor_of(context_, step_.nodes[scores.as_node()].type);
    const std::int64_t dim = type != nullptr && type->rank() == 1 ? 0 : 1;
    note(labels.as_node(), indexed_extent(context_, step_, {scores.as_node(), dim, labels.as_node()}));
  }

  void note(NodeId index, std::optional<std::int64_t> extent) {
    const NodeId input = shown_[index];
    if (!input || !extent || *extent <= 0) return;
    std::optional<std::int64_t>& least = extents_.at(input);
    least = std::min(least.value_or(*extent), *extent);
  }

  const Context& context_;
  const Body& step_;
  SideTable<NodeId, NodeId> shown_;  // the input whose elements the node's value has
  SideTable<NodeId, std::optional<std::int64_t>> extents_;
  std::optional<std::int64_t> vocabulary_;
};

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
  const auto extent = indexed.of(input) ? indexed.of(input) : indexed.vocabulary();
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
    if (row != nullptr && !lacks_vocabulary) continue;
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
