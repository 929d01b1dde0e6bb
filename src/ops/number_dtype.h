// Which dtype a number has where it stands among tensors, or becomes one.
#pragma once

#include <optional>

#include "ops/type_rule_call.h"

namespace epweave {

// Of a Python number or a symbolic scalar. None: not a number.
std::optional<DType> dtype_of_number(TypeRuleCall& call, Arg value);

}  // namespace epweave
