// Elementwise ops: shapes broadcast, dtypes promote, strides follow the operands (TensorIterator).
#include "ir/types/promotion.h"
#include "ops/number_dtype.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

// Operands of one elementwise call.
struct Operands {
  std::vector<const TensorType*> tensors;
  Promotion promotion;
};

enum class Weight { kPromotes, kShapeOnly };

void add_operand(TypeRuleCall& call, Operands& operands, std::size_t param, Weight weight) {
  if (const auto number = dtype_of_number(call, call.arg(param))) {
    if (weight == Weight::kPromotes) operands.promotion.add_number(*number);
    return;
  }
  const TensorType* tensor = call.optional_tensor(param);
  if (tensor == nullptr) return;
  operands.tensors.push_back(tensor);
  if (weight == Weight::kPromotes) operands.promotion.add_tensor(tensor->dtype, tensor->rank());
}

// None: the operand is.
std::optional<DType> dtype_of_operand(TypeRuleCall& call, std::size_t param) {
  if (const auto number = dtype_of_number(call, call.arg(param))) return number;
  const TensorType* tensor = call.optional_tensor(param);
  return tensor != nullptr ? std::optional(tensor->dtype) : std::nullopt;
}

// Of `grad_output`, `self` and the numbers of a function's backward, the tensors.
Operands tensor_operands_of(TypeRuleCall& call) {
  Operands operands;
  for (std::size_t i = 0; i < call.param_count(); ++i)
    if (call.node.op->params[i].type == "Tensor") add_operand(call, operands, i, Weight::kPromotes);
  if (operands.tensors.empty()) call.mismatch("no operand is a tensor");
  return operands;
}

Operands operands_of(TypeRuleCall& call, std::size_t first, std::size_t count) {
  Operands operands;
  for (std::size_t i = first; i < first + count; ++i) add_operand(call, operands, i, Weight::kPromotes);
  if (operands.tensors.empty()) call.mismatch("no operand is a tensor");
  return operands;
}

bool is_cpu_scalar(TypeRuleCall& call, const TensorType& tensor) {
  return tensor.rank() == 0 && call.context.text(tensor.device).starts_with("cpu");
}

// The device of the operands; 0-dimensional CPU tensors go with any.
StringId common_device(TypeRuleCall& call, std::span<const TensorType* const> tensors) {
  StringId device = tensors.front()->device;
  bool is_fixed = false;
  for (const TensorType* tensor : tensors) {
    if (is_cpu_scalar(call, *tensor)) continue;
    if (is_fixed && tensor->device != device)
      call.mismatch("operands are on {} and {}", call.context.text(device),
                    call.context.text(tensor->device));
    device = tensor->device;
    is_fixed = true;
  }
  return device;
}

Dims common_sizes(TypeRuleCall& call, std::span<const TensorType* const> tensors) {
  if (tensors.size() == 1) return tensors.front()->sizes;
  std::vector<std::span<const ExprId>> shapes;
  for (const TensorType* tensor : tensors) shapes.emplace_back(tensor->sizes);
  return broadcast_sizes(call, shapes);
}

TypeId elementwise(TypeRuleCall& call, std::span<const TensorType* const> tensors, DType dtype) {
  const StringId device = common_device(call, tensors);
  Dims sizes = common_sizes(call, tensors);
  std::vector<Layout> layouts;
  for (const TensorType* tensor : tensors)
    if (tensors.size() == 1 || !is_cpu_scalar(call, *tensor)) layouts.push_back(layout_of(*tensor));
  Dims strides = layouts.empty() ? contiguous_strides(call.facts, sizes)
                                 : elementwise_strides(call.facts, sizes, layouts);
  return call.result(dtype, std::move(sizes), std::move(strides), device);
}

// Whether numbers of the first dtype are of a wider kind: complex above real, fractions above
// integers.
bool is_above(DType x, DType y) {
  return (is_complex(x) && !is_complex(y)) || (is_floating(x) && !is_inexact(y));
}

// Whether torch writes results of a dtype into a tensor of another (torch.can_cast): no complex
// number into a real one, no fraction into an integer, nothing but a bool into a bool.
bool can_write(DType result, DType to) {
  if (is_complex(result)) return is_complex(to);
  if (is_floating(result)) return is_inexact(to);
  return result == DType::kBool || to != DType::kBool;
}

void check_written(TypeRuleCall& call, DType result, std::size_t param = 0) {
  const DType to = call.tensor(param).dtype;
  if (!can_write(result, to))
    call.mismatch("the result is {}, which cannot be written into {}", info(result).short_name,
                  info(to).short_name);
}

// How many operands promote: a weight that is a tensor does, a number does not.
std::size_t lerp_operands(TypeRuleCall& call) {
  check_same_dtypes(call, 2, Scalars::kMustMatch);
  if (call.node.op->params[2].type != "Tensor") return 2;
  check_same_dtypes(call, 3, Scalars::kMayDiffer);
  return 3;
}

// A quotient of integers would be a fraction.
void check_divided(TypeRuleCall& call) {
  if (!is_inexact(call.tensor(1).dtype) && !is_inexact(call.tensor(2).dtype))
    call.mismatch("integers are divided");
}

// What is filled with is one number, also where a tensor gives it.
void check_filled(TypeRuleCall& call, std::size_t param) {
  if (call.node.op->params[param].type == "Tensor" && call.tensor(param).rank() != 0)
    call.mismatch("the value has {} dimensions, not 0", call.tensor(param).rank());
}

void check_mask(TypeRuleCall& call) {
  const DType mask = call.tensor(1).dtype;
  if (mask != DType::kBool) call.mismatch("the mask is {}, not bool", info(mask).short_name);
}

// The first operand, or what stands in its place where the mask is true.
TypeId masked(TypeRuleCall& call) {
  check_mask(call);
  const TensorType* tensors[] = {&call.tensor(std::size_t{0}), &call.tensor(std::size_t{1})};
  return call.contiguous(tensors[0]->dtype, common_sizes(call, tensors), common_device(call, tensors));
}

// The last operands must broadcast to the first, which is written.
TypeId in_place(TypeRuleCall& call, std::size_t count, DType (*dtype_of)(DType)) {
  const Operands operands = operands_of(call, 0, count);
  const TensorType& self = call.tensor(std::size_t{0});
  check_written(call, dtype_of(operands.promotion.result()));
  common_device(call, operands.tensors);
  const Dims sizes = common_sizes(call, operands.tensors);
  if (sizes.size() != self.rank())
    call.mismatch("the result has {} dimensions, the tensor written {}", sizes.size(), self.rank());
  for (std::size_t i = 0; i < sizes.size(); ++i) call.check_equal(self.sizes[i], sizes[i], "sizes");
  return call.same(self);
}

DType as_it_is(DType dtype) {
  return dtype;
}

// A tensor and its limits, of which there is at least one.
std::size_t clamp_operands(TypeRuleCall& call) {
  const std::size_t count = call.param_count();
  for (std::size_t i = 1; i < count; ++i)
    if (call.has(i)) return count;
  call.mismatch("no limit is given");
}

}  // namespace

void refuse_operands(TypeRuleCall& call, std::size_t count, bool (*is_refused)(DType)) {
  for (std::size_t i = 0; i < count; ++i)
    if (const auto dtype = dtype_of_operand(call, i); dtype && is_refused(*dtype))
      call.mismatch("it is not defined for {}", info(*dtype).name);
}

void refuse_result(TypeRuleCall& call, TypeId result, bool (*is_refused)(DType)) {
  const TensorType* type = tensor_of(call.context, result);
  if (type != nullptr && is_refused(type->dtype))
    call.mismatch("it is not defined for {}", info(type->dtype).name);
}

// What torch multiplies an operand by: no fraction where the result is of integers, and a bool only
// where it is of bools (at::native::alpha_check).
void check_alpha(TypeRuleCall& call, TypeId result) {
  const DType to = tensor_of(call.context, result)->dtype;
  for (std::size_t i = 0; i < call.param_count(); ++i) {
    if (call.node.op->params[i].name != "alpha" || !call.has(i)) continue;
    const auto alpha = dtype_of_number(call, call.arg(i));
    if (alpha && ((*alpha == DType::kBool && to != DType::kBool) || is_above(*alpha, to)))
      call.mismatch("'alpha' is {}, the result {}", info(*alpha).short_name, info(to).short_name);
  }
}

void check_same_dtypes(TypeRuleCall& call, std::size_t count, Scalars scalars) {
  const DType first = call.tensor(std::size_t{0}).dtype;
  for (std::size_t i = 1; i < count; ++i) {
    const TensorType& other = call.tensor(i);
    if (other.dtype != first && (other.rank() > 0 || scalars == Scalars::kMustMatch))
      call.mismatch("dtypes {} and {} differ", info(first).short_name, info(other.dtype).short_name);
  }
}

void check_source(TypeRuleCall& call, std::size_t source) {
  const DType self = call.tensor(std::size_t{0}).dtype, other = call.tensor(source).dtype;
  if (other != self)
    call.mismatch("the source is {}, the tensor {}", info(other).short_name, info(self).short_name);
}

TypeId unary(TypeRuleCall& call) {
  const TensorType* self = &call.tensor(std::size_t{0});
  return elementwise(call, std::span(&self, 1), self->dtype);
}

TypeId unary_float(TypeRuleCall& call) {
  const TensorType* self = &call.tensor(std::size_t{0});
  return elementwise(call, std::span(&self, 1), to_float(self->dtype));
}

// The product with itself: of bools as of a power, an integer.
TypeId square(TypeRuleCall& call) {
  const DType dtype = call.tensor(std::size_t{0}).dtype;
  return dtype == DType::kBool ? call.fresh_like(call.tensor(std::size_t{0}), DType::kInt64)
                               : copy_of_self(call);
}

TypeId unary_bool(TypeRuleCall& call) {
  const TensorType* self = &call.tensor(std::size_t{0});
  return elementwise(call, std::span(&self, 1), DType::kBool);
}

TypeId absolute(TypeRuleCall& call) {
  const TensorType* self = &call.tensor(std::size_t{0});
  return elementwise(call, std::span(&self, 1), to_real(self->dtype));
}

TypeId binary(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, 2);
  return elementwise(call, operands.tensors, operands.promotion.result());
}

// The layout is the second operand's where the two are laid out differently: torch's formula begins
// with that.
TypeId binary_second_first(TypeRuleCall& call) {
  Operands operands = operands_of(call, 0, 2);
  std::reverse(operands.tensors.begin(), operands.tensors.end());
  return elementwise(call, operands.tensors, operands.promotion.result());
}

// So, in the second operand's dtype.
TypeId binary_in_second(TypeRuleCall& call) {
  Operands operands = operands_of(call, 0, 2);
  std::reverse(operands.tensors.begin(), operands.tensors.end());
  return elementwise(call, operands.tensors, call.tensor(std::size_t{1}).dtype);
}

// (grad_output, self, target, ...): scale * (self - target), .. times the gradient.
TypeId loss_backward(TypeRuleCall& call) {
  Operands operands = operands_of(call, 0, 3);
  std::rotate(operands.tensors.begin(), operands.tensors.begin() + 1, operands.tensors.end());
  return elementwise(call, operands.tensors, operands.promotion.result());
}

// A backward that torch takes apart on fake tensors, into a formula that begins with `self`, while
// its kernel lays the result out as `grad_output`.
TypeId backward_formula(TypeRuleCall& call) {
  Operands operands = tensor_operands_of(call);
  std::reverse(operands.tensors.begin(), operands.tensors.end());
  return elementwise(call, operands.tensors, operands.promotion.result());
}
TypeId backward_kernel(TypeRuleCall& call) {
  const Operands operands = tensor_operands_of(call);
  return elementwise(call, operands.tensors, operands.promotion.result());
}

TypeId binary_float(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, 2);
  return elementwise(call, operands.tensors, to_float(operands.promotion.result()));
}

TypeId binary_bool(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, 2);
  return elementwise(call, operands.tensors, DType::kBool);
}

TypeId ternary(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, 3);
  return elementwise(call, operands.tensors, operands.promotion.result());
}

TypeId lerp(TypeRuleCall& call) {
  return lerp_operands(call) == 3 ? ternary(call) : binary(call);
}

TypeId addcdiv(TypeRuleCall& call) {
  check_divided(call);
  return ternary(call);
}

// Its kernel writes into a tensor like the second operand.
TypeId mish_backward(TypeRuleCall& call) {
  check_written(call, operands_of(call, 0, 2).promotion.result(), 1);
  return binary(call);
}

// div with a rounding mode keeps integers.
TypeId divide_rounded(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, 2);
  const DType dtype = operands.promotion.result();
  return elementwise(call, operands.tensors, call.has(2) ? dtype : to_float(dtype));
}

TypeId clamp(TypeRuleCall& call) {
  const Operands operands = operands_of(call, 0, clamp_operands(call));
  return elementwise(call, operands.tensors, operands.promotion.result());
}

TypeId where(TypeRuleCall& call) {
  Operands operands;
  add_operand(call, operands, 0, Weight::kShapeOnly);
  for (std::size_t i = 1; i < 3; ++i) add_operand(call, operands, i, Weight::kPromotes);
  const DType condition = call.tensor(std::size_t{0}).dtype;
  if (condition != DType::kBool && condition != DType::kUint8)
    call.mismatch("the condition is {}, not bool", info(condition).short_name);
  return elementwise(call, operands.tensors, operands.promotion.result());
}

TypeId masked_scatter(TypeRuleCall& call) {
  return masked(call);
}
TypeId masked_fill(TypeRuleCall& call) {
  check_filled(call, 2);
  return masked(call);
}

TypeId unary_in_place(TypeRuleCall& call) {
  return call.same(call.tensor(std::size_t{0}));
}
TypeId unary_float_in_place(TypeRuleCall& call) {
  check_written(call, to_float(call.tensor(std::size_t{0}).dtype));
  return unary_in_place(call);
}
TypeId binary_in_place(TypeRuleCall& call) {
  return in_place(call, 2, as_it_is);
}
TypeId binary_float_in_place(TypeRuleCall& call) {
  return in_place(call, 2, to_float);
}
TypeId binary_bool_in_place(TypeRuleCall& call) {
  return in_place(call, 2, [](DType) { return DType::kBool; });
}
TypeId ternary_in_place(TypeRuleCall& call) {
  return in_place(call, 3, as_it_is);
}

TypeId clamp_in_place(TypeRuleCall& call) {
  return in_place(call, clamp_operands(call), as_it_is);
}
TypeId lerp_in_place(TypeRuleCall& call) {
  return in_place(call, lerp_operands(call), as_it_is);
}
TypeId addcdiv_in_place(TypeRuleCall& call) {
  check_divided(call);
  return ternary_in_place(call);
}
TypeId masked_fill_in_place(TypeRuleCall& call) {
  check_mask(call);
  check_filled(call, 2);
  return binary_in_place(call);
}
TypeId fill_in_place(TypeRuleCall& call) {
  check_filled(call, 1);
  return unary_in_place(call);
}

// copy_ converts, so dtypes and devices are free.
TypeId copy_in_place(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &source = call.tensor(std::size_t{1});
  const std::span<const ExprId> shapes[] = {self.sizes, source.sizes};
  const Dims sizes = broadcast_sizes(call, shapes);
  if (sizes.size() != self.rank())
    call.mismatch("the source has {} dimensions, the tensor written {}", source.rank(), self.rank());
  for (std::size_t i = 0; i < sizes.size(); ++i) call.check_equal(self.sizes[i], sizes[i], "sizes");
  return call.same(self);
}

// copy: what copy_ would write, in new memory.
TypeId copy_into_self(TypeRuleCall& call) {
  copy_in_place(call);
  return copy_of_self(call);
}

TypeId complex(TypeRuleCall& call) {
  check_same_dtypes(call, 2, Scalars::kMustMatch);
  const Operands operands = operands_of(call, 0, 2);
  const auto dtype = to_complex(operands.promotion.result());
  if (!dtype) call.mismatch("no complex dtype of {}", info(operands.promotion.result()).short_name);
  return elementwise(call, operands.tensors, *dtype);
}

// (output, buffer): what the CPU kernel saves for its derivative; elsewhere the buffer is empty.
TypeId log_sigmoid(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const bool is_saved = call.context.text(self.device).starts_with("cpu");
  const Dims none = {call.number(0)};
  return call.tuple({unary(call), is_saved ? unary(call) : call.contiguous(self.dtype, none, self.device)});
}

// native_dropout_backward(grad_output, mask, scale): in the gradient's memory format, whatever else
// its strides are.
TypeId dropout_backward(TypeRuleCall& call) {
  const TensorType* operands[] = {&call.tensor(std::size_t{0}), &call.tensor(std::size_t{1})};
  const TensorType& grad = *operands[0];
  const StringId device = common_device(call, operands);
  Dims sizes = common_sizes(call, operands);
  return call.has_channels_last(grad.sizes, grad.strides)
             ? call.channels_last(grad.dtype, std::move(sizes), device)
             : call.contiguous(grad.dtype, std::move(sizes), device);
}

// glu(self, dim): the first half of the dimension, gated by the second.
TypeId glu(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor has no halves");
  const std::size_t dim = call.dim(1, self.rank());
  if (const auto extent = call.exprs.constant(self.sizes[dim]); extent && *extent % 2 != 0)
    call.mismatch("{} elements have no halves", *extent);
  TensorType half = self;
  half.sizes[dim] = call.exprs.floordiv(half.sizes[dim], call.number(2));
  const TensorType* gated = &half;
  return elementwise(call, std::span(&gated, 1), self.dtype);
}
// glu_backward(grad_output, self, dim).
TypeId glu_backward(TypeRuleCall& call) {
  const TensorType& self = call.tensor(1);
  return call.contiguous(self.dtype, self.sizes, self.device);
}

// (output, mask).
TypeId dropout(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.tuple({call.fresh_like(self), call.fresh_like(self, DType::kBool)});
}

// prims.convert_element_type(a, dtype).
TypeId convert(TypeRuleCall& call) {
  const TensorType* self = &call.tensor(std::size_t{0});
  return elementwise(call, std::span(&self, 1), call.dtype_or(1, self->dtype));
}

// _to_copy(self, *, dtype, layout, device, pin_memory, non_blocking, memory_format).
TypeId to_copy(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const DType dtype = call.dtype_or(1, self.dtype);
  const StringId device = call.device_or(3, self.device);
  return call.in_memory_format(6, self, dtype, device);
}

// clone(self, *, memory_format).
TypeId clone(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.in_memory_format(1, self, self.dtype, self.device);
}

}  // namespace epweave::rules
