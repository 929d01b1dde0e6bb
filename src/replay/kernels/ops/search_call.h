// searchsorted and bucketize as they are called. For every device.
#pragma once

#include <algorithm>

#include "replay/kernels/kernel.h"

namespace epweave::replay::cpu {

struct Search {
  const Tensor &boundaries, &values;
  bool is_right, is_int32;
};

// searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter).
inline Search read_searchsorted(const KernelCall& call) {
  if (!call[5].is_none()) throw KernelError("searchsorted: sorter is not supported");
  const Extents &boundaries = call.tensor(0).sizes, &values = call.tensor(1).sizes;
  if (boundaries.empty()) throw KernelError("searchsorted: boundaries have a dimension");
  const bool has_rows = boundaries.size() == values.size() &&
                        std::equal(boundaries.begin(), boundaries.end() - 1, values.begin());
  if (boundaries.size() != 1 && !has_rows)
    throw KernelError("searchsorted: boundaries are one row, or one for each row of values");
  const bool is_right = call.boolean(3) || (call[4].is<Text>() && call[4].as<Text>().text == "right");
  return {call.tensor(0), call.tensor(1), is_right, call.boolean(2)};
}
// bucketize(self, boundaries, *, out_int32, right).
inline Search read_bucketize(const KernelCall& call) {
  if (call.tensor(1).rank() != 1) throw KernelError("bucketize: boundaries have one dimension");
  return {call.tensor(1), call.tensor(0), call.boolean(3), call.boolean(2)};
}

}  // namespace epweave::replay::cpu
