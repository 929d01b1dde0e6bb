// Placement of elementwise ops, casts and size arithmetic.
#include <fmt/format.h>

#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

std::vector<Operand> tensors(PlacementCall& call) {
  std::vector<Operand> operands;
  for (const Operand& operand : call.operands())
    if (operand.arg.is_node()) operands.push_back(operand);
  return operands;
}

Placement nonlinear(PlacementCall& call) {
  return elementwise(call, tensors(call), Linearity::kNone);
}

Placement linear(PlacementCall& call) {
  return elementwise(call, std::vector{call.arg(0)}, Linearity::kUnary);
}

Placement sum(PlacementCall& call) {
  return elementwise(call, std::vector{call.arg(0), call.arg(1)}, Linearity::kSum);
}

Placement product(PlacementCall& call) {
  return elementwise(call, std::vector{call.arg(0), call.arg(1)}, Linearity::kProduct);
}

Placement quotient(PlacementCall& call) {
  return elementwise(call, std::vector{call.arg(0), call.arg(1)}, Linearity::kFirst);
}

// Casts count as linear, though one to fewer digits rounds each part; not those that drop fractions or keep
// only whether a number is zero.
Placement cast(PlacementCall& call) {
  const TensorType *from = call.tensor(call.arg(0)), *to = call.result_tensor();
  if (!call.of(call.arg(0)).is_partial() || from == nullptr || to == nullptr) return linear(call);
  const bool is_narrowing = is_floating(to->dtype) && info(to->dtype).bytes < info(from->dtype).bytes;
  const bool is_truncating =
      (is_floating(from->dtype) && !is_floating(to->dtype)) || to->dtype == DType::kBool;
  if (!is_truncating && !(is_narrowing && call.options().exact_casts)) return linear(call);
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// A comparison of sizes, or a check of one: what is made of sums over the parts is compared whole.
Placement comparison(PlacementCall& call) {
  bool any_local = false;
  for (const Operand& operand : call.operands())
    any_local |= call.of(operand).is_local() && !call.is_made_of_sums(operand.arg.as_node());
  if (any_local) return Placement::local();
  for (const Operand& operand : call.operands()) call.take_whole(operand);
  return Placement::whole();
}

// Filled with one constant: ordered whatever the order of the argument's rows.
Placement constant_like(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_partial()) {
    call.take_any(call.arg(0));
    return Placement::whole();
  }
  const TensorType* type = call.result_tensor();
  if (p.is_rows() && type != nullptr && call.tokens().scales(type->sizes[static_cast<std::size_t>(p.dim)]))
    return call.constant_rows(p.dim, p);
  return p;
}

// A buffer of the model that every part updates in turn; or rows written over rows of the region's own.
Placement add_in_place(PlacementCall& call) {
  const Operand destination = call.arg(0), addend = call.arg(1);
  const Placement to = call.of(destination), from = call.of(addend);
  if (!to.is_divided() && !from.is_divided()) return Placement::whole();
  if (to.is_whole() && from.is_partial()) {
    call.take_chain(destination);
    return Placement::carried();
  }
  if (to.is_whole())
    call.refuse(
        "chunk.update-not-a-sum",
        fmt::format("rows of one part are added to '{}', which all parts share", call.name_of(destination)),
        "only a sum over the tokens can be accumulated into shared state part by part");
  return elementwise(call, std::vector{destination, addend}, Linearity::kSum);
}

// Rows written over rows of the region's own.
Placement write_in_place(PlacementCall& call) {
  const Operand destination = call.arg(0);
  if (!call.of(destination).is_whole()) return elementwise(call, tensors(call), Linearity::kNone);
  for (const Operand& operand : call.operands())
    if (call.of(operand).is_divided())
      call.refuse("chunk.update-not-a-sum",
                  fmt::format("what one part has is written to '{}', which all parts share",
                              call.name_of(destination)),
                  "only a sum over the tokens can be accumulated into shared state part by part");
  return Placement::whole();
}

// What is said of a part's rows is checked of each part; given sizes are those of the whole.
Placement check_of_metadata(PlacementCall& call) {
  const Operand checked = call.arg(0);
  const Placement p = call.of(checked);
  bool gives_sizes = false;
  for (const std::size_t i : {1UL, 2UL}) {
    const Operand sizes = call.arg(i);
    gives_sizes |= sizes && !sizes.arg.is_none();
    if (sizes) call.take_whole(sizes);
  }
  if (p.is_whole() || !gives_sizes) return p.is_whole() ? p : Placement::local();
  call.take_whole(checked);
  return Placement::whole();
}

constexpr PlacementRow kRows[] = {
    {"aten.abs.default", nonlinear},
    {"aten.addcdiv.default", nonlinear},
    {"aten.addcmul.default", nonlinear},
    {"aten.bitwise_and.Scalar", nonlinear},
    {"aten.bitwise_or.Scalar", nonlinear},
    {"aten.bitwise_xor.Tensor", nonlinear},
    {"aten.ceil.default", nonlinear},
    {"aten.clamp.Tensor", nonlinear},
    {"aten.clamp_max.default", nonlinear},
    {"aten.clamp_max.Tensor", nonlinear},
    {"aten.clamp_min.default", nonlinear},
    {"aten.clamp_min.Tensor", nonlinear},
    {"aten.div.Tensor_mode", nonlinear},
    {"aten.div.Scalar_mode", nonlinear},
    {"aten.elu.default", nonlinear},
    {"aten.elu_backward.default", nonlinear},
    {"aten.erf.default", nonlinear},
    {"aten.exp2.default", nonlinear},
    {"aten.expm1.default", nonlinear},
    {"aten.floor.default", nonlinear},
    {"aten.floor_divide.Scalar", nonlinear},
    {"aten.hardsigmoid.default", nonlinear},
    {"aten.hardsigmoid_backward.default", nonlinear},
    {"aten.hardswish.default", nonlinear},
    {"aten.hardswish_backward.default", nonlinear},
    {"aten.hardtanh.default", nonlinear},
    {"aten.hardtanh_backward.default", nonlinear},
    {"aten.isinf.default", nonlinear},
    {"aten.isnan.default", nonlinear},
    {"aten.leaky_relu.default", nonlinear},
    {"aten.leaky_relu_backward.default", nonlinear},
    {"aten.logaddexp.default", nonlinear},
    {"aten.lerp.Scalar", nonlinear},
    {"aten.lerp.Tensor", nonlinear},
    {"aten.log1p.default", nonlinear},
    {"aten.log2.default", nonlinear},
    {"aten.logical_or.default", nonlinear},
    {"aten.logical_xor.default", nonlinear},
    {"aten.maximum.default", nonlinear},
    {"aten.minimum.default", nonlinear},
    {"aten.mish.default", nonlinear},
    {"aten.mish_backward.default", nonlinear},
    {"aten.nan_to_num.default", nonlinear},
    {"aten.pow.Scalar", nonlinear},
    {"aten.pow.Tensor_Tensor", nonlinear},
    {"aten.reciprocal.default", nonlinear},
    {"aten.remainder.Scalar", nonlinear},
    {"aten.remainder.Tensor", nonlinear},
    {"aten.round.default", nonlinear},
    {"aten.rsub.Scalar", nonlinear},
    {"aten.rsub.Tensor", nonlinear},
    {"aten.sign.default", nonlinear},
    {"aten.softplus.default", nonlinear},
    {"aten.softplus_backward.default", nonlinear},
    {"aten.square.default", nonlinear},
    {"aten.tanh_backward.default", nonlinear},
    {"aten.threshold_backward.default", nonlinear},
    {"aten.trunc.default", nonlinear},
    {"aten.where.Scalar", nonlinear},
    {"aten.where.ScalarOther", nonlinear},
    {"aten.where.ScalarSelf", nonlinear},
    {"aten.silu.default", nonlinear},
    {"aten.sigmoid.default", nonlinear},
    {"aten.relu.default", nonlinear},
    {"aten.gelu.default", nonlinear},
    {"aten.tanh.default", nonlinear},
    {"aten.exp.default", nonlinear},
    {"aten.log.default", nonlinear},
    {"aten.sqrt.default", nonlinear},
    {"aten.rsqrt.default", nonlinear},
    {"aten.cos.default", nonlinear},
    {"aten.sin.default", nonlinear},
    {"aten.clamp.default", nonlinear},
    {"aten.bitwise_not.default", nonlinear},
    {"aten.pow.Tensor_Scalar", nonlinear},
    {"aten.silu_backward.default", nonlinear},
    {"aten.sigmoid_backward.default", nonlinear},
    {"aten.gelu_backward.default", nonlinear},
    {"aten.floor_divide.default", nonlinear},
    {"aten.masked_fill.Scalar", nonlinear},
    {"aten.masked_fill.Tensor", nonlinear},
    {"aten.where.self", nonlinear},
    {"aten.bitwise_and.Tensor", nonlinear},
    {"aten.bitwise_or.Tensor", nonlinear},
    {"aten.logical_and.default", nonlinear},
    {"aten.logical_not.default", nonlinear},
    {"aten.eq.Tensor", nonlinear},
    {"aten.eq.Scalar", nonlinear},
    {"aten.ne.Tensor", nonlinear},
    {"aten.ne.Scalar", nonlinear},
    {"aten.ge.Tensor", nonlinear},
    {"aten.ge.Scalar", nonlinear},
    {"aten.gt.Tensor", nonlinear},
    {"aten.gt.Scalar", nonlinear},
    {"aten.le.Tensor", nonlinear},
    {"aten.le.Scalar", nonlinear},
    {"aten.lt.Tensor", nonlinear},
    {"aten.lt.Scalar", nonlinear},
    {"aten.add.Scalar", nonlinear},
    {"aten.sub.Scalar", nonlinear},
    {"aten.neg.default", linear},
    {"aten.mul.Scalar", linear},
    {"aten.div.Scalar", linear},
    {"aten._to_copy.default", cast},
    {"prims.convert_element_type.default", cast},
    {"aten.clone.default", linear},
    {"aten.alias.default", linear},
    {"aten.detach.default", linear},
    {"aten._conj.default", linear},
    {"_c10d_functional.wait_tensor.default", linear},
    {"aten.add.Tensor", sum},
    {"aten.sub.Tensor", sum},
    {"operator.add", sum},
    {"operator.sub", sum},
    {"aten.mul.Tensor", product},
    {"operator.mul", product},
    {"aten.div.Tensor", quotient},
    {"operator.floordiv", nonlinear},
    {"operator.mod", nonlinear},
    {"operator.truediv", nonlinear},
    {"operator.neg", linear},
    {"operator.eq", comparison},
    {"operator.ne", comparison},
    {"operator.ge", comparison},
    {"operator.gt", comparison},
    {"operator.le", comparison},
    {"operator.lt", comparison},
    {"operator.and_", comparison},
    {"operator.or_", comparison},
    {"operator.not_", comparison},
    {"torch.sym_not", comparison},
    {"aten._assert_scalar.default", comparison},
    {"aten.sym_constrain_range.default", comparison},
    {"aten.sym_constrain_range_for_size.default", comparison},
    {"aten.zeros_like.default", constant_like},
    {"aten.ones_like.default", constant_like},
    {"aten.full_like.default", constant_like},
    {"aten.empty_like.default", constant_like},
    {"aten.add_.Tensor", add_in_place},
    {"aten.sub_.Tensor", add_in_place},
    {"aten.sub_.Scalar", write_in_place},
    {"aten.mul_.Tensor", write_in_place},
    {"aten.mul_.Scalar", write_in_place},
    {"aten.div_.Tensor", write_in_place},
    {"aten.div_.Scalar", write_in_place},
    {"aten.copy_.default", write_in_place},
    {"aten._assert_async.default", comparison},
    {"aten._assert_async.msg", comparison},
    {"aten._assert_tensor_metadata.default", check_of_metadata},
};

}  // namespace

std::span<const PlacementRow> elementwise_placement_rows() {
  return kRows;
}

}  // namespace epweave
