#include "analysis/flex_attention.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/number_calls.h"

namespace epweave {
namespace {

// Fields of the mask tuple: two lengths, eight tables, .., two block sizes, the function.
constexpr std::size_t kFirstOther = 10, kFieldsBehind = 3;

std::optional<std::size_t> position_of(const OpInfo& op, std::string_view param) {
  return op.find_param(param);
}

std::optional<FlexFunction> read_function(const Graph& graph, FlexFunctionKind kind, std::size_t param,
                                          Arg arg) {
  if (!arg.is_node()) return std::nullopt;
  const Arg attr = graph.step().nodes[arg.as_node()].attr;
  if (!attr.is(ArgKind::kGraph)) return std::nullopt;
  const Body* body = graph.find_body(attr.as_name());
  if (body == nullptr || parameters_of(*body).size() < flex_captured_position(kind)) return std::nullopt;
  return FlexFunction{kind, param, arg.as_node(), body};
}

}  // namespace

std::size_t flex_index_position(FlexFunctionKind kind, FlexIndex index) {
  return static_cast<std::size_t>(index) + (kind == FlexFunctionKind::kMask ? 0 : 1);
}

std::size_t flex_captured_position(FlexFunctionKind kind) {
  return flex_index_position(kind, FlexIndex::kKey) + (kind == FlexFunctionKind::kJoint ? 2 : 1);
}

std::optional<FlexCall> FlexCall::read(const Graph& graph, const Node& node) {
  if (node.op == nullptr || !node.op->target.starts_with("higher_order.flex_attention")) return std::nullopt;
  const Context& context = *graph.context;
  FlexCall call;
  const auto joint = position_of(*node.op, "joint_graph");
  call.is_backward = joint.has_value();
  call.mask_param = position_of(*node.op, "block_mask").value();
  call.score_captured_param = position_of(*node.op, "score_mod_other_buffers").value();
  call.mask_captured_param = position_of(*node.op, "mask_mod_other_buffers").value();
  auto param = [&](std::size_t position) { return arg_of(context, node, position); };
  const Arg mask = param(call.mask_param);
  if (!mask.is_list()) return std::nullopt;
  const auto fields = context.args.children(mask);
  if (fields.size() < kFirstOther + kFieldsBehind) return std::nullopt;
  call.mask.assign(fields.begin(), fields.end());
  const Arg block_q = fields[fields.size() - 3], block_k = fields[fields.size() - 2];
  if (!block_q.is_int() || !block_k.is_int() || block_q.as_int() <= 0 || block_k.as_int() <= 0)
    return std::nullopt;
  call.query_block = block_q.as_int();
  call.key_block = block_k.as_int();
  auto add = [&](FlexFunctionKind kind, std::size_t position, Arg arg) {
    const auto function = read_function(graph, kind, position, arg);
    if (function) call.functions.push_back(*function);
    return function.has_value();
  };
  const std::size_t score = position_of(*node.op, call.is_backward ? "fw_graph" : "score_mod").value();
  const bool is_known = add(FlexFunctionKind::kScore, score, param(score)) &&
                        (!joint || add(FlexFunctionKind::kJoint, *joint, param(*joint))) &&
                        add(FlexFunctionKind::kMask, call.mask_param, fields.back());
  return is_known ? std::optional(call) : std::nullopt;
}

std::vector<Arg> FlexCall::other_mask_fields() const {
  return {mask.begin() + kFirstOther, mask.end() - kFieldsBehind};
}

bool FlexCall::has_full_blocks() const {
  return !mask[kFlexTables[1].counts].is_none() || !mask[kFlexTables[3].counts].is_none();
}

std::vector<NodeId> parameters_of(const Body& body) {
  std::vector<NodeId> parameters;
  for (NodeId id : body.order)
    if (body.nodes[id].kind == NodeKind::kPlaceholder) parameters.push_back(id);
  return parameters;
}

bool hides_later_keys(const Context& context, const FlexFunction& mask) {
  const Body& body = *mask.body;
  const std::vector<NodeId> parameters = parameters_of(body);
  const Arg query = Arg::node(parameters[flex_index_position(mask.kind, FlexIndex::kQuery)]);
  const Arg key = Arg::node(parameters[flex_index_position(mask.kind, FlexIndex::kKey)]);
  IdSet<NodeId> hiding;  // values that are false wherever the key stands behind the query
  const auto hides = [&](Arg arg) { return arg.is_node() && hiding.contains(arg.as_node()); };
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const auto args = context.args[node.args];
    if (node.kind == NodeKind::kOutput) return args.size() == 1 && hides(args[0]);
    if (node.kind != NodeKind::kCall) continue;
    if (node.op == nullptr || node.op->writes) return false;
    if (args.size() != 2 || !node.kwargs.empty()) continue;
    const Conjunction conjunction = conjunction_of(*node.op);
    const NumberUse use = number_use_of(*node.op);
    const bool first_is_larger = use == NumberUse::kAtLeast || use == NumberUse::kAbove;
    const bool second_is_larger = use == NumberUse::kAtMost || use == NumberUse::kBelow;
    if ((conjunction == Conjunction::kBoth && (hides(args[0]) || hides(args[1]))) ||
        (conjunction == Conjunction::kEither && hides(args[0]) && hides(args[1])) ||
        (first_is_larger && args[0] == query && args[1] == key) ||
        (second_is_larger && args[0] == key && args[1] == query))
      hiding.insert(id);
  }
  return false;
}

bool reads_parameter(const Context& context, const Body& body, NodeId parameter,
                     const std::vector<NodeId>& except) {
  return std::any_of(body.order.begin(), body.order.end(), [&](NodeId id) {
    const Node& node = body.nodes[id];
    if (node.op != nullptr && node.op->reads_types_only) return false;
    if (std::find(except.begin(), except.end(), id) != except.end()) return false;
    bool reads = false;
    for_each_input(context, node, [&](NodeId input) { reads |= input == parameter; });
    return reads;
  });
}

std::optional<std::vector<NodeId>> lookups_of(const Context& context, const Body& body, NodeId tensor,
                                              NodeId first) {
  std::vector<NodeId> lookups;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const auto args = context.args[node.args];
    std::size_t reads = 0, firsts = 0;
    for_each_input(context, node, [&](NodeId input) {
      reads += input == tensor;
      firsts += input == first;
    });
    if (reads == 0) continue;
    const bool is_lookup = has_family(node, OpFamily::kIndex) && reads == 1 && firsts == 1 &&
                           args[0] == Arg::node(tensor) && args[1].is_list() &&
                           context.args.children(args[1])[0] == Arg::node(first);
    if (!is_lookup) return std::nullopt;
    lookups.push_back(id);
  }
  return lookups;
}

}  // namespace epweave
