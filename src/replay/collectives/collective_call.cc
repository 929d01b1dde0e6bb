#include "replay/collectives/collective_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/family.h"

namespace epweave::replay {

std::optional<CollectiveKind> find_collective(const OpInfo& op) {
  // Others of these families are launched by what surrounds them, as kernels of their own.
  if (op.cost != CostClass::kCollective) return std::nullopt;
  switch (exchange_of(op.family)) {
    case ExchangeKind::kGather:
      return CollectiveKind::kAllGather;
    case ExchangeKind::kScatter:
      return CollectiveKind::kReduceScatter;
    case ExchangeKind::kReduce:
      return CollectiveKind::kAllReduce;
    case ExchangeKind::kAllToAll:
      return CollectiveKind::kAllToAll;
    case ExchangeKind::kBroadcast:
      return CollectiveKind::kBroadcast;
    case ExchangeKind::kNone:
      break;
  }
  return std::nullopt;
}

std::vector<Tensor> list_operands(const BoundCall& bound) {
  const Value& sent = bound.args[0];
  if (!sent.is<List>()) return {sent.tensor()};
  std::vector<Tensor> operands;
  for (const Value& item : sent.items()) operands.push_back(item.tensor());
  if (operands.empty()) throw KernelError("the list of operands is empty");
  return operands;
}

const std::string& group_of(const OpInfo& op, const BoundCall& bound) {
  const Value* group = find_argument(op, bound, "group_name");
  if (group == nullptr || !group->is<Text>()) throw KernelError("the process group is not known by name");
  return group->as<Text>().text;
}

// Rows to or from each member: equal shares where no sizes are given (ops/collective_arguments.h).
static std::vector<std::int64_t> read_splits(const Value& given, const Tensor& operand, std::size_t members) {
  std::vector<std::int64_t> splits = given.integers();
  if (!splits.empty() || members == 0 || operand.sizes.empty()) return splits;
  const std::int64_t rows = operand.sizes[0], ranks = static_cast<std::int64_t>(members);
  if (rows % ranks != 0)
    throw KernelError(fmt::format("{} rows are no equal shares for {} members", rows, members));
  splits.assign(members, rows / ranks);
  return splits;
}

Contribution read_contribution(const OpInfo& op, const BoundCall& bound, const Tensor& operand,
                               std::size_t members) {
  const std::optional<CollectiveKind> kind = find_collective(op);
  EPWEAVE_CHECK(kind);
  Contribution part;
  part.kind = *kind;
  part.dtype = operand.dtype;
  part.sizes = operand.sizes;
  if (const Value* reduction = find_argument(op, bound, "reduce_op"))
    part.reduction = reduction->as<Text>().text;
  if (const Value* source = find_argument(op, bound, "src")) part.source = source->integer();
  if (const Value* size = find_argument(op, bound, "group_size");
      size != nullptr && size->integer() != static_cast<std::int64_t>(members))
    throw KernelError(fmt::format("group size {} is given, group {} has {} members", size->integer(),
                                  group_of(op, bound), members));
  if (part.kind == CollectiveKind::kAllToAll) {
    part.receives = read_splits(*find_argument(op, bound, "output_split_sizes"), operand, members);
    part.sends = read_splits(*find_argument(op, bound, "input_split_sizes"), operand, members);
  }
  return part;
}

namespace {

// Nothing that a run computes.
bool is_literal(const Context& context, Arg arg) {
  switch (arg.kind()) {
    case ArgKind::kNone:
    case ArgKind::kBool:
    case ArgKind::kInt:
    case ArgKind::kText:
      return true;
    case ArgKind::kList:
    case ArgKind::kTuple:
      return std::ranges::all_of(context.args.children(arg),
                                 [&](Arg item) { return is_literal(context, item); });
    default:
      return false;
  }
}

// As the run checks it where it is made.
bool has_numbers_for_sizes(const Graph& graph, Arg operand) {
  if (!operand.is_node()) return false;
  const Context& context = *graph.context;
  const TypeId id = graph.step().nodes[operand.as_node()].type;
  if (!id || context.types[id].kind != TypeKind::kTensor) return false;
  const TensorType& type = context.types[id].tensor;
  const auto is_number = [&](ExprId expr) { return context.exprs.constant(expr).has_value(); };
  return std::ranges::all_of(type.sizes, is_number) && std::ranges::all_of(type.strides, is_number);
}

}  // namespace

bool is_known_from_graph(const Graph& graph, const Node& call) {
  const Context& context = *graph.context;
  const auto is_said = [&](Arg arg) { return is_literal(context, arg); };
  const std::span<const Arg> args = context.args[call.args];
  if (args.empty() || !std::ranges::all_of(args.subspan(1), is_said) ||
      !std::ranges::all_of(context.args[call.kwargs], is_said))
    return false;
  if (!args[0].is_list()) return has_numbers_for_sizes(graph, args[0]);
  return std::ranges::all_of(context.args.children(args[0]),
                             [&](Arg operand) { return has_numbers_for_sizes(graph, operand); });
}

Extents result_sizes(const Contribution& part, std::size_t members) {
  Extents sizes = part.sizes;
  const auto divide = static_cast<std::int64_t>(members);
  switch (part.kind) {
    case CollectiveKind::kAllToAll:
      if (sizes.empty()) throw KernelError("the operand has no rows");
      sizes[0] = 0;
      for (std::int64_t rows : part.receives) {
        if (rows < 0) throw KernelError("a split is negative");
        sizes[0] += rows;
      }
      break;
    case CollectiveKind::kAllGather:
      if (sizes.empty()) throw KernelError("the operand has no rows");
      sizes[0] *= divide;
      break;
    case CollectiveKind::kReduceScatter:
      if (sizes.empty() || sizes[0] % divide != 0)
        throw KernelError("the rows cannot be divided among the ranks");
      sizes[0] /= divide;
      break;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
      break;
  }
  return sizes;
}

}  // namespace epweave::replay
