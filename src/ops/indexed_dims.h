// Which operand of a call chooses places along which dimension of which other operand.
//
//   embedding(%w, %ids)                 %ids, dimension 0 of %w
//   gather(%x, 1, %i), scatter(..)      %i, dimension 1 of %x
//   index(%x, [None, %i])               %i, dimension 1 of %x
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

struct IndexedDim {
  NodeId table;
  std::int64_t dim = 0;  // may count from the end
  NodeId positions;
};

std::vector<IndexedDim> list_indexed_dims(const Context& context, const Node& node);

// Where a call whose rows data choose has its operands: what is indexed, the dimension where the
// call names it, the positions, and what is written.
struct IndexedParams {
  std::size_t positions = 1;
  std::size_t written = 2;
};
IndexedParams indexed_params(const OpInfo& op);

// The positions, of a list the only ones. None if several dimensions have some, or none has.
Arg only_positions(const Context& context, const Node& node);

// How many places there are; none where that is no number.
std::optional<std::int64_t> indexed_extent(const Context& context, const Body& body,
                                           const IndexedDim& indexed);

}  // namespace epweave
