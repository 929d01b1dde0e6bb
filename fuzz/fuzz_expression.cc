// Fuzzes the parser of symbolic expressions: any text gives an expression or an InputError. What is
// printed of an expression parses again, to the same polynomial.
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "ir/expr.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epweave;
  StringTable strings;
  ExprPool exprs(strings);
  ExprId expr;
  try {
    expr = exprs.parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const InputError&) {
    return 0;
  }
  exprs.constant(expr);
  exprs.symbols(expr);
  try {
    exprs.evaluate(exprs.poly(expr), [](StringId) { return std::optional<std::int64_t>(3); });
  } catch (const InputError&) {
    // The value does not fit in 64 bits.
  }
  const ExprId printed = exprs.parse(exprs.print(exprs.poly(expr)));
  EPWEAVE_CHECK(exprs.poly(printed) == exprs.poly(expr));
  return 0;
}
