#include "ops/traffic.h"

#include <vector>

#include "ops/op_table.h"

namespace epweave {
namespace {

// By the op's index: flags of rows that no reader of OpInfo needs.
std::vector<unsigned> read_flags() {
  std::vector<unsigned> flags(ops().size());
  for (const OpRow& row : op_rows()) flags[find_op(row.target)->index] = row.flags;
  return flags;
}

Traffic traffic_of_family(OpFamily family) {
  switch (family) {
    case OpFamily::kFactory:
    case OpFamily::kIota:
    case OpFamily::kLike:
    case OpFamily::kNew:
      return Traffic::kFills;
    case OpFamily::kIndex:
    case OpFamily::kGather:
    case OpFamily::kIndexSelect:
    case OpFamily::kEmbedding:
      return Traffic::kTakesRows;
    case OpFamily::kIndexPut:
    case OpFamily::kScatter:
    case OpFamily::kScatterAdd:
    case OpFamily::kRowScatter:
    case OpFamily::kIndexAdd:
      return Traffic::kPutsRows;
    default:
      return Traffic::kEach;
  }
}

}  // namespace

Traffic traffic_of(const OpInfo& op) {
  static const std::vector<unsigned> flags = read_flags();
  if ((flags[op.index] & kUnset) != 0) return Traffic::kAllocates;
  if ((flags[op.index] & kOneSlot) != 0) return Traffic::kSlot;
  if (op.cost == CostClass::kSort) return Traffic::kSorts;
  return traffic_of_family(op.family);
}

}  // namespace epweave
