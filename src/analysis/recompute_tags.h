// The `recompute` field of a forward call: what backward does about its value. The words are
// PyTorch's (CheckpointPolicy), and one of torchtitan's.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace epweave {

struct RecomputeTags {
  explicit RecomputeTags(const Graph& graph)
      : must_save(graph.intern("MUST_SAVE")),
        prefer_save(graph.intern("PREFER_SAVE")),
        must_recompute(graph.intern("MUST_RECOMPUTE")),
        prefer_recompute(graph.intern("PREFER_RECOMPUTE")),
        must_offload(graph.intern("MUST_CPU_OFFLOAD")) {}

  // Both words mean that it is computed again.
  bool is_recomputed(StringId tag) const { return tag && (tag == must_recompute || tag == prefer_recompute); }
  // Of a forward node: copies in backward carry their original's tag, which says nothing more.
  bool is_recomputed(const Node& node) const { return !node.is_backward() && is_recomputed(node.recompute); }

  // Of a backward node: whether it computes again what a forward node computed. Its original's tag
  // says so, or, of a copy without one, the name that the copy was given.
  bool is_repeated(const Graph& graph, const Node& node) const {
    if (!node.is_backward()) return false;
    return is_recomputed(node.recompute) ||
           graph.text(node.name).find("_recomputed") != std::string_view::npos;
  }

  StringId must_save, prefer_save, must_recompute, prefer_recompute;
  StringId must_offload;  // kept on the host from forward to backward
};

}  // namespace epweave
