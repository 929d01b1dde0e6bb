// A call's arguments, matched to the parameters of its op's schema.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "ir/graph.h"
#include "ir/op.h"

namespace epweave {

constexpr std::size_t kMaxParams = 32;  // checked when the op table is read

struct BoundArgs {
  std::array<Arg, kMaxParams> values;  // None where the call leaves the parameter out
  std::uint32_t given = 0;             // bit per parameter

  bool is_given(std::size_t param) const { return (given >> param & 1) != 0; }
};

// `node` must have a row in the op table. Arguments that fit no parameter are left out.
BoundArgs bind_args(const Context& context, const Node& node);

// Why the arguments do not fit the schema ("no parameter 'dims'", "'self' is missing"), or empty.
std::string find_schema_problem(const Context& context, const Node& node);

}  // namespace epweave
