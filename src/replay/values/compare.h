// Comparing values bit for bit, and what is told of their numbers. All NaNs of a dtype are one
// value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/values/value.h"

namespace epweave::replay {

// The Euclidean norm, summed in double in row-major order; none for dtypes without one.
std::optional<double> find_norm(const Tensor& tensor);
bool has_only_finite(const Tensor& tensor);
// NaN or infinity, and NaN alone: false for what holds no numbers.
bool has_not_finite(const Tensor& tensor);
bool has_nan(const Tensor& tensor);

struct TensorDifference {
  std::string problem;  // "dtype", "sizes": nothing else holds then
  std::int64_t differing = 0;
  std::int64_t index = -1;  // of the first that differs, row-major
  std::string bits_a, bits_b;
  double value_a = 0, value_b = 0;
  std::optional<std::uint64_t> ulp;  // of the first; none if either is NaN or the dtype has no such order
  double relative_error = 0;         // |a - b| / |a|, Euclidean

  bool is_equal() const { return problem.empty() && differing == 0; }
};

// The problem, if dtypes or sizes differ; else "". Looks at no element.
std::string find_misfit(const Tensor& a, const Tensor& b);
TensorDifference compare_tensors(const Tensor& a, const Tensor& b);

// "first at 17: 0x3f80 (1) and 0x3f81 (1.0078125), 1 ULP; 4 of 96 differ, relative error 0.001"
std::string describe(const TensorDifference& difference);

}  // namespace epweave::replay
