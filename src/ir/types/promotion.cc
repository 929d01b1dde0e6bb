#include "ir/types/promotion.h"

#include <algorithm>

namespace epweave {
namespace {

bool is_unsigned(DType d) {
  return d == DType::kUint8 || d == DType::kUint16 || d == DType::kUint32 || d == DType::kUint64;
}

DType signed_of(unsigned bytes) {
  switch (bytes) {
    case 1:
      return DType::kInt8;
    case 2:
      return DType::kInt16;
    case 4:
      return DType::kInt32;
    default:
      return DType::kInt64;
  }
}

DType promote_integral(DType a, DType b) {
  const unsigned x = info(a).bytes, y = info(b).bytes;
  if (is_unsigned(a) == is_unsigned(b)) return x >= y ? a : b;
  const unsigned unsigned_bytes = is_unsigned(a) ? x : y, signed_bytes = is_unsigned(a) ? y : x;
  return signed_of(std::max(signed_bytes, 2 * unsigned_bytes));
}

DType promote_floating(DType a, DType b) {
  const unsigned x = info(a).bytes, y = info(b).bytes;
  if (x != y) return x > y ? a : b;
  return DType::kFloat32;  // float16 with bfloat16
}

}  // namespace

DType to_float(DType dtype) {
  return is_inexact(dtype) ? dtype : kDefaultFloat;
}

DType to_real(DType dtype) {
  switch (dtype) {
    case DType::kComplex32:
      return DType::kFloat16;
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

std::optional<DType> to_complex(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return DType::kComplex32;
    case DType::kFloat32:
      return DType::kComplex64;
    case DType::kFloat64:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

DType to_sum(DType dtype) {
  return is_integral(dtype) || dtype == DType::kBool ? DType::kInt64 : dtype;
}

DType to_accumulate(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 ? DType::kFloat32 : dtype;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (is_complex(a) || is_complex(b)) {
    const DType real = promote(to_real(a), to_real(b));
    return to_complex(real).value_or(DType::kComplex64);
  }
  if (is_floating(a) && is_floating(b)) return promote_floating(a, b);
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  return promote_integral(a, b);
}

std::optional<DType> Promotion::combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || is_complex(*higher)) return higher;
  if (is_floating(*higher)) {
    if (!is_complex(*lower)) return higher;
    return to_complex(*higher).value_or(DType::kComplex64);
  }
  if (*higher == DType::kBool || is_inexact(*lower)) return promote(*higher, *lower);
  return higher;
}

DType Promotion::result() const {
  return combine(dims_, combine(scalars_, numbers_)).value_or(kDefaultFloat);
}

}  // namespace epweave
