#include "placement/rows/row_ops.h"

#include "ops/family.h"
#include "ops/op.h"

namespace epweave {

RowOp row_op_of(const Node& node) {
  if (node.op == nullptr) return RowOp::kRowWise;
  const OpInfo& op = *node.op;
  const FamilyTraits& traits = traits_of(op.family);
  switch (traits.rows) {
    case RowOrder::kAlike:
      return RowOp::kConstant;
    case RowOrder::kCounted:
    case RowOrder::kOwn:
      return RowOp::kNone;
    case RowOrder::kSorted:
      return RowOp::kSort;
    case RowOrder::kExchanged:
      return RowOp::kExchange;
    case RowOrder::kByPositions:
      // A table that all parts share has a row for each number: row i belongs to number i.
      return traits.positions == PositionForm::kOfRows ? RowOp::kRowWise : RowOp::kPick;
    case RowOrder::kOfFirst:
      return op.find_param("value") ? RowOp::kPutNumber : RowOp::kPut;
    case RowOrder::kRegrouped:
      return op.family == OpFamily::kReshape ? RowOp::kReshape : RowOp::kRowWise;
    case RowOrder::kPaired:
      return op.family == OpFamily::kMatmul || op.family == OpFamily::kGroupedMatmul ? RowOp::kProduct
                                                                                     : RowOp::kRowWise;
    case RowOrder::kUnknown:
      return op.reads_types_only ? RowOp::kNone : RowOp::kRowWise;
    case RowOrder::kHandedOn:
    case RowOrder::kReduced:
    case RowOrder::kExpanded:
    case RowOrder::kRepeated:
    case RowOrder::kGathered:
    case RowOrder::kScattered:
    case RowOrder::kJoined:
    case RowOrder::kSplit:
      return RowOp::kRowWise;
  }
  return RowOp::kRowWise;
}

}  // namespace epweave
