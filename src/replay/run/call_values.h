// What a call of the graph is given and is to give, as values: for the step and for nested graphs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/kernels/kernel.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

// A call's arguments in the order of its schema, defaults filled in.
struct BoundCall {
  std::vector<Value> args;
  std::uint32_t given = 0;
};
BoundCall bind_values(const Environment& environment, const Node& node);
// The argument of a parameter; null if the op has none of that name.
const Value* find_argument(const OpInfo& op, const BoundCall& call, std::string_view name);

// Dtypes and sizes of the tensors: "f32[1024, 256], f32[256, 64]".
std::string describe_operand(const Tensor& tensor);
std::string describe_operands(std::span<const Value> args);

// What is recorded about the results of a node of this type; of a tuple, about each element.
std::vector<ResultType> evaluate_results(const Graph& graph, const Symbols& symbols, TypeId id);

// A constant of the graph in this memory.
Tensor place_constant(const Graph& graph, const Symbols& symbols, Arg constant, Memory& memory);

}  // namespace epweave::replay
