// A property of ops that takes time to find, such as a parameter's name: found once for each op,
// then asked of nodes.
#pragma once

#include <type_traits>
#include <vector>

#include "ops/op.h"

namespace epweave {

// Of each op, by OpInfo::index.
template <class Property>
auto list_by_op(const Property& property) {
  std::vector<std::invoke_result_t<const Property&, const OpInfo&>> table;
  table.reserve(ops().size());
  for (const OpInfo& op : ops()) table.push_back(property(op));
  return table;
}

}  // namespace epweave
