#include "io/onnx/onnx_types.h"

#include <algorithm>
#include <array>

namespace epweave::onnx_form {
namespace {

struct Pair {
  DType dtype;
  std::int32_t number;  // TensorProto.DataType
};

// Without torch.complex32 and the packed torch.float4_e2m1fn_x2, which ONNX does not have.
constexpr std::array kTypes = {
    Pair{DType::kFloat32, 1},
    Pair{DType::kUint8, 2},
    Pair{DType::kInt8, 3},
    Pair{DType::kUint16, 4},
    Pair{DType::kInt16, 5},
    Pair{DType::kInt32, 6},
    Pair{DType::kInt64, 7},
    Pair{DType::kBool, 9},
    Pair{DType::kFloat16, 10},
    Pair{DType::kFloat64, 11},
    Pair{DType::kUint32, 12},
    Pair{DType::kUint64, 13},
    Pair{DType::kComplex64, 14},
    Pair{DType::kComplex128, 15},
    Pair{DType::kBfloat16, 16},
    Pair{DType::kFloat8E4m3fn, 17},
    Pair{DType::kFloat8E4m3fnuz, 18},
    Pair{DType::kFloat8E5m2, 19},
    Pair{DType::kFloat8E5m2fnuz, 20},
    Pair{DType::kFloat8E8m0fnu, 24},
};

void encode_tensor(const Context& context, const TensorType& tensor, onnx::TypeProto::Tensor& out) {
  out.set_elem_type(onnx_dtype(tensor.dtype));
  onnx::TensorShapeProto& shape = *out.mutable_shape();
  for (const ExprId size : tensor.sizes) {
    onnx::TensorShapeProto::Dimension& dim = *shape.add_dim();
    const auto value = context.exprs.constant(size);
    if (value && *value >= 0) {
      dim.set_dim_value(*value);
    } else {
      dim.set_dim_param(std::string(context.exprs.text(size)));
    }
  }
}

std::int32_t dtype_of_scalar(std::string_view py_type) {
  if (py_type == "SymFloat") return onnx_dtype(DType::kFloat64);
  return onnx_dtype(py_type == "SymBool" ? DType::kBool : DType::kInt64);
}

}  // namespace

std::int32_t onnx_dtype(DType dtype) {
  const auto found = std::ranges::find(kTypes, dtype, &Pair::dtype);
  return found == kTypes.end() ? 0 : found->number;
}

std::optional<DType> dtype_of_onnx(std::int64_t number) {
  const auto found = std::ranges::find(kTypes, number, &Pair::number);
  if (found == kTypes.end()) return std::nullopt;
  return found->dtype;
}

bool is_expressible(const Context& context, TypeId type) {
  if (!type) return false;
  const TypeKind kind = context.types[type].kind;
  return kind == TypeKind::kTensor || kind == TypeKind::kScalar;
}

void encode_type(const Context& context, TypeId type, onnx::TypeProto& out) {
  if (is_expressible(context, type)) {
    const Type& known = context.types[type];
    if (known.kind == TypeKind::kTensor)
      return encode_tensor(context, known.tensor, *out.mutable_tensor_type());
    out.mutable_tensor_type()->set_elem_type(dtype_of_scalar(context.text(known.py_type)));
    out.mutable_tensor_type()->mutable_shape();
    return;
  }
  const bool is_sequence =
      type && (context.types[type].kind == TypeKind::kTuple || context.types[type].kind == TypeKind::kList);
  auto& wrapper = is_sequence ? *out.mutable_sequence_type() : *out.mutable_optional_type();
  onnx::TypeProto::Tensor& element = *wrapper.mutable_elem_type()->mutable_tensor_type();
  element.set_elem_type(0);
}

}  // namespace epweave::onnx_form
