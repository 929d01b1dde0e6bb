// Which layer of the model a node belongs to: the number behind `layers.` in its module's path.
//
//   layers.3.moe.router     3          tok_embeddings, norm, lm_head     kNoLayer
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

inline constexpr std::int64_t kNoLayer = -1;

std::int64_t layer_of(std::string_view module);

// The same of many nodes of one context; each path is read once.
class Layers {
 public:
  explicit Layers(const Context& context) : context_(context) {}
  std::int64_t of(const Node& node);

 private:
  static constexpr std::int64_t kUnread = -2;
  const Context& context_;
  SideTable<StringId, std::int64_t> layers_{kUnread};
};

// Whether the path is this module's, or of a module in it: `loss`, `loss.ce`, but not `loss_scale`.
bool is_in_module(std::string_view path, std::string_view module);

// Whether a module comes behind the layers: the head and the loss, whose backward runs first.
bool is_behind_layers(std::string_view path);

}  // namespace epweave
