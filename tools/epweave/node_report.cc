#include "node_report.h"

#include "ops/type_rules.h"

namespace epweave::cli {
namespace {

// torch.fx's words.
std::string_view op_word(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCall:
      return "call_function";
    case NodeKind::kPlaceholder:
      return "placeholder";
    case NodeKind::kGetAttr:
      return "get_attr";
    case NodeKind::kOutput:
      return "output";
  }
  return "";
}

Json extents_report(const Context& context, const std::vector<ExprId>& extents) {
  Json list = Json::array();
  for (ExprId extent : extents) {
    if (const auto number = context.exprs.constant(extent))
      list.push_back(*number);
    else
      list.push_back(context.exprs.text(extent));
  }
  return list;
}

Json inputs_report(const Graph& graph, const Body& body, const Node& node) {
  Json names = Json::array();
  std::vector<NodeId> seen;
  for_each_input(*graph.context, node, [&](NodeId input) {
    if (std::find(seen.begin(), seen.end(), input) != seen.end()) return;
    seen.push_back(input);
    names.push_back(graph.text(body.nodes[input].name));
  });
  return names;
}

Json chunk_report(const Graph& graph, const Node& node, const RegionParts& parts) {
  if (!node.chunk.region) return {};
  Json part;
  if (node.chunk.part) part = *node.chunk.part;
  return {{"root", graph.text(node.chunk.region)},
          {"role", graph.text(node.chunk.role)},
          {"part", std::move(part)},
          {"parts", parts[node]}};
}

Json origin_report(const Graph& graph, const Node& node) {
  Json names = Json::array();
  for (StringId origin : origins_of(node)) names.push_back(graph.text(origin));
  return names;
}

}  // namespace

Json type_report(const Context& context, TypeId id) {
  if (!id) return {};
  const Type& type = context.types[id];
  switch (type.kind) {
    case TypeKind::kTensor:
      return {{"dtype", info(type.tensor.dtype).name},
              {"shape", extents_report(context, type.tensor.sizes)},
              {"stride", extents_report(context, type.tensor.strides)},
              {"device", text_or_null(context.text(type.tensor.device))}};
    case TypeKind::kScalar:
      return {{"symbolic", context.exprs.text(type.expr)}, {"py_type", context.text(type.py_type)}};
    case TypeKind::kTuple:
    case TypeKind::kList: {
      Json list = Json::array();
      for (TypeId element : type.elements) list.push_back(type_report(context, element));
      return list;
    }
    case TypeKind::kValue:
      return {{"value", print_type(context, id)}};
  }
  return {};
}

Json node_report(const Graph& graph, const Body& body, const Node& node, const RegionParts& parts) {
  return {{"name", graph.text(node.name)},
          {"op", op_word(node.kind)},
          {"target", graph.text(node.target)},
          {"inputs", inputs_report(graph, body, node)},
          {"module", text_or_null(graph.text(node.module))},
          {"direction", node.is_backward() ? "backward" : "forward"},
          {"chunk", chunk_report(graph, node, parts)},
          {"origin", origin_report(graph, node)},
          {"type", type_report(*graph.context, node.type)}};
}

Json names_report(const Graph& graph, const Body& body, std::span<const NodeId> nodes) {
  Json list = Json::array();
  for (NodeId id : nodes) list.push_back(graph.text(body.nodes[id].name));
  return list;
}

}  // namespace epweave::cli
