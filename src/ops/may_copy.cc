#include "ops/may_copy.h"

#include <vector>

#include "ops/op_table.h"

namespace epweave {

bool may_copy(const OpInfo& op) {
  static const std::vector<bool> by_index = [] {
    std::vector<bool> found(ops().size());
    for (const OpRow& row : op_rows()) found[find_op(row.target)->index] = (row.flags & kMayCopy) != 0;
    return found;
  }();
  return by_index[op.index];
}

}  // namespace epweave
