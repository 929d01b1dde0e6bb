#include "placement/rows/row_ops.h"

#include <string_view>
#include <utility>
#include <vector>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

RowOp find_row_op(std::string_view target) {
  for (const std::string_view maker : {"aten.new_", "aten.zeros", "aten.ones", "aten.full", "aten.empty"})
    if (target.starts_with(maker)) return RowOp::kConstant;
  for (const std::string_view maker : {"aten.arange", "aten.sym_", "aten.repeat_interleave"})
    if (target.starts_with(maker)) return RowOp::kNone;
  static constexpr std::pair<std::string_view, RowOp> kOps[] = {
      {"aten.sort.stable", RowOp::kSort},
      {"aten.index.Tensor", RowOp::kIndex},
      {"aten.gather.default", RowOp::kGather},
      {"aten.index_select.default", RowOp::kGather},
      {"_c10d_functional.all_to_all_single.default", RowOp::kExchange},
      {"aten.index_put.default", RowOp::kPut},
      {"aten.index_put_.default", RowOp::kPut},
      {"torchtitan.deterministic_scatter_add.default", RowOp::kScatter},
      {"aten.scatter_add.default", RowOp::kScatterAlong},
      {"aten.scatter.value", RowOp::kScatterValue},
      {"aten.scatter_.value", RowOp::kScatterValue},
      {"aten.mm.default", RowOp::kProduct},
      {"aten.bmm.default", RowOp::kProduct},
      {"aten._grouped_mm.default", RowOp::kProduct},
      {"aten.reshape.default", RowOp::kReshape},
      {"aten.view.default", RowOp::kReshape},
      {"aten._unsafe_view.default", RowOp::kReshape},
  };
  for (const auto& [name, op] : kOps)
    if (name == target) return op;
  return RowOp::kRowWise;
}

}  // namespace

RowOp row_op_of(const Node& node) {
  static const std::vector<RowOp> kTable = [] {
    std::vector<RowOp> table;
    for (const OpInfo& op : ops()) table.push_back(find_row_op(op.target));
    return table;
  }();
  return node.op == nullptr ? RowOp::kRowWise : kTable[node.op->index];
}

bool sorts_upwards(const Context& context, const Node& sort) {
  const auto param = sort.op->find_param("descending");
  const Arg descending = param ? arg_of(context, sort, *param) : Arg::none();
  return descending.is_none() || (descending.is(ArgKind::kBool) && !descending.as_bool());
}

}  // namespace epweave
