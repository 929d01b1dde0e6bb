#include "replay/kernels/host/operands.h"

#include "ir/types/promotion.h"

namespace epweave::replay::cpu {

DType promoted_dtype(const KernelCall& call, std::initializer_list<std::size_t> params) {
  Promotion promotion;
  for (std::size_t param : params) {
    const Value& value = call[param];
    if (value.is_tensor())
      promotion.add_tensor(value.tensor().dtype, call.is_nested() ? 0 : value.tensor().rank());
    else if (value.is<bool>())
      promotion.add_number(DType::kBool);
    else if (value.is<std::int64_t>())
      promotion.add_number(DType::kInt64);
    else if (value.is<double>())
      promotion.add_number(kDefaultFloat);
    else
      promotion.add_number(DType::kComplex64);
  }
  return promotion.result();
}

namespace {

// As torch converts a number to the dtype of the tensors beside it: integers wrap, a bool is
// whether it is not 0.
Value converted(const Value& number, DType dtype) {
  if (compute_of(dtype) != Compute::kInt || !number.is_number()) return number;
  if (dtype == DType::kBool) return Value(number.real() != 0);
  const auto whole = number_as<std::int64_t>(number);
  switch (dtype) {
    case DType::kUint8:
      return Value(std::int64_t{static_cast<std::uint8_t>(whole)});
    case DType::kInt8:
      return Value(std::int64_t{static_cast<std::int8_t>(whole)});
    case DType::kInt16:
      return Value(std::int64_t{static_cast<std::int16_t>(whole)});
    case DType::kUint16:
      return Value(std::int64_t{static_cast<std::uint16_t>(whole)});
    case DType::kInt32:
      return Value(std::int64_t{static_cast<std::int32_t>(whole)});
    case DType::kUint32:
      return Value(std::int64_t{static_cast<std::uint32_t>(whole)});
    default:
      return Value(whole);
  }
}

}  // namespace

Tensor number_tensor(KernelCall& call, const Value& number, DType dtype) {
  constexpr DType kStored[] = {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kComplex64};
  Tensor tensor = call.make(kStored[static_cast<std::size_t>(compute_of(dtype))], {});
  fill_elements(tensor, converted(number, dtype));
  return tensor;
}

Tensor operand(KernelCall& call, std::size_t param, DType common) {
  const Value& value = call[param];
  if (!value.is_tensor()) return number_tensor(call, value, common);
  const Tensor& tensor = value.tensor();
  const bool is_rounded = common == DType::kBfloat16 || common == DType::kFloat16;
  if (tensor.dtype == common || !is_rounded) return tensor;
  Tensor cast = call.make(common, tensor.sizes);
  copy_elements(tensor, cast);
  return cast;
}

}  // namespace epweave::replay::cpu
