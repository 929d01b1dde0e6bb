#include "ops/number_ops.h"

#include <vector>

#include "ops/bind.h"
#include "ops/by_op.h"
#include "ops/named_arg.h"

namespace epweave {
namespace {

NumberRule find_number_rule(const OpInfo& op) {
  if (op.find_param("rounding_mode")) return NumberRule::kQuotient;
  if (op.target.starts_with("aten.floor_divide.")) return NumberRule::kQuotient;
  if (op.target.starts_with("aten.remainder.")) return NumberRule::kRemainder;
  return NumberRule::kNone;
}

// The value whose numbers a quotient of integers by 1 has; none: it is no such quotient.
NodeId number_before_quotient(const Context& context, const Body& body, NodeId value) {
  const Node& node = body.nodes[value];
  if (node.op == nullptr || number_rule(*node.op) != NumberRule::kQuotient || node.op->writes) return {};
  const Arg source = arg_of(context, node, 0);
  if (!source.is_node() || named_arg(context, node, "other") != Arg::integer(1)) return {};
  const TensorType *before = tensor_of(context, body.nodes[source.as_node()].type),
                   *after = tensor_of(context, node.type);
  const bool are_integers =
      before != nullptr && after != nullptr && !is_floating(after->dtype) && before->dtype == after->dtype;
  return are_integers ? source.as_node() : NodeId();
}

}  // namespace

NumberRule number_rule(const OpInfo& op) {
  static const std::vector<NumberRule> kTable = list_by_op(find_number_rule);
  return kTable[op.index];
}

NodeId undivided_numbers(const Context& context, const Body& body, NodeId value,
                         const std::function<bool(NodeId)>& is_written) {
  while (!is_written(value)) {
    const NodeId source = number_before_quotient(context, body, value);
    if (!source) return value;
    value = source;
  }
  return {};
}

bool numbers_chosen_rows(const OpInfo& op) {
  return op.family == OpFamily::kRepeatRows || (op.family == OpFamily::kMaskedRows && op.params.size() == 1);
}

std::optional<std::size_t> subtracted_operand(const OpInfo& op) {
  if (op.linearity != Linearity::kSum || !op.find_param("alpha")) return std::nullopt;
  if (op.target.starts_with("aten.sub")) return 1;
  return op.target.starts_with("aten.rsub") ? std::optional<std::size_t>(0) : std::nullopt;
}

bool adds_param(const OpInfo& op, std::size_t param) {
  return op.family == OpFamily::kElementwise && op.linearity == Linearity::kSum && !op.writes &&
         param < op.params.size() && op.params[param].name == "other";
}

bool is_arange(const OpInfo& op) {
  return op.family == OpFamily::kIota && op.find_param("end") && !op.find_param("steps");
}

bool counts_from_zero(const Context& context, const Node& node) {
  if (node.op == nullptr || !is_arange(*node.op)) return false;
  const Arg start = named_arg(context, node, "start"), step = named_arg(context, node, "step");
  return (start.is_none() || start == Arg::integer(0)) && (step.is_none() || step == Arg::integer(1));
}

}  // namespace epweave
