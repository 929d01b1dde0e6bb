// Nested graphs as functions (executor.h).
#include <algorithm>

#include "ops/op.h"
#include "replay/run/call_values.h"
#include "replay/run/executor.h"

namespace epweave::replay {
namespace {

// Runs a nested graph on broadcast arguments.
class NestedRunner {
 public:
  NestedRunner(const Graph& graph, const Body& body, const KernelTable& kernels, Memory& memory)
      : graph_(graph),
        body_(body),
        kernels_(kernels),
        memory_(memory),
        symbols_(graph),
        last_users_(body.nodes.size()) {
    for (NodeId id : body.order)
      for_each_input(*graph.context, body.nodes[id], [&](NodeId input) { last_users_[input.index()] = id; });
  }

  Value run(std::span<const Value> args) const {
    std::vector<Value> values(body_.nodes.size());
    const Environment environment{graph_, symbols_,
                                  [&](NodeId id) -> const Value& { return values[id.index()]; }};
    std::size_t next = 0;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      Value& value = values[id.index()];
      switch (node.kind) {
        case NodeKind::kPlaceholder:
          if (next == args.size()) throw KernelError("the nested graph takes more arguments");
          value = args[next++];
          break;
        case NodeKind::kGetAttr:
          value = place_constant(graph_, symbols_, node.attr, memory_);
          break;
        case NodeKind::kOutput:
          return evaluate(environment, graph_.context->args[node.args][0]);
        case NodeKind::kCall:
          value = call(environment, node);
          // Nobody needs it longer: matrices of scores are large.
          for_each_input(*graph_.context, node, [&](NodeId input) {
            if (last_users_[input.index()] == id) values[input.index()] = Value();
          });
          break;
      }
    }
    return {};
  }

 private:
  Value call(const Environment& environment, const Node& node) const {
    BoundCall bound = bind_values(environment, node);
    KernelCall kernel(*node.op, std::move(bound.args), bound.given, memory_);
    std::vector<ResultType> results = evaluate_results(graph_, environment.symbols, node.type);
    kernel.set_results(std::move(results));
    kernel.set_nested();
    return kernels_.find(*node.op)(kernel);
  }

  const Graph& graph_;
  const Body& body_;
  const KernelTable& kernels_;
  Memory& memory_;
  const Symbols symbols_;
  std::vector<NodeId> last_users_;
};

bool writes_nothing(const Body& body) {
  return std::none_of(body.order.begin(), body.order.end(), [&](NodeId id) {
    const Node& node = body.nodes[id];
    return node.kind == NodeKind::kCall && (node.op == nullptr || node.op->writes);
  });
}

// The node whose value a nested graph returns, first of several; none if it returns something else.
NodeId find_first_result(const Context& context, const Body& body) {
  for (NodeId id : body.order) {
    if (body.nodes[id].kind != NodeKind::kOutput) continue;
    Arg result = context.args[body.nodes[id].args][0];
    if (result.is_list() && context.args.children(result).empty()) return {};
    if (result.is_list()) result = context.args.children(result)[0];
    return result.is_node() ? result.as_node() : NodeId();
  }
  return {};
}

}  // namespace

Function make_function(const Graph& graph, const Body& body, const KernelTable& kernels, Memory& memory) {
  Function function;
  function.name = graph.text(body.name);
  const NodeId returned = writes_nothing(body) ? find_first_result(*graph.context, body) : NodeId();
  for (NodeId id : body.order) {
    if (body.nodes[id].kind != NodeKind::kPlaceholder) continue;
    if (id == returned) function.returned_param = function.params;
    ++function.params;
  }
  function.call = [runner = NestedRunner(graph, body, kernels, memory)](std::span<const Value> args) {
    return runner.run(args);
  };
  return function;
}

}  // namespace epweave::replay
