// Which layer of the model a node belongs to: the number of the block that its module's path is in.
//
//   layers.3.moe.router     3          tok_embeddings, norm, lm_head     kNoLayer
//   model.layers.3.mlp      3
//   blocks.3.ffn            3
//
// The blocks are those of the list `layers`. Where no module is in one, they are those of the list
// that most calls are in: `model.layers`, `blocks`, `transformer.h`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

inline constexpr std::int64_t kNoLayer = -1;

// The path of the list of blocks: "layers", "model.layers". "layers" where the graph has none.
std::string find_block_list(const Graph& graph);

// What a pass divides where nobody says more: blocks, and in each the module that exchanges tokens.
struct BlockNames {
  std::string pattern = "layers.*";
  std::string exchanging = ".moe";  // behind a block's path; empty: the block itself exchanges
};
BlockNames find_block_names(const Graph& graph);

// The layers of a graph's nodes; each path is read once.
class Layers {
 public:
  explicit Layers(const Graph& graph) : context_(*graph.context), list_(find_block_list(graph)) {}
  std::int64_t of(const Node& node);
  std::int64_t of(std::string_view path) const;

 private:
  static constexpr std::int64_t kUnread = -2;
  const Context& context_;
  std::string list_;
  SideTable<StringId, std::int64_t> layers_{kUnread};
};

// Whether the path is this module's, or of a module in it: `loss`, `loss.ce`, but not `loss_scale`.
bool is_in_module(std::string_view path, std::string_view module);

// Whether a module comes behind the layers: the head and the loss, whose backward runs first.
bool is_behind_layers(std::string_view path);

}  // namespace epweave
