#include "ops/may_copy.h"

#include "ops/op_table.h"

namespace epweave {

bool may_copy(const OpInfo& op) {
  return has_flag(op, kMayCopy);
}

bool is_reshape(const OpInfo& op) {
  return op.family == OpFamily::kReshape && op.is_view;
}

}  // namespace epweave
