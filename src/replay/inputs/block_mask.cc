#include "replay/inputs/block_mask.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

// Positions in the block-mask tuple of a FlexAttention call.
constexpr std::size_t kMaskRows = 0, kMaskColumns = 1, kFirstTable = 2, kFullTable = 4, kLastTable = 9;

Tensor make_range(Memory& memory, std::size_t dim, std::int64_t count) {
  Extents sizes(4, 1);
  sizes[dim] = count;
  Tensor range = make_tensor(memory, DType::kInt32, sizes);
  for (std::int64_t i = 0; i < count; ++i) store_integer(range, i, i);
  return range;
}

enum class BlockState : std::uint8_t { kEmpty, kPartial, kFull };

BlockState find_state(const BlockShape& shape, const std::vector<bool>& pairs, std::int64_t plane,
                      std::int64_t row_block, std::int64_t column_block) {
  const std::int64_t row_end = std::min(shape.rows, (row_block + 1) * shape.block_rows);
  const std::int64_t column_end = std::min(shape.columns, (column_block + 1) * shape.block_columns);
  std::int64_t allowed = 0;
  for (std::int64_t row = row_block * shape.block_rows; row < row_end; ++row)
    for (std::int64_t column = column_block * shape.block_columns; column < column_end; ++column)
      allowed += pairs[static_cast<std::size_t>((plane * shape.rows + row) * shape.columns + column)] ? 1 : 0;
  if (allowed == 0) return BlockState::kEmpty;
  // Pairs beyond the end do not exist; torch counts them as forbidden.
  return allowed == shape.block_rows * shape.block_columns ? BlockState::kFull : BlockState::kPartial;
}

}  // namespace

std::optional<BlockTable> find_block_table(std::string_view field) {
  BlockTable table;
  if (field.starts_with("full_")) {
    table.is_full = true;
    field.remove_prefix(5);
  }
  if (field.starts_with("kv_")) {
    field.remove_prefix(3);
  } else if (field.starts_with("q_")) {
    table.by_column = true;
    field.remove_prefix(2);
  } else {
    return std::nullopt;
  }
  table.is_indices = field == "indices";
  return table.is_indices || field == "num_blocks" ? std::optional(table) : std::nullopt;
}

BlockMaskUse find_block_mask_use(const Graph& graph, NodeId input) {
  const Context& context = *graph.context;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.op == nullptr || node.op->target != "higher_order.flex_attention") continue;
    const auto args = context.args[node.args];
    if (args.size() < 9 || !args[4].is_list() || !args[8].is_list()) continue;
    const auto mask = context.args.children(args[4]);
    if (mask.size() <= kLastTable + 3 || !mask.back().is_node()) continue;
    for (std::size_t i = kFirstTable; i <= kLastTable; ++i) {
      if (!mask[i].is_node() || mask[i].as_node() != input) continue;
      const Arg function = graph.step().nodes[mask.back().as_node()].attr;
      if (!function.is(ArgKind::kGraph)) continue;
      return {id,
              function.as_name(),
              mask[kMaskRows],
              mask[kMaskColumns],
              mask[mask.size() - 3],
              mask[mask.size() - 2],
              args[8],
              mask[kFullTable].is_node()};
    }
  }
  return {};
}

std::vector<bool> evaluate_pairs(const Function& mask, const BlockShape& shape,
                                 std::span<const Value> captured, Memory& memory) {
  std::vector<Value> args{make_range(memory, 0, shape.batches), make_range(memory, 1, shape.heads),
                          make_range(memory, 2, shape.rows), make_range(memory, 3, shape.columns)};
  args.insert(args.end(), captured.begin(), captured.end());
  const Value value = mask.call(args);
  const Value& result = value.is<List>() ? value.items().at(0) : value;
  const Tensor& allowed = result.tensor();
  const Extents sizes{shape.batches, shape.heads, shape.rows, shape.columns};
  if (allowed.dtype != DType::kBool || allowed.rank() > sizes.size())
    throw InputError(fmt::format("mask function {} does not give a bool per pair", mask.name));
  Extents strides(sizes.size(), 0);
  for (std::size_t d = 0; d < allowed.rank(); ++d) {
    const std::size_t at = sizes.size() - allowed.rank() + d;
    if (allowed.sizes[d] != sizes[at] && allowed.sizes[d] != 1)
      throw InputError(fmt::format("mask function {} gives another shape than its pairs", mask.name));
    strides[at] = allowed.sizes[d] == 1 ? 0 : allowed.strides[d];
  }
  std::vector<std::byte> dense(static_cast<std::size_t>(count_elements(sizes)));
  gather_elements(allowed.view(sizes, strides, allowed.offset), dense.data());
  std::vector<bool> pairs(dense.size());
  for (std::size_t i = 0; i < dense.size(); ++i) pairs[i] = dense[i] != std::byte{0};
  return pairs;
}

void write_block_table(BlockTable table, const BlockShape& shape, const std::vector<bool>& pairs,
                       const Tensor& to) {
  const std::int64_t outer = table.by_column ? shape.column_blocks() : shape.row_blocks();
  const std::int64_t inner = table.by_column ? shape.row_blocks() : shape.column_blocks();
  const std::int64_t planes = shape.batches * shape.heads;
  if (to.numel() != planes * outer * (table.is_indices ? inner : 1))
    throw InputError("a block table of the graph does not have the size of its mask");
  const BlockState wanted = table.is_full ? BlockState::kFull : BlockState::kPartial;
  std::int64_t next = 0;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (std::int64_t i = 0; i < outer; ++i) {
      std::vector<std::int64_t> first, rest;
      for (std::int64_t j = 0; j < inner; ++j) {
        const BlockState state =
            table.by_column ? find_state(shape, pairs, plane, j, i) : find_state(shape, pairs, plane, i, j);
        const bool is_listed = state == wanted || (table.is_only && state == BlockState::kFull);
        (is_listed ? first : rest).push_back(j);
      }
      if (!table.is_indices) {
        store_integer(to, next++, static_cast<std::int64_t>(first.size()));
        continue;
      }
      first.insert(first.end(), rest.begin(), rest.end());
      for (std::int64_t j : first) store_integer(to, next++, j);
    }
  }
}

}  // namespace epweave::replay
