// A call's argument by the name of the schema's parameter.
//
//   named_arg(context, node, "dim")      of sum(x, [0]) the list [0]
#pragma once

#include <span>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

// `node` must have a row in the op table. None where the op has no such parameter, or the call
// leaves it out.
Arg named_arg(const Context& context, const Node& node, std::string_view name);
// The items of such a list; empty where the argument is no list.
std::span<const Arg> named_items(const Context& context, const Node& node, std::string_view name);

// Whether it is the number 0, whole or real; False is none.
bool is_zero_number(Arg arg);

}  // namespace epweave
