// The mean of each row and how far its elements are from it.
#pragma once

#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {

struct Moments {
  Tensor mean, variance;  // [rows, 1]
  Tensor distances;       // of the elements from the mean
};
// The sum of squared distances over length - correction, or 0 / 0 where that is not positive.
inline Moments moments_of(Scratch& scratch, const Tensor& rows, double correction) {
  const Tensor mean = scratch.sum_rows(rows, Scratch::Sum::kMean);
  const Tensor distances = scratch.map<math::Difference>(rows, mean);
  const Tensor total = scratch.sum_rows(scratch.map<math::Square>(distances));
  const double divisor = static_cast<double>(rows.sizes[1]) - correction;
  const Tensor degrees = scratch.filled(rows.dtype, {1, 1}, Value(divisor > 0 ? divisor : 0.0));
  return {mean, scratch.map<math::Div>(total, degrees), distances};
}

}  // namespace epweave::replay::shared
