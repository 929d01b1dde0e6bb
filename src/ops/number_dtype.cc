#include "ops/number_dtype.h"

#include "ir/types/promotion.h"

namespace epweave {

std::optional<DType> dtype_of_number(TypeRuleCall& call, Arg value) {
  switch (value.kind()) {
    case ArgKind::kInt:
      return DType::kInt64;
    case ArgKind::kReal:
      return kDefaultFloat;
    case ArgKind::kBool:
      return DType::kBool;
    case ArgKind::kComplex:
      return DType::kComplex64;
    case ArgKind::kSymbolic:
      return DType::kInt64;
    default:
      break;
  }
  const TypeId type = call.type_of(value);
  if (!type) return std::nullopt;
  const Type& t = call.context.types[type];
  if (t.kind == TypeKind::kValue && !t.value.is_node()) return dtype_of_number(call, t.value);
  if (t.kind != TypeKind::kScalar) return std::nullopt;
  const std::string_view python = call.context.text(t.py_type);
  return python == "SymFloat" ? kDefaultFloat : python == "SymBool" ? DType::kBool : DType::kInt64;
}

}  // namespace epweave
