// Type promotion as torch.result_type does it: operands with dimensions outweigh 0-dimensional
// ones, and those outweigh Python numbers, within a category (bool, integral, floating, complex).
#pragma once

#include <optional>

#include "ir/types/type.h"

namespace epweave {

// torch.promote_types.
DType promote(DType a, DType b);

// The dtype of float results of an op on integers: torch's default dtype.
inline constexpr DType kDefaultFloat = DType::kFloat32;

// Integral and bool become the default float.
DType to_float(DType dtype);
// complex64 -> float32; others unchanged.
DType to_real(DType dtype);
// float32 -> complex64. None for what has no complex counterpart.
std::optional<DType> to_complex(DType dtype);
// What sums of the dtype are taken in: int64 for bool and integral.
DType to_sum(DType dtype);
// The dtype in which CUDA kernels accumulate: float32 for float16 and bfloat16.
DType to_accumulate(DType dtype);

// Collects operands.
class Promotion {
 public:
  void add_tensor(DType dtype, std::size_t rank) { add(rank > 0 ? dims_ : scalars_, dtype); }
  void add_number(DType dtype) { add(numbers_, dtype); }
  DType result() const;

 private:
  static void add(std::optional<DType>& slot, DType dtype) { slot = slot ? promote(*slot, dtype) : dtype; }
  static std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower);

  std::optional<DType> dims_, scalars_, numbers_;
};

}  // namespace epweave
