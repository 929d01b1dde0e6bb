#include "replay/collectives/collective_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace epweave::replay {
namespace {

struct CollectiveRow {
  std::string_view target;
  CollectiveKind kind;
};

constexpr CollectiveRow kCollectives[] = {
    {"_c10d_functional.all_gather_into_tensor.default", CollectiveKind::kAllGather},
    {"_c10d_functional.all_gather_into_tensor_coalesced.default", CollectiveKind::kAllGather},
    {"_c10d_functional.all_gather_into_tensor_out.default", CollectiveKind::kAllGather},
    {"_c10d_functional.all_reduce.default", CollectiveKind::kAllReduce},
    {"_c10d_functional.all_reduce_.default", CollectiveKind::kAllReduce},
    {"_c10d_functional.all_reduce_coalesced.default", CollectiveKind::kAllReduce},
    {"_c10d_functional.all_reduce_coalesced_.default", CollectiveKind::kAllReduce},
    {"_c10d_functional.all_to_all_single.default", CollectiveKind::kAllToAll},
    {"_c10d_functional.broadcast.default", CollectiveKind::kBroadcast},
    {"_c10d_functional.broadcast_.default", CollectiveKind::kBroadcast},
    {"_c10d_functional.reduce_scatter_tensor.default", CollectiveKind::kReduceScatter},
    {"_c10d_functional.reduce_scatter_tensor_coalesced.default", CollectiveKind::kReduceScatter},
    {"_c10d_functional.reduce_scatter_tensor_out.default", CollectiveKind::kReduceScatter},
    {"_c10d_functional_autograd.all_gather_into_tensor.default", CollectiveKind::kAllGather},
    {"_c10d_functional_autograd.all_to_all_single.default", CollectiveKind::kAllToAll},
    {"_c10d_functional_autograd.reduce_scatter_tensor.default", CollectiveKind::kReduceScatter},
};

}  // namespace

std::optional<CollectiveKind> find_collective(std::string_view target) {
  const auto* row = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                 [&](const CollectiveRow& r) { return r.target == target; });
  if (row == std::end(kCollectives)) return std::nullopt;
  return row->kind;
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

Contribution read_contribution(const OpInfo& op, const BoundCall& bound, const Tensor& operand,
                               std::size_t members) {
  const std::optional<CollectiveKind> kind = find_collective(op.target);
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
    part.receives = find_argument(op, bound, "output_split_sizes")->integers();
    part.sends = find_argument(op, bound, "input_split_sizes")->integers();
  }
  return part;
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
