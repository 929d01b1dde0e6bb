// Symbolic scalars, Python operators on them, tuple access, data-dependent extents, meshes.
#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

// A number known when traced is a value, anything else a symbolic scalar.
TypeId scalar_or_number(TypeRuleCall& call, PolyId poly) {
  return call.scalar(call.facts.expr(poly));
}

PolyId poly_of(TypeRuleCall& call, std::size_t param) {
  return call.exprs.poly(call.extent(param));
}

// A floating-point number among the operands: its arithmetic rounds, so nothing is said about the
// result but what is recorded.
bool is_real(TypeRuleCall& call) {
  const auto is_real_number = [&](Arg operand) {
    if (operand.is(ArgKind::kReal)) return true;
    const TypeId id = call.type_of(operand);
    if (!id) return false;
    const Type& type = call.context.types[id];
    return type.kind == TypeKind::kScalar && call.context.text(type.py_type) == "SymFloat";
  };
  return is_real_number(call.arg(0)) || (call.param_count() > 1 && is_real_number(call.arg(1)));
}

TypeId apply(TypeRuleCall& call, AtomKind kind, std::string_view py_type) {
  if (is_real(call)) return {};
  const PolyId value = call.exprs.apply(kind, {poly_of(call, 0), poly_of(call, 1)});
  return call.scalar(call.exprs.from_poly(value), py_type);
}

bool is_operand_tensor(TypeRuleCall& call, std::size_t param) {
  return tensor_of(call.context, call.type_of(call.arg(param))) != nullptr;
}

}  // namespace

TypeId sym_size(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor has no sizes");
  return call.scalar(self.sizes[call.dim(1, self.rank())]);
}

TypeId sym_stride(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor has no strides");
  return call.scalar(self.strides[call.dim(1, self.rank())]);
}

TypeId sym_numel(TypeRuleCall& call) {
  return call.scalar(product(call.facts, call.tensor(std::size_t{0}).sizes));
}

TypeId sym_offset(TypeRuleCall& call) {
  return call.scalar(call.offset_of(call.tensor(std::size_t{0})));
}

// Python operators; on tensors they are the aten ops.
TypeId scalar_add(TypeRuleCall& call) {
  if (is_operand_tensor(call, 0) || is_operand_tensor(call, 1)) return binary(call);
  if (is_real(call)) return {};
  return scalar_or_number(call, call.exprs.add(poly_of(call, 0), poly_of(call, 1)));
}
TypeId scalar_sub(TypeRuleCall& call) {
  if (is_operand_tensor(call, 0) || is_operand_tensor(call, 1)) return binary(call);
  if (is_real(call)) return {};
  return scalar_or_number(call, call.exprs.sub(poly_of(call, 0), poly_of(call, 1)));
}
TypeId scalar_mul(TypeRuleCall& call) {
  if (is_operand_tensor(call, 0) || is_operand_tensor(call, 1)) return binary(call);
  if (is_real(call)) return {};
  return scalar_or_number(call, call.exprs.mul(poly_of(call, 0), poly_of(call, 1)));
}
TypeId scalar_neg(TypeRuleCall& call) {
  if (is_real(call)) return {};
  return scalar_or_number(call, call.exprs.scale(poly_of(call, 0), Rational{-1, 1}));
}
TypeId scalar_floordiv(TypeRuleCall& call) {
  if (is_real(call)) return {};
  if (is_zero(call.facts, call.extent(1))) call.mismatch("division by 0");
  return apply(call, AtomKind::kFloorDiv, "SymInt");
}
TypeId scalar_mod(TypeRuleCall& call) {
  if (is_real(call)) return {};
  if (is_zero(call.facts, call.extent(1))) call.mismatch("division by 0");
  return apply(call, AtomKind::kMod, "SymInt");
}
TypeId scalar_min(TypeRuleCall& call) {
  return apply(call, AtomKind::kMin, "SymInt");
}
TypeId scalar_max(TypeRuleCall& call) {
  return apply(call, AtomKind::kMax, "SymInt");
}
TypeId scalar_eq(TypeRuleCall& call) {
  return apply(call, AtomKind::kEq, "SymBool");
}
TypeId scalar_ne(TypeRuleCall& call) {
  return apply(call, AtomKind::kNe, "SymBool");
}
TypeId scalar_lt(TypeRuleCall& call) {
  return apply(call, AtomKind::kLt, "SymBool");
}
TypeId scalar_le(TypeRuleCall& call) {
  return apply(call, AtomKind::kLe, "SymBool");
}
TypeId scalar_gt(TypeRuleCall& call) {
  return apply(call, AtomKind::kGt, "SymBool");
}
TypeId scalar_ge(TypeRuleCall& call) {
  return apply(call, AtomKind::kGe, "SymBool");
}
TypeId scalar_and(TypeRuleCall& call) {
  return apply(call, AtomKind::kAnd, "SymBool");
}
TypeId scalar_or(TypeRuleCall& call) {
  return apply(call, AtomKind::kOr, "SymBool");
}
TypeId scalar_not(TypeRuleCall& call) {
  const PolyId value = call.exprs.apply(AtomKind::kNot, {poly_of(call, 0)});
  return call.scalar(call.exprs.from_poly(value), "SymBool");
}

// Python's true division of integers.
TypeId scalar_truediv(TypeRuleCall& call) {
  if (is_real(call)) return {};
  const StringId name = call.context.strings.intern("IntTrueDiv");
  const PolyId value = call.exprs.apply(AtomKind::kFunction, {poly_of(call, 0), poly_of(call, 1)}, name);
  return call.scalar(call.exprs.from_poly(value), "SymFloat");
}

// Python's power. Of integers and a natural exponent it is a product.
TypeId scalar_pow(TypeRuleCall& call) {
  if (is_real(call)) return {};
  constexpr std::int64_t kMostFactors = 8;
  const PolyId base = poly_of(call, 0), exponent = poly_of(call, 1);
  const auto factors = call.exprs.constant(call.facts.normalize(exponent));
  if (factors && *factors < 0) return {};  // a floating-point number
  if (factors && *factors <= kMostFactors) {
    PolyId power = call.exprs.poly(call.number(1));
    for (std::int64_t i = 0; i < *factors; ++i) power = call.exprs.mul(power, base);
    return scalar_or_number(call, power);
  }
  const StringId name = call.context.strings.intern("PowByNatural");
  const PolyId value = call.exprs.apply(AtomKind::kFunction, {base, exponent}, name);
  return call.scalar(call.exprs.from_poly(value), "SymInt");
}

// torch.sym_ite(condition, then, else): one of two scalars.
TypeId scalar_choice(TypeRuleCall& call) {
  const PolyId condition = poly_of(call, 0);
  if (auto known = call.exprs.constant(call.facts.normalize(condition)))
    return call.scalar(call.extent(*known != 0 ? std::size_t{1} : std::size_t{2}));
  const StringId name = call.context.strings.intern("Where");
  const PolyId value =
      call.exprs.apply(AtomKind::kFunction, {condition, poly_of(call, 1), poly_of(call, 2)}, name);
  return call.scalar(call.exprs.from_poly(value));
}

// operator.getitem(self, index).
TypeId getitem(TypeRuleCall& call) {
  const TypeId type = call.type_of(call.arg(0));
  if (!type) call.mismatch("the tuple has no recorded type");
  const Type& self = call.context.types[type];
  if (self.kind != TypeKind::kTuple && self.kind != TypeKind::kList)
    call.mismatch("{} is not a tuple", print_type(call.context, type));
  const std::int64_t count = static_cast<std::int64_t>(self.elements.size());
  std::int64_t index = call.integer(1);
  if (index < 0) index += count;
  if (index < 0 || index >= count) call.mismatch("index {} is outside {} elements", call.integer(1), count);
  return self.elements[static_cast<std::size_t>(index)];
}

// One element of data as a Python number. An integer is a symbol that the node binds.
TypeId local_scalar(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (call.facts.differ(product(call.facts, self.sizes), call.number(1)))
    call.mismatch("a tensor of {} elements is not one number", call.text(product(call.facts, self.sizes)));
  const ExprId symbol = call.bound_symbol();
  if (!symbol) return {};
  if (is_floating(self.dtype)) return call.scalar(symbol, "SymFloat");
  return call.scalar(symbol, self.dtype == DType::kBool ? "SymBool" : "SymInt");
}

// A scalar known only when the program runs: the symbol that the node binds.
TypeId bound_scalar(TypeRuleCall& call) {
  const ExprId symbol = call.bound_symbol();
  return symbol ? call.scalar(symbol) : TypeId();
}

// A 1-dimensional result of data-dependent length.
TypeId bound_rows(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const ExprId symbol = call.bound_symbol();
  if (!symbol) return {};
  return call.contiguous(self.dtype, {symbol}, self.device);
}

// bincount(self, weights, minlength): the count of each number, or the sum of its weights.
TypeId bincount(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const TensorType* weights = call.optional_tensor(1);
  const ExprId symbol = call.bound_symbol();
  if (!symbol) return {};
  if (weights == nullptr) return call.contiguous(DType::kInt64, {symbol}, self.device);
  const bool is_f32 = weights->dtype == DType::kFloat32;
  return call.contiguous(is_f32 ? DType::kFloat32 : DType::kFloat64, {symbol}, self.device);
}

// nonzero: [count, rank], laid out by column.
TypeId nonzero(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const ExprId symbol = call.bound_symbol();
  if (!symbol) return {};
  return call.result(DType::kInt64, {symbol, call.number(static_cast<std::int64_t>(self.rank()))},
                     {call.number(1), symbol}, self.device);
}

TypeId no_value(TypeRuleCall&) {
  return {};
}

}  // namespace epweave::rules
