// A slice that takes one of equal runs of a dimension, and the gradient that is put back there
// among zeros.
//
//   %a = slice(%x: [2*u, 3], 0, %n: u, %m: 2*u): [u, 3]       run 1 of 2 of dimension 0
//   %g = slice_backward(%a: [u, 3], [%m, 3], 0, 0, %n, 1)     run 0 of 2
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

struct SlicedRun {
  std::size_t dim = 0;
  std::int64_t index = 0, count = 1;
  friend bool operator==(const SlicedRun&, const SlicedRun&) = default;
};

// Whatever the extents' symbols are; none where it takes other elements, or that is not known. The
// node must have a row in the op table.
std::optional<SlicedRun> sliced_run(const Graph& graph, const Node& node, Facts& facts);

}  // namespace epweave
