#include "ops/bucket_dtypes.h"

#include <utility>

namespace epweave {
namespace {

// In order; some have two names.
constexpr std::pair<std::int64_t, DType> kPositions[] = {
    {1, DType::kBfloat16},        {8, DType::kBool},
    {9, DType::kComplex128},      {10, DType::kComplex64},
    {11, DType::kComplex32},      {12, DType::kComplex128},
    {13, DType::kComplex32},      {14, DType::kComplex64},
    {15, DType::kFloat64},        {16, DType::kFloat32},
    {17, DType::kFloat16},        {18, DType::kFloat32},
    {20, DType::kFloat64},        {21, DType::kFloat8E4m3fn},
    {22, DType::kFloat8E4m3fnuz}, {23, DType::kFloat8E5m2},
    {24, DType::kFloat8E5m2fnuz}, {26, DType::kFloat16},
    {27, DType::kInt32},          {29, DType::kInt16},
    {32, DType::kInt32},          {36, DType::kInt64},
    {38, DType::kInt8},           {39, DType::kInt64},
    {45, DType::kInt16},          {56, DType::kUint8},
};

}  // namespace

std::optional<DType> dtype_at_position(std::int64_t position) {
  for (const auto& [known, dtype] : kPositions)
    if (known == position) return dtype;
  return {};
}

std::optional<std::int64_t> position_of_dtype(DType dtype) {
  for (const auto& [position, known] : kPositions)
    if (known == dtype) return position;
  return {};
}

}  // namespace epweave
