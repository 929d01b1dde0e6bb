// searchsorted and bucketize as they are called. For every device.
#pragma once

#include "replay/kernels/kernel.h"

namespace epweave::replay::cpu {

struct Search {
  const Tensor &boundaries, &values;
  bool is_right, is_int32;
};

// searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter).
inline Search read_searchsorted(const KernelCall& call) {
  if (!call[5].is_none()) throw KernelError("searchsorted: sorter is not supported");
  if (call.tensor(0).rank() == 0) throw KernelError("searchsorted: boundaries have a dimension");
  const bool is_right = call.boolean(3) || (call[4].is<Text>() && call[4].as<Text>().text == "right");
  return {call.tensor(0), call.tensor(1), is_right, call.boolean(2)};
}
// bucketize(self, boundaries, *, out_int32, right).
inline Search read_bucketize(const KernelCall& call) {
  if (call.tensor(1).rank() != 1) throw KernelError("bucketize: boundaries have one dimension");
  return {call.tensor(1), call.tensor(0), call.boolean(3), call.boolean(2)};
}

}  // namespace epweave::replay::cpu
