// Which operand of a call chooses places along which dimension of which other operand.
//
//   embedding(%w, %ids)                 %ids, dimension 0 of %w
//   gather(%x, 1, %i), scatter(..)      %i, dimension 1 of %x
//   index(%x, [None, %i])               %i, dimension 1 of %x
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct IndexedDim {
  NodeId table;
  std::int64_t dim = 0;  // may count from the end
  NodeId positions;
};

std::vector<IndexedDim> list_indexed_dims(const Context& context, const Node& node);

// How many places there are; none where that is no number.
std::optional<std::int64_t> indexed_extent(const Context& context, const Body& body,
                                           const IndexedDim& indexed);

}  // namespace epweave
