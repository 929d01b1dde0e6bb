// Gives a call another argument.
//
//   rebind(context, %fa = attention(%q, %k, %v, 0.0, True), {.param = 4, .value = False})
//   makes it attention(%q, %k, %v, 0.0, False)
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace epweave {

struct Rebinding {
  std::size_t param;  // of the schema
  Arg value = {};     // None: nothing
  Arg left_out = {};  // what stands in for parameters before it that the call leaves out
};

// By keyword where the call passes it so, else by position. `node` must have a row in the op table.
void rebind(Context& context, Node& node, const Rebinding& rebinding);

}  // namespace epweave
