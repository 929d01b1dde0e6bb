#include "replay/run/call_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave::replay {

BoundCall bind_values(const Environment& environment, const Node& node) {
  const BoundArgs bound = bind_args(*environment.graph.context, node);
  BoundCall call{{}, bound.given};
  call.args.reserve(node.op->params.size());
  for (std::size_t i = 0; i < node.op->params.size(); ++i) {
    if (bound.is_given(i)) {
      call.args.push_back(evaluate(environment, bound.values[i]));
    } else {
      const OpParam& param = node.op->params[i];
      call.args.push_back(param.has_default ? parse_default(param.default_value) : Value());
    }
  }
  return call;
}

const Value* find_argument(const OpInfo& op, const BoundCall& call, std::string_view name) {
  const auto param = op.find_param(name);
  return param ? &call.args[*param] : nullptr;
}

std::string describe_operand(const Tensor& tensor) {
  return fmt::format("{}[{}]", info(tensor.dtype).short_name, fmt::join(tensor.sizes, ", "));
}

std::string describe_operands(std::span<const Value> args) {
  std::string text;
  for (const Value& arg : args) {
    const std::string one = arg.is<List>()    ? describe_operands(arg.items())
                            : arg.is_tensor() ? describe_operand(arg.tensor())
                                              : "";
    if (!one.empty()) text += (text.empty() ? "" : ", ") + one;
  }
  return text;
}

std::vector<ResultType> evaluate_results(const Graph& graph, const Symbols& symbols, TypeId id) {
  const auto one = [&](TypeId element) {
    const TensorType* tensor = element ? tensor_of(*graph.context, element) : nullptr;
    return tensor == nullptr ? ResultType() : evaluate(symbols, *tensor).value_or(ResultType());
  };
  if (!id) return {};
  const Type& type = graph.context->types[id];
  if (type.kind != TypeKind::kTuple && type.kind != TypeKind::kList) return {one(id)};
  std::vector<ResultType> results;
  for (TypeId element : type.elements) results.push_back(one(element));
  return results;
}

Tensor place_constant(const Graph& graph, const Symbols& symbols, Arg constant, Memory& memory) {
  HostMemory host;
  return memory.place(make_constant(graph, symbols, constant, host));
}

}  // namespace epweave::replay
