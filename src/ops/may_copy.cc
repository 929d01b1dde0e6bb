#include "ops/may_copy.h"

#include "ops/op_table.h"

namespace epweave {

bool may_copy(const OpInfo& op) {
  return has_flag(op, kMayCopy);
}

}  // namespace epweave
