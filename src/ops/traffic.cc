#include "ops/traffic.h"

#include "ops/family.h"
#include "ops/op_table.h"

namespace epweave {
namespace {

Traffic traffic_of_family(OpFamily family) {
  if (traits_of(family).elements == Elements::kMade) return Traffic::kFills;
  if (takes_rows(family)) return Traffic::kTakesRows;
  return puts_rows(family) ? Traffic::kPutsRows : Traffic::kEach;
}

}  // namespace

Traffic traffic_of(const OpInfo& op) {
  if (has_flag(op, kUnset)) return Traffic::kAllocates;
  if (has_flag(op, kOneSlot)) return Traffic::kSlot;
  if (op.cost == CostClass::kSort) return Traffic::kSorts;
  return traffic_of_family(op.family);
}

}  // namespace epweave
