#include "analysis/whole_numbers.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::size_t kLeastBytes = 4;  // 16 bits have no 257, or no 2049
constexpr int kMostSteps = 16;          // so that no chain of calls is followed again and again
constexpr std::int64_t kMostOfFloat = std::int64_t{1} << 24;  // whole numbers up to it are floats

// Whether a count of a tensor's elements may be too large for 32 bits, by the extents that are
// numbers.
bool may_round(const Context& context, const TensorType& counted) {
  std::int64_t elements = 1;
  for (ExprId size : counted.sizes) {
    elements *= std::max<std::int64_t>(context.exprs.constant(size).value_or(1), 1);
    if (elements > kMostOfFloat) return true;
  }
  return false;
}

}  // namespace

bool has_whole_numbers(const Graph& graph, const Effects& effects, NodeId tensor) {
  const Context& context = *graph.context;
  for (int step = 0; step < kMostSteps; ++step) {
    const Node& node = graph.step().nodes[tensor];
    const TensorType* type = tensor_of(context, node.type);
    if (type == nullptr || !is_floating(type->dtype) || info(type->dtype).bytes < kLeastBytes ||
        node.op == nullptr || effects.is_written(effects.storage_of(tensor)))
      return false;
    const OpFamily family = node.op->family;
    const Arg operand = arg_of(context, node, 0);
    if (family == OpFamily::kCount) {
      const TensorType* counted =
          operand.is_node() ? tensor_of(context, graph.step().nodes[operand.as_node()].type) : nullptr;
      return counted != nullptr && named_arg(context, node, "weights").is_none() &&
             (info(type->dtype).bytes > kLeastBytes || !may_round(context, *counted));
    }
    if ((!shows_elements(family) && family != OpFamily::kSum) || !operand.is_node()) return false;
    tensor = operand.as_node();
  }
  return false;
}

bool converts_sum(const Graph& graph, const Effects& effects, NodeId sum, DType to) {
  const TensorType* type = tensor_of(*graph.context, graph.step().nodes[sum].type);
  if (type == nullptr || converts_sums(type->dtype, to)) return true;
  return is_floating(type->dtype) && is_integral(to) && info(to).bytes >= kLeastBytes &&
         has_whole_numbers(graph, effects, sum);
}

}  // namespace epweave
