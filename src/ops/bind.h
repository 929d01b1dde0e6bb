// A call's arguments, matched to the parameters of its op's schema.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

constexpr std::size_t kMaxParams = 32;  // checked when the op table is read

struct BoundArgs {
  std::array<Arg, kMaxParams> values;  // None where the call leaves the parameter out
  std::uint32_t given = 0;             // bit per parameter

  bool is_given(std::size_t param) const { return (given >> param & 1) != 0; }
};

// Whether it calls an op of the family; not, where the target has no row in the op table.
inline bool has_family(const Node& node, OpFamily family) {
  return node.op != nullptr && node.op->family == family;
}

// `node` must have a row in the op table. Arguments that fit no parameter are left out.
BoundArgs bind_args(const Context& context, const Node& node);

// The argument for the schema's parameter `param`, however the call passes it: of `mm(a, mat2=b)`,
// 1 is `b`. None where the call leaves it out. A target without a row in the op table has positions
// only.
Arg arg_of(const Context& context, const Node& node, std::size_t param);

// Replaces the argument that arg_of reads. The call must pass one.
void set_arg(Context& context, Node& node, std::size_t param, Arg value);

// How many node references of the call stand in front of that argument, in the order of
// for_each_input.
std::size_t leaf_of(const Context& context, const Node& node, std::size_t param);

// Of a `getitem`: the tuple and which element of it, counted from the front; none if it is no such
// call.
struct TupleElement {
  NodeId tuple;
  std::int64_t index = 0;
};
std::optional<TupleElement> tuple_element(const Context& context, const Body& body, const Node& node);

// The number that an argument is: a literal, or what is recorded of the node that gives it; none
// where it is neither.
ExprId number_of(Context& context, const Body& body, Arg arg);

// Why the arguments do not fit the schema ("no parameter 'dims'", "'self' is missing"), or empty.
std::string find_schema_problem(const Context& context, const Node& node);

}  // namespace epweave
