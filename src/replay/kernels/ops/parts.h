// Parts of a tensor that ops write, copy or move: rows along a dimension. For every device: what is
// copied is copied by copy_elements.
#pragma once

#include <string>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::cpu {

// A copy of the first argument as result 0.
inline Tensor copy_of(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Tensor out = call.make_result(0, self.dtype, self.sizes);
  copy_elements(self, out);
  return out;
}

// A dimension that the tensor has.
inline std::size_t existing_dim(std::int64_t dim, const Tensor& self) {
  if (self.rank() == 0) throw KernelError("a tensor with dimensions is needed");
  return checked_dim(dim, self.rank());
}

// A row counted from the end where it is negative.
inline std::int64_t checked_row(std::int64_t row, std::int64_t rows) {
  const std::int64_t wrapped = row < 0 ? row + rows : row;
  if (wrapped < 0 || wrapped >= rows)
    throw KernelError("index " + std::to_string(row) + " is out of range for a dimension of " +
                      std::to_string(rows));
  return wrapped;
}

// Row `row` along `dim`, which goes.
inline Tensor row_of(const Tensor& self, std::size_t dim, std::int64_t row) {
  Tensor part = self;
  part.offset += row * part.strides[dim];
  part.sizes.erase(part.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return part;
}

inline void put(const Tensor& source, const Tensor& place) {
  if (source.sizes != place.sizes) throw KernelError("the source has other sizes than the place it goes to");
  copy_elements(source, place);
}

}  // namespace epweave::replay::cpu
