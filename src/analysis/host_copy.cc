#include "analysis/host_copy.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

bool is_on_host(const Context& context, const Node& node) {
  const TensorType* tensor = tensor_of(context, node.type);
  return tensor != nullptr && context.text(tensor->device).starts_with("cpu");
}

bool makes_host_wait(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr || node.op->cost != CostClass::kHostSync) return false;
  const Arg read = arg_of(context, node, 0);
  return read.is_node() && !is_on_host(context, body.nodes[read.as_node()]);
}

std::optional<HostCopy> find_host_copy(const Context& context, const Body& body, const Node& node) {
  static const OpInfo* const to_copy = find_op("aten._to_copy.default");
  static const OpInfo* const copy_in_place = find_op("aten.copy_.default");
  if (node.op == nullptr || (node.op != to_copy && node.op != copy_in_place)) return std::nullopt;
  const bool is_in_place = node.op == copy_in_place;
  const Arg source = arg_of(context, node, is_in_place ? 1 : 0);
  if (!source.is_node()) return std::nullopt;
  if (!is_on_host(context, node) || is_on_host(context, body.nodes[source.as_node()])) return std::nullopt;
  const auto position = node.op->find_param("non_blocking");
  const Arg flag = position ? arg_of(context, node, *position) : Arg::none();
  return HostCopy{.is_blocking = !flag.is(ArgKind::kBool) || !flag.as_bool()};
}

HostEvent host_event_of(const Context& context, const Body& body, const Node& node) {
  if (const auto copy = find_host_copy(context, body, node))
    return copy->is_blocking ? HostEvent::kWait : HostEvent::kCopy;
  return makes_host_wait(context, body, node) ? HostEvent::kWait : HostEvent::kNone;
}

}  // namespace epweave
