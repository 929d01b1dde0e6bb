// Expressions as torch.export writes them: sympy's `srepr`, calls of constructors.
//
//   Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))   ->   2*s0 + 1
#pragma once

#include <string>
#include <string_view>

namespace epweave {

// The expression in the notation of ir/expr.h. Throws InputError with the column if `text` is not
// such a text.
std::string expression_of_srepr(std::string_view text);

}  // namespace epweave
