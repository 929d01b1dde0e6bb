#include "ops/mapping.h"

#include <algorithm>
#include <stdexcept>

#include "ops/mapping_rules.h"

namespace epweave {

std::string_view name_of(FactorUse use) {
  switch (use) {
    case FactorUse::kPassed:
      return "passed";
    case FactorUse::kSummed:
      return "summed";
    case FactorUse::kReduced:
      return "reduced";
    case FactorUse::kWhole:
      return "needed whole";
    case FactorUse::kIndexed:
      return "indexed by data";
  }
  return {};
}

std::optional<std::size_t> CallMapping::result_dim(std::size_t tensor, Factor factor) const {
  for (std::size_t d = 0; d < result_rank(tensor); ++d)
    if (const auto factors = result(tensor, d); factors.size() == 1 && factors[0] == factor) return d;
  return std::nullopt;
}

namespace {

// How a family's calls are mapped; no function: nothing is known.
struct FamilyMapping {
  void (*map)(mapping::Builder&) = nullptr;
  bool passes_all = false;  // every factor of every call is passed
};

FamilyMapping mapping_of(OpFamily family) {
  using namespace mapping;  // NOLINT: a name for each family
  switch (family) {
    case OpFamily::kElementwise:
    case OpFamily::kIdentity:
    case OpFamily::kCast:
    case OpFamily::kTransfer:
    case OpFamily::kAllReduce:
    case OpFamily::kBroadcast:
      return {elementwise, true};
    case OpFamily::kWait:
    case OpFamily::kLike:
      return {first_alone, true};
    case OpFamily::kSum:
      return {sum};
    case OpFamily::kReduce:
    case OpFamily::kTruth:
      return {reduce_otherwise};
    case OpFamily::kScan:
      return {scan};
    case OpFamily::kNormalise:
    case OpFamily::kSort:
      return {normalise};
    case OpFamily::kHalve:
    case OpFamily::kHalveBackward:
    case OpFamily::kTopK:
      return {remake};
    case OpFamily::kNormaliseLast:
      return {normalise_last};
    case OpFamily::kNormaliseLastBackward:
      return {normalise_last_backward};
    case OpFamily::kReshape:
      return {reshape};
    case OpFamily::kUnsqueeze:
    case OpFamily::kSqueeze:
      return {reshape, true};
    case OpFamily::kBitView:
      return {bit_view};
    case OpFamily::kPermute:
      return {permute, true};
    case OpFamily::kExpand:
      return {expand, true};
    case OpFamily::kRepeat:
      return {repeat};
    case OpFamily::kSelect:
    case OpFamily::kUnbind:
      return {select};
    case OpFamily::kSlice:
      return {slice};
    case OpFamily::kSplit:
      return {split};
    case OpFamily::kPad:
      return {pad};
    case OpFamily::kUnslice:
      return {unslice};
    case OpFamily::kSliceWrite:
      return {write_slice};
    case OpFamily::kJoin:
      return {join};
    case OpFamily::kStack:
      return {stack};
    case OpFamily::kReorder:
      return {reorder};
    case OpFamily::kSolve:
      return {solve};
    case OpFamily::kTriangle:
      return {triangle};
    case OpFamily::kIndex:
      return {index};
    case OpFamily::kGather:
      return {gather};
    case OpFamily::kIndexSelect:
      return {index_select};
    case OpFamily::kEmbedding:
      return {embedding};
    case OpFamily::kEmbeddingBackward:
      return {embedding_backward};
    case OpFamily::kIndexPut:
      return {index_put};
    case OpFamily::kScatter:
    case OpFamily::kScatterAdd:
      return {scatter};
    case OpFamily::kRowScatter:
      return {row_scatter};
    case OpFamily::kIndexAdd:
    case OpFamily::kIndexCopy:
      return {index_add};
    case OpFamily::kRepeatRows:
      return {index_all};
    case OpFamily::kMaskedRows:
      return {masked_rows};
    case OpFamily::kSearch:
      return {search};
    case OpFamily::kCount:
      return {count};
    case OpFamily::kOneHot:
      return {one_hot};
    case OpFamily::kMatmul:
      return {matmul};
    case OpFamily::kAddMatmul:
      return {add_matmul};
    case OpFamily::kGroupedMatmul:
      return {grouped_matmul};
    case OpFamily::kConvolution:
      return {convolution};
    case OpFamily::kConvolutionBackward:
      return {convolution_backward};
    case OpFamily::kLoss:
      return {loss};
    case OpFamily::kLossBackward:
      return {loss_backward};
    case OpFamily::kClassLoss:
      return {class_loss};
    case OpFamily::kClassLossBackward:
      return {class_loss_backward};
    case OpFamily::kFactory:
    case OpFamily::kNew:
      return {made_of_nothing, true};
    case OpFamily::kIota:
      return {made_by_place};
    case OpFamily::kAllGather:
      return {all_gather};
    case OpFamily::kReduceScatter:
      return {reduce_scatter};
    case OpFamily::kAllToAll:
      return {exchange};
    case OpFamily::kGatherPair:
    case OpFamily::kScatterPair:
      return {exchange_pair};
    case OpFamily::kGatherMatmul:
    case OpFamily::kMatmulScatter:
    case OpFamily::kAttention:
    case OpFamily::kFlexAttention:
    case OpFamily::kRandom:
    case OpFamily::kSize:
    case OpFamily::kNumber:
    case OpFamily::kComparison:
    case OpFamily::kHostRead:
    case OpFamily::kCheck:
    case OpFamily::kElement:
    case OpFamily::kMesh:
    case OpFamily::kOpaque:
      return {};
  }
  return {};
}

// Whether the families' functions find the operands and results that they look for.
bool has_tensors(const MappedCall& call) {
  const bool needs_operand = !call.op->params.empty() && call.op->params[0].type == "Tensor";
  return (!needs_operand || !call.tensors.empty()) && (call.op->returns.empty() || !call.results.empty());
}

}  // namespace

CallMapping map_dimensions(const MappedCall& call) {
  const FamilyMapping family = mapping_of(call.op->family);
  if (family.map == nullptr || !has_tensors(call)) return {};
  mapping::Builder builder(call);
  try {
    family.map(builder);
  } catch (const std::out_of_range&) {
    return {};
  }
  return builder.keeps_ranks() ? builder.finish() : CallMapping();
}

bool passes_all(OpFamily family) {
  return mapping_of(family).passes_all;
}

}  // namespace epweave
