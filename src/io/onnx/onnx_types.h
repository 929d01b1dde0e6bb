// Recorded types as ONNX types: what ONNX can say of them. The exact type stands in the metadata.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "onnx_model.pb.h"

namespace epweave::onnx_form {

// ONNX's number of an element type, or 0 where it has none.
std::int32_t onnx_dtype(DType dtype);
std::optional<DType> dtype_of_onnx(std::int64_t number);

// A tensor: element type and sizes, an expression as `dim_param`. A symbolic scalar: a tensor
// without dimensions. Anything else: a sequence or optional, which says no more than that it is not
// a tensor.
void encode_type(const Context& context, TypeId type, onnx::TypeProto& out);

// Whether ONNX says more of the type than that it is no tensor.
bool is_expressible(const Context& context, TypeId type);

}  // namespace epweave::onnx_form
