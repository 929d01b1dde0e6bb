// The least extent that the elements of each input index, in one walk over a step: of the table of
// an embedding, of the dimension of an index, a gather or a scatter, of the classes of a loss.
//
//   %ids = placeholder : i64[2, 16]
//   %e = aten.embedding(%weight, %ids)            weight: [1000, 64]: 1000
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/id.h"
#include "ir/graph.h"

namespace epweave::replay {

class IndexedExtents {
 public:
  explicit IndexedExtents(const Graph& graph);  // which must outlive it

  // None where nothing that is known is indexed by it.
  std::optional<std::int64_t> of(NodeId input) const { return extents_[input]; }
  std::optional<std::int64_t> of(std::string_view input) const;  // by its name
  std::optional<std::int64_t> of_first_embedding() const { return first_embedding_; }

 private:
  void note_indices(const Node& node);
  void note_classes(const Node& node);
  void note(NodeId index, std::optional<std::int64_t> extent);

  const Graph& graph_;
  const Context& context_;
  const Body& step_;
  SideTable<NodeId, NodeId> shown_;  // the input whose elements the node's value has
  SideTable<NodeId, std::optional<std::int64_t>> extents_;
  std::optional<std::int64_t> first_embedding_;
};

}  // namespace epweave::replay
