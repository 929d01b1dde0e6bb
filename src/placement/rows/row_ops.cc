#include "placement/rows/row_ops.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

RowOp find_row_op(const OpInfo& op) {
  switch (op.family) {
    case OpFamily::kFactory:
    case OpFamily::kLike:
    case OpFamily::kNew:
      return RowOp::kConstant;
    case OpFamily::kIota:
    case OpFamily::kSize:
    case OpFamily::kRepeatRows:
      return RowOp::kNone;
    case OpFamily::kSort:
      return RowOp::kSort;
    case OpFamily::kIndex:
      return RowOp::kIndex;
    case OpFamily::kGather:
    case OpFamily::kIndexSelect:
      return RowOp::kGather;
    case OpFamily::kAllToAll:
      return RowOp::kExchange;
    case OpFamily::kIndexPut:
      return RowOp::kPut;
    case OpFamily::kRowScatter:
      return RowOp::kScatter;
    case OpFamily::kScatter:
      return op.find_param("value") ? RowOp::kScatterValue : RowOp::kScatterAlong;
    case OpFamily::kScatterAdd:
    case OpFamily::kIndexAdd:
      return RowOp::kScatterAlong;
    case OpFamily::kMatmul:
    case OpFamily::kGroupedMatmul:
      return RowOp::kProduct;
    case OpFamily::kReshape:
      return RowOp::kReshape;
    case OpFamily::kElementwise:
    case OpFamily::kIdentity:
    case OpFamily::kCast:
    case OpFamily::kTransfer:
    case OpFamily::kSum:
    case OpFamily::kReduce:
    case OpFamily::kTruth:
    case OpFamily::kScan:
    case OpFamily::kNormalise:
    case OpFamily::kHalve:
    case OpFamily::kHalveBackward:
    case OpFamily::kNormaliseLast:
    case OpFamily::kNormaliseLastBackward:
    case OpFamily::kBitView:
    case OpFamily::kUnsqueeze:
    case OpFamily::kSqueeze:
    case OpFamily::kPermute:
    case OpFamily::kExpand:
    case OpFamily::kRepeat:
    case OpFamily::kSelect:
    case OpFamily::kSlice:
    case OpFamily::kSplit:
    case OpFamily::kUnbind:
    case OpFamily::kPad:
    case OpFamily::kUnslice:
    case OpFamily::kSliceWrite:
    case OpFamily::kJoin:
    case OpFamily::kStack:
    case OpFamily::kReorder:
    case OpFamily::kTriangle:
    case OpFamily::kSolve:
    case OpFamily::kEmbedding:
    case OpFamily::kEmbeddingBackward:
    case OpFamily::kIndexCopy:
    case OpFamily::kMaskedRows:
    case OpFamily::kSearch:
    case OpFamily::kCount:
    case OpFamily::kOneHot:
    case OpFamily::kTopK:
    case OpFamily::kAddMatmul:
    case OpFamily::kAttention:
    case OpFamily::kConvolution:
    case OpFamily::kConvolutionBackward:
    case OpFamily::kFlexAttention:
    case OpFamily::kLoss:
    case OpFamily::kLossBackward:
    case OpFamily::kClassLoss:
    case OpFamily::kClassLossBackward:
    case OpFamily::kRandom:
    case OpFamily::kNumber:
    case OpFamily::kComparison:
    case OpFamily::kHostRead:
    case OpFamily::kCheck:
    case OpFamily::kElement:
    case OpFamily::kAllGather:
    case OpFamily::kReduceScatter:
    case OpFamily::kAllReduce:
    case OpFamily::kBroadcast:
    case OpFamily::kGatherMatmul:
    case OpFamily::kMatmulScatter:
    case OpFamily::kGatherPair:
    case OpFamily::kScatterPair:
    case OpFamily::kWait:
    case OpFamily::kMesh:
    case OpFamily::kOpaque:
      return RowOp::kRowWise;
  }
  return RowOp::kRowWise;  // no family
}

}  // namespace

RowOp row_op_of(const Node& node) {
  return node.op == nullptr ? RowOp::kRowWise : find_row_op(*node.op);
}

}  // namespace epweave
