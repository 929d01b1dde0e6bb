#include "replay/inputs/input_files.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>

#include "base/nearest_name.h"

namespace epweave::replay {
namespace {

// The names that mean an input on a rank, in order.
std::array<std::string, 4> list_keys(const InputName& input, Rank rank) {
  const std::string prefix = fmt::format("rank{}/", rank);
  return {prefix + input.name, prefix + input.node, input.name, input.node};
}

bool is_tensor_input(const Graph& graph, const Node& node) {
  return node.type && graph.context->types[node.type].kind == TypeKind::kTensor;
}

}  // namespace

std::vector<InputName> list_input_names(const Graph& graph) {
  std::vector<InputName> names;
  std::map<std::string, std::size_t, std::less<>> uses;
  std::size_t next = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) continue;
    const std::size_t at = next++;
    InputName name{{}, std::string(graph.text(node.name))};
    if (at < graph.inputs.size() && is_tensor_input(graph, node)) {
      const InputRole& role = graph.inputs[at];
      name.name = graph.text(role.fqn ? role.fqn : role.which);
      ++uses[name.name];
    }
    names.push_back(std::move(name));
  }
  for (InputName& name : names)
    if (name.name.empty() || uses[name.name] > 1) name.name = name.node;
  return names;
}

void InputFiles::add(const std::string& path) {
  auto file = std::make_unique<SafetensorsFile>(path);
  for (const auto& [name, tensor] : file->tensors()) {
    const SafetensorsFile* other = nullptr;
    if (find_entry(name, other) != nullptr)
      throw InputError(fmt::format("{}: tensor `{}` is in {} too", path, name, other->path()));
  }
  files_.push_back(std::move(file));
}

const StoredTensors::value_type* InputFiles::find_entry(const std::string& name,
                                                        const SafetensorsFile*& file) const {
  for (const auto& candidate : files_) {
    const auto found = candidate->tensors().find(name);
    if (found == candidate->tensors().end()) continue;
    file = candidate.get();
    return &*found;
  }
  return nullptr;
}

InputFiles::Found InputFiles::find(const InputName& input, Rank rank) const {
  const auto keys = list_keys(input, rank);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Found found;
    found.entry = find_entry(keys[i], found.file);
    found.is_of_rank = i < 2;
    if (found.entry != nullptr) return found;
  }
  return {};
}

void InputFiles::require_all_used(const std::vector<User>& users) const {
  std::set<std::string, std::less<>> used;
  std::vector<InputName> inputs;
  for (const User& user : users) {
    for (InputName& input : list_input_names(user.graph)) {
      for (Rank rank = 0; rank < user.ranks; ++rank)
        if (const Found found = find(input, rank); found.entry != nullptr) used.insert(found.entry->first);
      inputs.push_back(std::move(input));
    }
  }
  for (const auto& file : files_) {
    for (const auto& [name, tensor] : file->tensors()) {
      if (used.contains(name)) continue;
      std::vector<std::string_view> known;
      for (const InputName& input : inputs) known.insert(known.end(), {input.name, input.node});
      const std::string_view nearest = nearest_name(name, known);
      throw InputError(fmt::format(
          "{}: tensor `{}` is no input of the graph, or another tensor takes its place{}", file->path(), name,
          nearest.empty() || nearest == name ? std::string() : fmt::format("; did you mean `{}`?", nearest)));
    }
  }
}

}  // namespace epweave::replay
