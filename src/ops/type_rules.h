// Types from arguments: for each op of the table, dtype, sizes, strides, offset and device of
// its result as PyTorch's meta kernels give them (torch 2.15, CUDA-traced graphs).
//
// A rule sees the call's arguments and the recorded types of the values they name, never the
// recorded type of its own node. It serves two masters: verify compares its result with what
// is recorded, and the chunker gives it the arguments of one part.
#pragma once

#include <string>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// The call's arguments cannot be typed: a size does not match, an argument has the wrong kind. The
// message says what; the caller adds where.
class TypeMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether the node's op has a rule.
bool has_type_rule(const Node& node);

// The type of the call's result; none where the op gives no value (`aten._assert_async.msg`) or has
// no rule. Throws TypeMismatch.
TypeId infer_type(Facts& facts, const Graph& graph, const Body& body, const Node& node);

// The same as the op's kernel gives it, where torch's fake tensors take the op apart into a formula
// whose result is laid out otherwise; none for other ops. A graph may have been traced with either.
TypeId infer_kernel_type(Facts& facts, const Graph& graph, const Body& body, const Node& node);

// Whether two types are equal under the facts; requires_grad and subclass are not compared.
bool same_type(Facts& facts, const Context& context, TypeId a, TypeId b);
// The same, but for strides of dimensions of extent 1, which torch gives by other rules where sizes
// are symbolic.
bool reaches_same_elements(Facts& facts, const Context& context, TypeId a, TypeId b);

// "bf16[u0, 256]{256, 1}@cuda:0", "(f32[8], i64[8])", "SymInt(3*u0)": for messages, the text form
// and tables.
std::string print_type(const Context& context, TypeId type);

}  // namespace epweave
