#include "replay/kernels/device/host_waits.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave::replay::device {
namespace {

constexpr std::string_view kFindsSize = "the size of a result is what is found",
                           kReadsMask = "a bool mask is an index",
                           kCopiesConstant = "a constant is copied from the host",
                           kReadsBounds = "the bounds of groups are read";

// A parameter of the call; none where it has its default.
Arg find_arg(const Graph& graph, const Node& node, std::string_view name) {
  const auto param = node.op->find_param(name);
  return param ? arg_of(*graph.context, node, *param) : Arg::none();
}

bool has_bool_index(const Graph& graph, const Node& node) {
  const Arg indices = find_arg(graph, node, "indices");
  if (!indices.is_tree()) return false;
  const auto is_mask = [&](Arg index) {
    if (!index.is_node()) return false;
    const TensorType* tensor = tensor_of(*graph.context, graph.step().nodes[index.as_node()].type);
    return tensor == nullptr || tensor->dtype == DType::kBool;
  };
  const auto children = graph.context->args.children(indices);
  return std::any_of(children.begin(), children.end(), is_mask);
}

// A nested graph that the call runs has constants of its own.
bool runs_constants(const Graph& graph, const Node& node) {
  bool found = false;
  for_each_input(*graph.context, node, [&](NodeId input) {
    const Node& made = graph.step().nodes[input];
    if (made.kind != NodeKind::kGetAttr || !made.attr.is(ArgKind::kGraph)) return;
    const Body* nested = graph.find_body(made.attr.as_name());
    if (nested == nullptr) return;
    for (NodeId id : nested->order) found = found || nested->nodes[id].kind == NodeKind::kGetAttr;
  });
  return found;
}

// The result's size is found on the device unless the call gives it.
bool finds_size(const Graph& graph, const Node& node) {
  const std::string_view target = node.op->target;
  if (target == "aten.nonzero.default" || target == "aten.masked_select.default" ||
      target == "aten.bincount.default")
    return true;
  if (target == "aten.repeat_interleave.Tensor")
    return find_arg(graph, node, "output_size").is(ArgKind::kNone);
  if (target != "aten.one_hot.default") return false;
  const Arg classes = find_arg(graph, node, "num_classes");
  return classes.is(ArgKind::kNone) || (classes.is_int() && classes.as_int() < 0);
}

bool counts_mask(const Node& node) {
  return node.op->target == "aten.masked_scatter.default" ||
         node.op->target == "aten.masked_scatter_backward.default";
}

}  // namespace

std::string_view find_host_wait(const Graph& graph, const Node& node, Math math) {
  if (node.op == nullptr) return {};
  if (finds_size(graph, node)) return kFindsSize;
  if (has_bool_index(graph, node) || counts_mask(node)) return kReadsMask;
  if (runs_constants(graph, node)) return kCopiesConstant;
  if (math == Math::kNative && node.op->target == "aten._grouped_mm.default" &&
      !find_arg(graph, node, "offs").is(ArgKind::kNone))
    return kReadsBounds;
  return {};
}

}  // namespace epweave::replay::device
