// Values with bounds of their errors against each other, element by element.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {

// How two values lie within their bounds.
struct BoundComparison {
  bool is_within = true;
  bool is_bounded = true;            // no element's bound is infinite
  double largest_share = 0;          // of |a - b| / bound
  std::int64_t index = -1;           // of the first element outside, row-major
  double difference = 0, bound = 0;  // there
};
std::string describe(const BoundComparison& comparison);

struct BoundedValue {
  Tensor value;
  Tensor bound;  // float32
};
BoundedValue take_bounded(const Tensor& value, ErrorBounds& bounds);  // copies

// One value against another, or against several that add up to it.
BoundComparison compare_bounded(const BoundedValue& a, const std::vector<BoundedValue>& b);

// An element of A, the sum of B's, of their magnitudes, and of all bounds.
struct Compared {
  double a, sum, size, bound;
};
void add_element(BoundComparison& to, std::int64_t index, const Compared& element);
void merge(BoundComparison& all, const BoundComparison& part);

// The elements, row-major.
Buffer<double> read_numbers(const Tensor& tensor);

}  // namespace epweave::replay
