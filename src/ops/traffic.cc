#include "ops/traffic.h"

#include <vector>

#include "ops/family.h"
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
  if (traits_of(family).elements == Elements::kMade) return Traffic::kFills;
  if (takes_rows(family)) return Traffic::kTakesRows;
  return puts_rows(family) ? Traffic::kPutsRows : Traffic::kEach;
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
