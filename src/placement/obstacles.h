// All that keeps selected modules from being divided, not only the first of it.
//
//   layers.0.moe.router: aten.split.Tensor cannot run on parts          noted; so can nothing that takes its result
//   layers.1.moe.router: aten.split.Tensor cannot run on parts          noted
//   layers.1.moe: aten.cumsum.default cannot run on parts               noted
//
// is one refusal: the first, and "also aten.split.Tensor in layers.*.moe.router,
// aten.cumsum.default in layers.*.moe".
#pragma once

#include <optional>

#include "base/error.h"
#include "ir/graph.h"

namespace epweave {

class Obstacles {
 public:
  explicit Obstacles(const Graph& graph) : graph_(graph) {}

  void add(NodeId node, const PassError& error);
  // Whether the node takes, through whatever, the result of one that was refused: then nothing can
  // be said of it.
  bool is_behind_one(NodeId node);
  // Throws PassError if there are any.
  void require_none() const;

 private:
  const Graph& graph_;
  IdSet<NodeId> behind_;
  std::vector<NodeId> nodes_;
  std::vector<PassError> errors_;
};

}  // namespace epweave
