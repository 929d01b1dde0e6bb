#include "analysis/layers.h"

#include <charconv>

namespace epweave {

std::int64_t layer_of(std::string_view module) {
  constexpr std::string_view kPrefix = "layers.";
  if (!module.starts_with(kPrefix)) return kNoLayer;
  module.remove_prefix(kPrefix.size());
  module = module.substr(0, module.find('.'));
  std::int64_t layer = kNoLayer;
  const auto [end, error] = std::from_chars(module.data(), module.data() + module.size(), layer);
  return error == std::errc() && end == module.data() + module.size() ? layer : kNoLayer;
}

std::int64_t Layers::of(const Node& node) {
  if (!node.module) return kNoLayer;
  std::int64_t& layer = layers_.at(node.module);
  if (layer == kUnread) layer = layer_of(context_.text(node.module));
  return layer;
}

bool is_in_module(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

bool is_behind_layers(std::string_view path) {
  return is_in_module(path, "lm_head") || is_in_module(path, "loss");
}

}  // namespace epweave
