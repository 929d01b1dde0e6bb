#include "analysis/layers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/module_path.h"
#include "base/parse_number.h"
#include "ops/bind.h"
#include "ops/family.h"

namespace epweave {
namespace {

std::optional<std::int64_t> number_of(std::string_view component) {
  const auto number = parse_number<std::int64_t>(component);
  return number >= 0 ? number : std::nullopt;
}

std::string_view first_component(std::string_view path) {
  return path.substr(0, path.find('.'));
}

// What stands in front of the first number of a path; empty where there is none.
std::string_view list_of(std::string_view path) {
  for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    if (number_of(first_component(path.substr(dot + 1)))) return path.substr(0, dot);
  return {};
}

}  // namespace

std::string find_block_list(const Graph& graph) {
  constexpr std::string_view kLayers = "layers";
  SideTable<StringId, std::int64_t> calls;
  std::vector<StringId> modules;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall || !node.module) continue;
    if (calls.at(node.module)++ > 0) continue;
    if (list_of(graph.text(node.module)) == kLayers) return std::string(kLayers);
    modules.push_back(node.module);
  }
  std::vector<std::pair<std::string_view, std::int64_t>> lists;
  for (StringId module : modules) {
    const std::string_view list = list_of(graph.text(module));
    if (list.empty()) continue;
    const auto known = std::ranges::find(lists, list, [](const auto& entry) { return entry.first; });
    if (known == lists.end())
      lists.emplace_back(list, calls[module]);
    else
      known->second += calls[module];
  }
  if (lists.empty()) return std::string(kLayers);
  return std::string(
      std::ranges::max_element(lists, {}, [](const auto& entry) { return entry.second; })->first);
}

BlockNames find_block_names(const Graph& graph) {
  BlockNames names{.pattern = find_block_list(graph) + ".*"};
  std::map<std::string_view, std::pair<std::int64_t, std::int64_t>> exchanges;  // labelled, all; by module
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall || !has_family(node, OpFamily::kAllToAll) || !node.module) continue;
    const TensorType* type = tensor_of(*graph.context, node.type);
    if (node.ep.token_count_exchange || (type != nullptr && !is_floating(type->dtype))) continue;
    const std::string_view path = graph.text(node.module), block = match_module(names.pattern, path);
    if (block.empty()) continue;
    const std::string_view below = path.substr(block.size());
    auto& [labelled, all] = exchanges[below.substr(0, below.find('.', 1))];
    labelled += node.ep.ep || node.ep.token_exchange ? 1 : 0;
    ++all;
  }
  if (!exchanges.empty())
    names.exchanging =
        std::ranges::max_element(exchanges, {}, [](const auto& entry) { return entry.second; })->first;
  return names;
}

std::int64_t Layers::of(std::string_view path) const {
  if (path.size() <= list_.size() || !is_in_module(path, list_)) return kNoLayer;
  return number_of(first_component(path.substr(list_.size() + 1))).value_or(kNoLayer);
}

std::int64_t Layers::of(const Node& node) {
  if (!node.module) return kNoLayer;
  std::int64_t& layer = layers_.at(node.module);
  if (layer == kUnread) layer = of(context_.text(node.module));
  return layer;
}

bool is_in_module(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

bool is_behind_layers(std::string_view path) {
  return is_in_module(path, "lm_head") || is_in_module(path, "loss");
}

}  // namespace epweave
