#include "placement/scaling/scaling_rules.h"

#include <algorithm>
#include <iterator>

#include "ops/by_op.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace scaling {
namespace {

// Of families whose ops differ: what those whose results are typed alike have.
struct TypeRow {
  TypeRule type_rule;
  ScalingRule rule;
};

constexpr TypeRow kTypes[] = {
    {rules::offload, like_self},
    {rules::view_dtype, convert_bits},
    {rules::view_as_real, drop_pair},
    {rules::view_as_complex, drop_pair},
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
    {rules::bucketize, like_self},
    {rules::searchsorted, like_second},
    {rules::mm, mm},
    {rules::bmm, mm},
    {rules::scaled_mm, mm},
    {rules::mv, mv},
    {rules::dot, dot},
    {rules::cudnn_attention, attention},
    {rules::flash_attention, attention},
    {rules::efficient_attention, attention},
    {rules::cpu_attention, attention},
    {rules::overrideable_attention, attention},
    {rules::attention_backward, attention_backward},
    {rules::efficient_attention_backward, attention_backward},
    {rules::cpu_attention_backward, attention_backward},
    {rules::overrideable_attention_backward, attention_backward},
    {rules::flex_attention, flex_attention},
    {rules::flex_attention_backward, flex_attention_backward},
    {rules::loss_backward, loss_backward},
    {rules::ternary, pointwise},
    // What makes tensors.
    {rules::factory, factory},
    {rules::full, factory},
    {rules::empty_permuted, factory},
    {rules::new_factory, new_factory},
    {rules::arange, counted_by_first},
    {rules::arange_start, arange_start},
    {rules::arange_step, arange_start},
    {rules::eye, eye},
    {rules::randperm, counted_by_first},
    {rules::randint, sized_by_name},
    {rules::sized_floats, sized_by_name},
    {rules::multinomial, drawn_of_rows},
    {rules::factory_like, like_self},
    {rules::dropout, like_self},
    {rules::unary, pointwise},
    {rules::unary_in_place, pointwise},
    {rules::contiguous_of_self, like_self},
    // Collectives.
    {rules::all_gather, all_gather},
    {rules::all_gather_each, all_gather_each},
    {rules::reduce_scatter, reduce_scatter},
    {rules::reduce_scatter_each, reduce_scatter_each},
    {rules::all_reduce, like_self},
    {rules::alias, like_self},
    {rules::all_reduce_each, like_each},
    {rules::same_each, like_each},
    // Of the family of which nothing is known.
    {rules::from_source<rules::masked_scatter, 2>, pointwise},
    {rules::masked_scatter_backward, sized_by_third},
};

ScalingRule rule_of_type(TypeRule type_rule) {
  const auto* row = std::ranges::find(kTypes, type_rule, &TypeRow::type_rule);
  return row == std::end(kTypes) ? nullptr : row->rule;
}

ScalingRule rule_of(const OpInfo& op) {
  switch (op.family) {
    case OpFamily::kIdentity:
    case OpFamily::kCast:
    case OpFamily::kScan:
    case OpFamily::kSliceWrite:
    case OpFamily::kReorder:
    case OpFamily::kTriangle:
    case OpFamily::kSort:
    case OpFamily::kLike:
    case OpFamily::kBroadcast:
    case OpFamily::kWait:
      return like_self;
    case OpFamily::kElementwise:
      return op.type_rule == rules::binary_float ? divide : pointwise;
    case OpFamily::kNormalise:
      return pointwise;
    case OpFamily::kSum:
    case OpFamily::kReduce:
    case OpFamily::kTruth:
      return reduce;
    case OpFamily::kHalve:
      return glu;
    case OpFamily::kHalveBackward:
      return glu_backward;
    case OpFamily::kNormaliseLast:
      return norm;
    case OpFamily::kNormaliseLastBackward:
      return norm_backward;
    case OpFamily::kReshape:
      return reshape;
    case OpFamily::kUnsqueeze:
    case OpFamily::kSqueeze:
      return drop_ones;
    case OpFamily::kExpand:
      return expand;
    case OpFamily::kRepeat:
      return repeat;
    case OpFamily::kSelect:
      return select;
    case OpFamily::kUnbind:
      return unbind;
    case OpFamily::kPad:
      return pad;
    case OpFamily::kUnslice:
      return pad_to_input;
    case OpFamily::kJoin:
      return cat;
    case OpFamily::kStack:
      return stack;
    case OpFamily::kIndex:
      return index;
    case OpFamily::kGather:
      return gather;
    case OpFamily::kIndexSelect:
      return index_select;
    case OpFamily::kEmbedding:
      return embedding;
    case OpFamily::kEmbeddingBackward:
      return embedding_backward;
    case OpFamily::kIndexPut:
      return index_put;
    case OpFamily::kScatter:
    case OpFamily::kScatterAdd:
      return scatter;
    case OpFamily::kRowScatter:
      return deterministic_scatter_add;
    case OpFamily::kIndexAdd:
    case OpFamily::kIndexCopy:
      return index_add;
    case OpFamily::kRepeatRows:
      return repeat_interleave;
    case OpFamily::kOneHot:
      return one_hot;
    case OpFamily::kTopK:
      return topk;
    case OpFamily::kAddMatmul:
      return addmm;
    case OpFamily::kGroupedMatmul:
      return grouped_mm;
    case OpFamily::kConvolution:
      return convolution;
    case OpFamily::kConvolutionBackward:
      return convolution_backward;
    case OpFamily::kSolve:
      return solve;
    case OpFamily::kLoss:
      return loss;
    case OpFamily::kClassLoss:
      return nll_loss;
    case OpFamily::kClassLossBackward:
      return nll_loss_backward;
    case OpFamily::kElement:
      return getitem;
    case OpFamily::kAllToAll:
      return all_to_all;
    case OpFamily::kGatherPair:
      return gather_pair;
    case OpFamily::kScatterPair:
      return scatter_pair;
    case OpFamily::kTransfer:
    case OpFamily::kBitView:
    case OpFamily::kPermute:
    case OpFamily::kSlice:
    case OpFamily::kSplit:
    case OpFamily::kSearch:
    case OpFamily::kMatmul:
    case OpFamily::kAttention:
    case OpFamily::kFlexAttention:
    case OpFamily::kLossBackward:
    case OpFamily::kFactory:
    case OpFamily::kIota:
    case OpFamily::kNew:
    case OpFamily::kRandom:
    case OpFamily::kAllGather:
    case OpFamily::kReduceScatter:
    case OpFamily::kAllReduce:
    case OpFamily::kOpaque:
      return rule_of_type(op.type_rule);
    // Numbers, groups, and as many elements as data say.
    case OpFamily::kMaskedRows:
    case OpFamily::kCount:
    case OpFamily::kSize:
    case OpFamily::kNumber:
    case OpFamily::kComparison:
    case OpFamily::kHostRead:
    case OpFamily::kCheck:
    case OpFamily::kMesh:
      return nullptr;
    // Calls that async-tp makes: a step is scaled before.
    case OpFamily::kGatherMatmul:
    case OpFamily::kMatmulScatter:
      return nullptr;
  }
  return nullptr;
}

}  // namespace
}  // namespace scaling

ScalingRule find_scaling_rule(const OpInfo& op) {
  static const std::vector<ScalingRule> kByOp = list_by_op(scaling::rule_of);
  return kByOp[op.index];
}

}  // namespace epweave
