// FlexAttention's block tables for a part of the queries, or of queries and keys.
//
// A pair of tables lists for each row of blocks the columns that it sees: `counts` [B, H, rows]
// says how many of a row of `indices` [B, H, rows, columns] are columns, the rest is padding. A
// part keeps some rows and some columns:
//
//   rows [4, 8)       slice(counts, 2, 4, 8)                slice(indices, 2, 4, 8)
//   columns [4, 8)    row [1, 6, 7 | 0, 2, ..] of count 3   becomes [2, 3 | 3, 3], count 2
//
// The columns of a row keep their order only if it is ascending, as torch makes them; it decides
// nothing but the order of a sum.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "passes/chunk/chunk_writer.h"

namespace epweave {

// Blocks [begin, end).
struct BlockRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  friend auto operator<=>(const BlockRange&, const BlockRange&) = default;
};

class PartBlockTables {
 public:
  PartBlockTables(Graph& chunked, ChunkWriter& writer) : context_(*chunked.context), writer_(writer) {}

  struct Tables {
    NodeId counts, indices;
    friend auto operator<=>(const Tables&, const Tables&) = default;
  };
  // The blocks that a part keeps; none: all.
  struct Kept {
    std::optional<BlockRange> rows, columns;
    friend auto operator<=>(const Kept&, const Kept&) = default;
  };
  // For whom the nodes are made.
  struct TableUse {
    NodeId counts_origin, indices_origin;
    RegionId region;
    std::size_t part = 0;
  };
  // Made once for all calls that want the same.
  Tables keep(Tables whole, const Kept& kept, const TableUse& place);

 private:
  NodeId keep_rows(NodeId table, BlockRange rows, NodeId origin);
  Tables keep_columns(Tables tables, BlockRange columns);
  NodeId call(std::string_view what, std::string_view target, std::vector<Arg> args, ArgRange kwargs = {});
  ArgRange keyword(std::string_view name, Arg value) const;

  Context& context_;
  ChunkWriter& writer_;
  std::map<std::pair<Tables, Kept>, Tables> made_;
  TableUse place_;
  NodeId origin_;
};

}  // namespace epweave
