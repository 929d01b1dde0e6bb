// Operands of pointwise ops: tensors and numbers brought to one dtype as torch does it.
#pragma once

#include <initializer_list>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::cpu {

// torch.result_type of the parameters at these positions. In a nested graph every tensor counts as
// one without dimensions, as it was when traced.
DType promoted_dtype(const KernelCall& call, std::initializer_list<std::size_t> params);

// The parameter as a tensor to compute with in `common`. Tensors are rounded to `common`; a number
// is kept in the compute type (float for bfloat16), as torch does.
Tensor operand(KernelCall& call, std::size_t param, DType common);

// The number as a tensor without dimensions of `dtype`'s compute type.
Tensor number_tensor(KernelCall& call, const Value& number, DType dtype);

}  // namespace epweave::replay::cpu
