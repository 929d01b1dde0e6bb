// Test only: sums in an order that is none of ours: from the last rank to the first, rounded to the
// dtype after each step, as a ring that sends partial sums does.
#pragma once

#include <vector>

#include "replay/kernels/math/elements.h"
#include "replay/nccl/nccl_api.h"

namespace epweave::replay::nccl {

inline std::size_t bytes_of(Element type) {
  switch (type) {
    case Element::kInt8:
    case Element::kUint8:
      return 1;
    case Element::kFloat16:
    case Element::kBfloat16:
      return 2;
    case Element::kInt32:
    case Element::kUint32:
    case Element::kFloat32:
      return 4;
    default:
      return 8;
  }
}

inline math::Stored stored_of(Element type) {
  switch (type) {
    case Element::kInt8:
      return math::Stored::kInt8;
    case Element::kUint8:
      return math::Stored::kUint8;
    case Element::kInt32:
      return math::Stored::kInt32;
    case Element::kUint32:
      return math::Stored::kUint32;
    case Element::kFloat16:
      return math::Stored::kFloat16;
    case Element::kFloat32:
      return math::Stored::kFloat32;
    case Element::kFloat64:
      return math::Stored::kFloat64;
    case Element::kBfloat16:
      return math::Stored::kBfloat16;
    default:
      return math::Stored::kInt64;
  }
}

template <class C>
C combine(Sum op, C a, C b) {
  switch (op) {
    case Sum::kMax:
      return a > b ? a : b;
    case Sum::kMin:
      return a < b ? a : b;
    case Sum::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// `parts`: `count` elements of each rank.
template <class C>
void sum_as(const std::vector<const void*>& parts, void* to, std::size_t count, Element type, Sum op) {
  const math::Stored stored = stored_of(type);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
    math::store_element(to, stored, i, math::load_element<C>(parts.back(), stored, i));
    for (std::size_t k = parts.size() - 1; k-- > 0;)
      math::store_element(
          to, stored, i,
          combine(op, math::load_element<C>(to, stored, i), math::load_element<C>(parts[k], stored, i)));
    if (op == Sum::kAvg)
      math::store_element(
          to, stored, i, static_cast<C>(math::load_element<C>(to, stored, i) / static_cast<C>(parts.size())));
  }
}
inline void sum_along_ring(const std::vector<const void*>& parts, void* to, std::size_t count, Element type,
                           Sum op) {
  switch (type) {
    case Element::kFloat16:
    case Element::kBfloat16:
    case Element::kFloat32:
      return sum_as<float>(parts, to, count, type, op);
    case Element::kFloat64:
      return sum_as<double>(parts, to, count, type, op);
    default:
      return sum_as<std::int64_t>(parts, to, count, type, op);
  }
}

}  // namespace epweave::replay::nccl
