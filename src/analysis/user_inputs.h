// The tensors that whoever runs a step passes to it: tokens, labels, positions. Not parameters and
// the like.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct UserInput {
  NodeId node;
  std::string_view which;  // as the file names it, else as the node is called
  const TensorType* type;
  bool has_role;  // otherwise it is taken for one
};

// In the order of the inputs.
std::vector<UserInput> list_user_inputs(const Graph& graph);

}  // namespace epweave
