#include "placement/scaling/scaling_rules.h"

#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace scaling {
namespace {

struct FamilyRow {
  OpFamily family;
  ScalingRule rule;
};

struct TypeRow {
  TypeRule type_rule;
  ScalingRule rule;
};

std::vector<ScalingRule> rules_by_op() {
  // Families of one rule.
  constexpr FamilyRow kFamilies[] = {
      {OpFamily::kIdentity, like_self},
      {OpFamily::kCast, like_self},
      {OpFamily::kSum, reduce},
      {OpFamily::kReduce, reduce},
      {OpFamily::kTruth, reduce},
      {OpFamily::kScan, like_self},
      {OpFamily::kHalve, glu},
      {OpFamily::kHalveBackward, glu_backward},
      {OpFamily::kNormaliseLast, norm},
      {OpFamily::kNormaliseLastBackward, norm_backward},
      {OpFamily::kReshape, reshape},
      {OpFamily::kUnsqueeze, drop_ones},
      {OpFamily::kSqueeze, drop_ones},
      {OpFamily::kExpand, expand},
      {OpFamily::kRepeat, repeat},
      {OpFamily::kSelect, select},
      {OpFamily::kUnbind, unbind},
      {OpFamily::kPad, pad},
      {OpFamily::kUnslice, pad_to_input},
      {OpFamily::kSliceWrite, like_self},
      {OpFamily::kJoin, cat},
      {OpFamily::kStack, stack},
      {OpFamily::kReorder, like_self},
      {OpFamily::kTriangle, like_self},
      {OpFamily::kIndex, index},
      {OpFamily::kGather, gather},
      {OpFamily::kIndexSelect, index_select},
      {OpFamily::kEmbedding, embedding},
      {OpFamily::kEmbeddingBackward, embedding_backward},
      {OpFamily::kIndexPut, index_put},
      {OpFamily::kScatter, scatter},
      {OpFamily::kScatterAdd, scatter},
      {OpFamily::kRowScatter, deterministic_scatter_add},
      {OpFamily::kIndexAdd, index_add},
      {OpFamily::kIndexCopy, like_self},
      {OpFamily::kRepeatRows, repeat_interleave},
      {OpFamily::kTopK, topk},
      {OpFamily::kSort, like_self},
      {OpFamily::kAddMatmul, addmm},
      {OpFamily::kGroupedMatmul, grouped_mm},
      {OpFamily::kConvolution, convolution},
      {OpFamily::kConvolutionBackward, convolution_backward},
      {OpFamily::kSolve, solve},
      {OpFamily::kLoss, loss},
      {OpFamily::kClassLoss, nll_loss},
      {OpFamily::kClassLossBackward, nll_loss_backward},
      {OpFamily::kLike, like_self},
      {OpFamily::kElement, getitem},
      {OpFamily::kAllToAll, all_to_all},
      {OpFamily::kBroadcast, like_self},
      {OpFamily::kWait, like_self},
  };
  // The others differ by how results are typed; so do some ops of the families above.
  constexpr TypeRow kTypes[] = {
      {rules::unary, pointwise},
      {rules::unary_float, pointwise},
      {rules::unary_bool, pointwise},
      {rules::absolute, pointwise},
      {rules::binary, pointwise},
      {rules::binary_second_first, pointwise},
      {rules::backward_formula, pointwise},
      {rules::binary_float, divide},
      {rules::binary_bool, pointwise},
      {rules::ternary, pointwise},
      {rules::divide_rounded, pointwise},
      {rules::clamp, pointwise},
      {rules::where, pointwise},
      {rules::masked_fill, pointwise},
      {rules::unary_in_place, pointwise},
      {rules::binary_in_place, pointwise},
      {rules::ternary_in_place, pointwise},
      {rules::copy_in_place, pointwise},
      {rules::complex, pointwise},
      {rules::log_softmax_backward, pointwise},
      {rules::softmax_backward, pointwise},
      {rules::log_sigmoid, like_self},
      {rules::dropout, like_self},
      {rules::alias, like_self},
      {rules::copy_of_self, like_self},
      {rules::contiguous_of_self, like_self},
      {rules::factory_like, like_self},
      {rules::softmax, like_self},
      {rules::safe_softmax, like_self},
      {rules::bucketize, like_self},
      {rules::all_reduce, like_self},
      {rules::real_part, like_self},
      {rules::imaginary_part, like_self},
      {rules::offload, like_self},
      {rules::searchsorted, like_second},
      {rules::all_reduce_each, like_each},
      {rules::same_each, like_each},
      {rules::view_dtype, convert_bits},
      {rules::permute, permute},
      {rules::transpose, transpose},
      {rules::t, t},
      {rules::slice, slice},
      {rules::slice_copy, slice},
      {rules::narrow, narrow},
      {rules::split, split},
      {rules::split_with_sizes, split_with_sizes},
      {rules::split_with_sizes_copy, split_with_sizes},
      {rules::chunk, chunk},
      {rules::view_as_real,
       [](ScalingCall& call) {
         call.align(without(call.out(), call.in(std::size_t{0}).size()), call.in(std::size_t{0}));
       }},
      {rules::view_as_complex,
       [](ScalingCall& call) {
         call.align(call.out(), without(call.in(std::size_t{0}), call.out().size()));
       }},
      {rules::factory, factory},
      {rules::full, factory},
      {rules::empty_permuted, factory},
      {rules::randint, sized_by_name},
      {rules::masked_scatter_backward, sized_by_third},
      {rules::sized_floats, sized_by_name},
      {rules::multinomial, drawn_of_rows},
      {rules::new_factory, new_factory},
      {rules::arange, counted_by_first},
      {rules::randperm, counted_by_first},
      {rules::arange_start, arange_start},
      {rules::arange_step, arange_start},
      {rules::loss_backward, loss_backward},
      {rules::mm, mm},
      {rules::bmm, mm},
      {rules::scaled_mm, mm},
      {rules::mv, mv},
      {rules::dot, dot},
      {rules::index_add_in_place, index_add},
      {rules::flex_attention, flex_attention},
      {rules::flex_attention_backward, flex_attention_backward},
      {rules::cudnn_attention, attention},
      {rules::flash_attention, attention},
      {rules::efficient_attention, attention},
      {rules::cpu_attention, attention},
      {rules::overrideable_attention, attention},
      {rules::attention_backward, attention_backward},
      {rules::efficient_attention_backward, attention_backward},
      {rules::cpu_attention_backward, attention_backward},
      {rules::overrideable_attention_backward, attention_backward},
      {rules::all_gather, all_gather},
      {rules::reduce_scatter, reduce_scatter},
      {rules::all_gather_each, all_gather_each},
      {rules::reduce_scatter_each, reduce_scatter_each},
  };
  std::vector<ScalingRule> result(ops().size(), nullptr);
  for (const OpInfo& op : ops()) {
    for (const FamilyRow& row : kFamilies)
      if (row.family == op.family) result[op.index] = row.rule;
    for (const TypeRow& row : kTypes)
      if (row.type_rule == op.type_rule) result[op.index] = row.rule;
  }
  return result;
}

}  // namespace
}  // namespace scaling

ScalingRule find_scaling_rule(const OpInfo& op) {
  static const std::vector<ScalingRule> kByOp = scaling::rules_by_op();
  return kByOp[op.index];
}

}  // namespace epweave
