// FlexAttention's block tables, derived from the mask function.
//
// The function is evaluated on all pairs of a query and a key. A block of pairs is full if all are
// allowed, partial if some are. For each row of blocks `kv_num_blocks` counts the partial ones and
// `kv_indices` lists all columns, the partial ones first, each in ascending order; `full_*` the
// same for full blocks; `q_*` the same for columns. This is what torch's create_block_mask makes.
// Where a call takes no `full_*`, the others list full blocks, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "replay/values/value.h"

namespace epweave::replay {

struct BlockShape {
  std::int64_t batches = 1, heads = 1, rows = 0, columns = 0, block_rows = 1, block_columns = 1;
  bool operator==(const BlockShape&) const = default;
  std::int64_t row_blocks() const { return (rows + block_rows - 1) / block_rows; }
  std::int64_t column_blocks() const { return (columns + block_columns - 1) / block_columns; }
};

struct BlockTable {
  bool is_full = false;     // of full blocks, else of partial ones
  bool by_column = false;   // q_*: a list of row blocks per column block
  bool is_indices = false;  // else counts
  bool is_only = false;     // there is no table of full blocks: this one lists them, too
};

// "full_kv_num_blocks" and the like, or none.
std::optional<BlockTable> find_block_table(std::string_view field);

// Where a FlexAttention call takes the table from this input.
struct BlockMaskUse {
  NodeId call;
  StringId mask;  // the nested graph
  Arg rows, columns, block_rows, block_columns;
  Arg captured;  // tuple of what the mask function captures
  bool has_full_tables = false;
};
BlockMaskUse find_block_mask_use(const Graph& graph, NodeId input);

// Whether each pair is allowed: [batch, head, row, column] in row-major order.
std::vector<bool> evaluate_pairs(const Function& mask, const BlockShape& shape,
                                 std::span<const Value> captured, Memory& memory);

// Writes one table into a row-major tensor. Throws InputError if it does not have the table's size.
void write_block_table(BlockTable table, const BlockShape& shape, const std::vector<bool>& pairs,
                       const Tensor& to);

}  // namespace epweave::replay
