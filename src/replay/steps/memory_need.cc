#include "replay/steps/memory_need.h"

#include <algorithm>

#include "analysis/effects.h"
#include "replay/steps/steps.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

std::uint64_t count_bytes(const Context& context, const Symbols& symbols, TypeId id) {
  if (!id) return 0;
  const Type& type = context.types[id];
  if (type.kind == TypeKind::kTuple || type.kind == TypeKind::kList) {
    std::uint64_t bytes = 0;
    for (TypeId element : type.elements) bytes += count_bytes(context, symbols, element);
    return bytes;
  }
  const auto tensor = type.kind == TypeKind::kTensor ? evaluate(symbols, type.tensor) : std::nullopt;
  if (!tensor) return 0;
  return static_cast<std::uint64_t>(count_elements(tensor->sizes)) * info(tensor->dtype).bytes;
}

}  // namespace

MemoryNeed find_memory_need(const Graph& graph) {
  Symbols symbols(graph);
  for (const Symbol& symbol : graph.symbols)
    if (symbol.hint) symbols.bind(symbol.name, *symbol.hint);
  const Body& body = graph.step();
  const Effects effects(*graph.context, body);
  IdVector<NodeId, std::uint64_t> bytes(body.nodes.size(), 0);  // of a storage, at its first value
  IdVector<NodeId, std::uint32_t> users(body.nodes.size(), 0);  // live values of a storage
  MemoryNeed need;
  std::uint64_t held = 0;
  for (const Step& step : plan_steps(graph, body).list) {
    if (!step.node) continue;
    const NodeId storage = effects.storage_of(step.node);
    const Node& node = body.nodes[step.node];
    if (step.kind == StepKind::kFree) {
      if (users[storage] == 0 || --users[storage] != 0) continue;
      held -= bytes[storage];
      bytes[storage] = 0;
      continue;
    }
    if (step.kind == StepKind::kInput) {
      need.inputs += count_bytes(*graph.context, symbols, node.type);
      continue;
    }
    ++users[storage];
    if (storage == step.node && body.nodes[storage].kind != NodeKind::kPlaceholder) {
      bytes[storage] = count_bytes(*graph.context, symbols, node.type);
      held += bytes[storage];
      need.values = std::max(need.values, held);
    }
  }
  return need;
}

}  // namespace epweave::replay
