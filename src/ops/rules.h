// Every type rule by name, for the op table. Each sits in the file named above it, beside those of
// its family.
#pragma once

#include "ops/type_rule_call.h"

namespace epweave::rules {

// type_rules_attention.cc
TypeId cudnn_attention(TypeRuleCall& call);
TypeId flash_attention(TypeRuleCall& call);
TypeId efficient_attention(TypeRuleCall& call);
TypeId cpu_attention(TypeRuleCall& call);
TypeId cpu_attention_backward(TypeRuleCall& call);
TypeId overrideable_attention(TypeRuleCall& call);
TypeId overrideable_attention_backward(TypeRuleCall& call);
TypeId attention_backward(TypeRuleCall& call);
TypeId efficient_attention_backward(TypeRuleCall& call);
TypeId flex_attention(TypeRuleCall& call);
TypeId flex_attention_backward(TypeRuleCall& call);

// type_rules_comm.cc
TypeId all_gather(TypeRuleCall& call);
TypeId all_gather_out(TypeRuleCall& call);
TypeId all_gather_each(TypeRuleCall& call);
TypeId reduce_scatter(TypeRuleCall& call);
TypeId reduce_scatter_out(TypeRuleCall& call);
TypeId reduce_scatter_each(TypeRuleCall& call);
TypeId all_reduce(TypeRuleCall& call);
TypeId all_reduce_each(TypeRuleCall& call);
TypeId same_each(TypeRuleCall& call);
TypeId all_to_all(TypeRuleCall& call);
TypeId all_gather_matmul(TypeRuleCall& call);
TypeId matmul_reduce_scatter(TypeRuleCall& call);
TypeId gather_pair(TypeRuleCall& call);
TypeId scatter_pair(TypeRuleCall& call);
TypeId bucket_all_gather(TypeRuleCall& call);
TypeId bucket_reduce_scatter(TypeRuleCall& call);
TypeId offload(TypeRuleCall& call);
TypeId reload(TypeRuleCall& call);

// type_rules_convolution.cc
TypeId convolution(TypeRuleCall& call);
TypeId convolution_backward(TypeRuleCall& call);

// type_rules_factory.cc
TypeId factory(TypeRuleCall& call);
TypeId full(TypeRuleCall& call);
TypeId empty_strided(TypeRuleCall& call);
TypeId empty_permuted(TypeRuleCall& call);
TypeId sized_floats(TypeRuleCall& call);
TypeId multinomial(TypeRuleCall& call);
TypeId scalar_tensor(TypeRuleCall& call);
TypeId arange(TypeRuleCall& call);
TypeId arange_start(TypeRuleCall& call);
TypeId arange_step(TypeRuleCall& call);
TypeId randint(TypeRuleCall& call);
TypeId randperm(TypeRuleCall& call);
TypeId eye(TypeRuleCall& call);
TypeId linspace(TypeRuleCall& call);
TypeId new_factory(TypeRuleCall& call);
TypeId new_empty_strided(TypeRuleCall& call);
TypeId factory_like(TypeRuleCall& call);
TypeId current_device(TypeRuleCall& call);

// type_rules_index.cc
TypeId index(TypeRuleCall& call);
TypeId index_put(TypeRuleCall& call);
TypeId index_put_in_place(TypeRuleCall& call);
TypeId gather(TypeRuleCall& call);
TypeId scatter(TypeRuleCall& call);
TypeId scatter_in_place(TypeRuleCall& call);
TypeId scatter_reduce(TypeRuleCall& call);
TypeId deterministic_scatter_add(TypeRuleCall& call);
TypeId index_add(TypeRuleCall& call);
TypeId index_add_in_place(TypeRuleCall& call);
TypeId index_select(TypeRuleCall& call);
TypeId embedding(TypeRuleCall& call);
TypeId embedding_backward(TypeRuleCall& call);
TypeId repeat_interleave(TypeRuleCall& call);
TypeId cat(TypeRuleCall& call);
TypeId stack(TypeRuleCall& call);
TypeId pad(TypeRuleCall& call);
TypeId masked_scatter_backward(TypeRuleCall& call);
TypeId zeros_of_input(TypeRuleCall& call);
TypeId copy_of_self(TypeRuleCall& call);
TypeId index_copy(TypeRuleCall& call);
TypeId index_copy_in_place(TypeRuleCall& call);
TypeId index_fill(TypeRuleCall& call);
TypeId scatter_view(TypeRuleCall& call);
TypeId flip(TypeRuleCall& call);
TypeId contiguous_of_self(TypeRuleCall& call);
TypeId repeat(TypeRuleCall& call);
TypeId one_hot(TypeRuleCall& call);
TypeId searchsorted(TypeRuleCall& call);
TypeId bucketize(TypeRuleCall& call);

// type_rules_matmul.cc
TypeId mm(TypeRuleCall& call);
TypeId bmm(TypeRuleCall& call);
TypeId addmm(TypeRuleCall& call);
TypeId baddbmm(TypeRuleCall& call);
TypeId mv(TypeRuleCall& call);
TypeId dot(TypeRuleCall& call);
TypeId grouped_mm(TypeRuleCall& call);
TypeId scaled_grouped_mm(TypeRuleCall& call);
TypeId scaled_mm(TypeRuleCall& call);
TypeId solve_triangular(TypeRuleCall& call);

// type_rules_mesh.cc
TypeId submesh(TypeRuleCall& call);
TypeId mesh_group(TypeRuleCall& call);

// type_rules_pointwise.cc
TypeId dropout_backward(TypeRuleCall& call);
TypeId unary(TypeRuleCall& call);
TypeId unary_float(TypeRuleCall& call);
TypeId unary_bool(TypeRuleCall& call);
TypeId absolute(TypeRuleCall& call);
TypeId binary(TypeRuleCall& call);
TypeId binary_second_first(TypeRuleCall& call);
TypeId binary_in_second(TypeRuleCall& call);
TypeId backward_formula(TypeRuleCall& call);
TypeId backward_kernel(TypeRuleCall& call);
TypeId binary_float(TypeRuleCall& call);
TypeId binary_bool(TypeRuleCall& call);
TypeId ternary(TypeRuleCall& call);
TypeId divide_rounded(TypeRuleCall& call);
TypeId clamp(TypeRuleCall& call);
TypeId where(TypeRuleCall& call);

// Rules of ops that torch refuses for some dtypes of so many first operands, or of their result.
void refuse_operands(TypeRuleCall& call, std::size_t count, bool (*is_refused)(DType));
void refuse_result(TypeRuleCall& call, TypeId result, bool (*is_refused)(DType));
template <bool (*kIsRefused)(DType), TypeRule kRule, std::size_t kOperands>
TypeId refusing(TypeRuleCall& call) {
  refuse_operands(call, kOperands, kIsRefused);
  return kRule(call);
}
inline bool is_bool(DType dtype) {
  return dtype == DType::kBool;
}
inline bool is_exact(DType dtype) {
  return !is_inexact(dtype);
}
inline bool is_real(DType dtype) {
  return !is_complex(dtype);
}
template <TypeRule kRule, std::size_t kOperands = 1>
constexpr TypeRule without_bools = refusing<is_bool, kRule, kOperands>;
template <TypeRule kRule, std::size_t kOperands = 1>
constexpr TypeRule without_complex = refusing<is_complex, kRule, kOperands>;
template <TypeRule kRule, std::size_t kOperands = 1>
constexpr TypeRule of_inexact = refusing<is_exact, kRule, kOperands>;
template <TypeRule kRule, std::size_t kOperands = 1>
constexpr TypeRule of_integers = refusing<is_inexact, kRule, kOperands>;
template <TypeRule kRule, std::size_t kOperands = 1>
constexpr TypeRule of_complex = refusing<is_real, kRule, kOperands>;
template <TypeRule kRule>
TypeId without_bool_result(TypeRuleCall& call) {
  const TypeId result = kRule(call);
  refuse_result(call, result, is_bool);
  return result;
}
constexpr TypeRule shift_bits = without_bool_result<of_integers<binary, 2>>;

// Rules of ops with a parameter `alpha`.
void check_alpha(TypeRuleCall& call, TypeId result);
template <TypeRule kRule>
TypeId with_alpha(TypeRuleCall& call) {
  const TypeId result = kRule(call);
  check_alpha(call, result);
  return result;
}

// Rules of ops that write an operand's elements into the first, or add them: neither is converted.
void check_source(TypeRuleCall& call, std::size_t source);
template <TypeRule kRule, std::size_t kSource>
TypeId from_source(TypeRuleCall& call) {
  check_source(call, kSource);
  return kRule(call);
}

// Rules of ops that do not promote: so many first operands have one dtype.
enum class Scalars { kMustMatch, kMayDiffer };  // what holds of tensors of no dimension
void check_same_dtypes(TypeRuleCall& call, std::size_t count, Scalars scalars);
template <TypeRule kRule, std::size_t kOperands>
TypeId of_one_dtype(TypeRuleCall& call) {
  check_same_dtypes(call, kOperands, Scalars::kMustMatch);
  return kRule(call);
}

TypeId lerp(TypeRuleCall& call);
TypeId addcdiv(TypeRuleCall& call);
TypeId mish_backward(TypeRuleCall& call);
TypeId square(TypeRuleCall& call);
TypeId masked_fill(TypeRuleCall& call);
TypeId masked_scatter(TypeRuleCall& call);
TypeId unary_in_place(TypeRuleCall& call);
TypeId unary_float_in_place(TypeRuleCall& call);
TypeId binary_in_place(TypeRuleCall& call);
TypeId binary_float_in_place(TypeRuleCall& call);
TypeId binary_bool_in_place(TypeRuleCall& call);
TypeId clamp_in_place(TypeRuleCall& call);
TypeId lerp_in_place(TypeRuleCall& call);
TypeId addcdiv_in_place(TypeRuleCall& call);
TypeId masked_fill_in_place(TypeRuleCall& call);
TypeId fill_in_place(TypeRuleCall& call);
TypeId ternary_in_place(TypeRuleCall& call);
TypeId copy_in_place(TypeRuleCall& call);
TypeId copy_into_self(TypeRuleCall& call);
TypeId complex(TypeRuleCall& call);
TypeId log_sigmoid(TypeRuleCall& call);
TypeId dropout(TypeRuleCall& call);
TypeId glu(TypeRuleCall& call);
TypeId glu_backward(TypeRuleCall& call);
TypeId convert(TypeRuleCall& call);
TypeId to_copy(TypeRuleCall& call);
TypeId clone(TypeRuleCall& call);

// type_rules_reduce.cc
TypeId sum_all(TypeRuleCall& call);
TypeId mean_all(TypeRuleCall& call);
TypeId sum_dims(TypeRuleCall& call);
TypeId mean_dims(TypeRuleCall& call);
TypeId reduce_dims(TypeRuleCall& call);
TypeId logsumexp(TypeRuleCall& call);
TypeId extremes(TypeRuleCall& call);
TypeId scan_floats(TypeRuleCall& call);
TypeId reduce_all(TypeRuleCall& call);
TypeId reduce_bool_all(TypeRuleCall& call);
TypeId reduce_bool_dims(TypeRuleCall& call);
TypeId extreme_dim(TypeRuleCall& call);
TypeId argextreme(TypeRuleCall& call);
TypeId variance(TypeRuleCall& call);
TypeId variance_mean(TypeRuleCall& call);
TypeId vector_norm(TypeRuleCall& call);
TypeId scan(TypeRuleCall& call);
TypeId scan_in_place(TypeRuleCall& call);
TypeId scan_extreme(TypeRuleCall& call);
TypeId softmax(TypeRuleCall& call);
TypeId safe_softmax(TypeRuleCall& call);
TypeId softmax_backward(TypeRuleCall& call);
TypeId log_softmax_backward(TypeRuleCall& call);
TypeId topk(TypeRuleCall& call);
TypeId sort(TypeRuleCall& call);
TypeId argsort(TypeRuleCall& call);
TypeId rms_norm(TypeRuleCall& call);
TypeId rms_norm_backward(TypeRuleCall& call);
TypeId layer_norm(TypeRuleCall& call);
TypeId layer_norm_backward(TypeRuleCall& call);
TypeId nll_loss(TypeRuleCall& call);
TypeId nll_loss_backward(TypeRuleCall& call);
TypeId loss(TypeRuleCall& call);
TypeId cross_entropy(TypeRuleCall& call);
TypeId cross_entropy_with_logits(TypeRuleCall& call);
TypeId loss_backward(TypeRuleCall& call);
TypeId histc(TypeRuleCall& call);

// type_rules_scalar.cc
TypeId sym_size(TypeRuleCall& call);
TypeId sym_stride(TypeRuleCall& call);
TypeId sym_numel(TypeRuleCall& call);
TypeId sym_offset(TypeRuleCall& call);
TypeId scalar_add(TypeRuleCall& call);
TypeId scalar_sub(TypeRuleCall& call);
TypeId scalar_mul(TypeRuleCall& call);
TypeId scalar_neg(TypeRuleCall& call);
TypeId scalar_floordiv(TypeRuleCall& call);
TypeId scalar_mod(TypeRuleCall& call);
TypeId scalar_min(TypeRuleCall& call);
TypeId scalar_max(TypeRuleCall& call);
TypeId scalar_eq(TypeRuleCall& call);
TypeId scalar_ne(TypeRuleCall& call);
TypeId scalar_lt(TypeRuleCall& call);
TypeId scalar_le(TypeRuleCall& call);
TypeId scalar_gt(TypeRuleCall& call);
TypeId scalar_ge(TypeRuleCall& call);
TypeId scalar_and(TypeRuleCall& call);
TypeId scalar_or(TypeRuleCall& call);
TypeId scalar_not(TypeRuleCall& call);
TypeId scalar_truediv(TypeRuleCall& call);
TypeId scalar_pow(TypeRuleCall& call);
TypeId scalar_choice(TypeRuleCall& call);
TypeId getitem(TypeRuleCall& call);
TypeId local_scalar(TypeRuleCall& call);
TypeId bound_scalar(TypeRuleCall& call);
TypeId bound_rows(TypeRuleCall& call);
TypeId bincount(TypeRuleCall& call);
TypeId nonzero(TypeRuleCall& call);
TypeId no_value(TypeRuleCall& call);

// type_rules_views.cc
TypeId alias(TypeRuleCall& call);
TypeId view(TypeRuleCall& call);
TypeId reshape(TypeRuleCall& call);
TypeId reshape_copy(TypeRuleCall& call);
TypeId expand(TypeRuleCall& call);
TypeId permute(TypeRuleCall& call);
TypeId transpose(TypeRuleCall& call);
TypeId t(TypeRuleCall& call);
TypeId slice(TypeRuleCall& call);
TypeId slice_copy(TypeRuleCall& call);
TypeId narrow(TypeRuleCall& call);
TypeId select(TypeRuleCall& call);
TypeId squeeze(TypeRuleCall& call);
TypeId squeeze_dim(TypeRuleCall& call);
TypeId unsqueeze(TypeRuleCall& call);
TypeId unbind(TypeRuleCall& call);
TypeId split(TypeRuleCall& call);
TypeId split_with_sizes(TypeRuleCall& call);
TypeId split_with_sizes_copy(TypeRuleCall& call);
TypeId chunk(TypeRuleCall& call);
TypeId as_strided(TypeRuleCall& call);
TypeId diagonal(TypeRuleCall& call);
TypeId view_as_real(TypeRuleCall& call);
TypeId view_as_complex(TypeRuleCall& call);
TypeId view_dtype(TypeRuleCall& call);
TypeId real_part(TypeRuleCall& call);
TypeId imaginary_part(TypeRuleCall& call);

}  // namespace epweave::rules
