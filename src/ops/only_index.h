// The index of a call that picks or writes along one dimension.
//
//   index(%x, [None, %i])      {%i, 1}
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace epweave {

struct OnlyIndex {
  Arg index = Arg::none();
  std::size_t dim = 0;
};

// Of a list with an index, or None, to a dimension. None if no dimension, or several, have one.
OnlyIndex only_index(const Context& context, Arg indices);

}  // namespace epweave
