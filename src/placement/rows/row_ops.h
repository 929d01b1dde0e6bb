// What ops do with rows, as far as frames (placement/rows/frames.h) are concerned, by their
// families.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace epweave {

enum class RowOp : std::uint8_t {
  kRowWise,   // row i of the result belongs to row i of the operands
  kConstant,  // all rows of the result are equal
  kNone,      // has no rows of operands: counts, reads a size
  kSort,
  kIndex,         // x[i], the index in a list
  kGather,        // x[i], the index the argument behind the dimension
  kExchange,      // all-to-all
  kPut,           // rows written to positions: self, [positions], rows
  kScatter,       // self, positions, rows
  kScatterAlong,  // self, dimension, positions, rows
  kScatterValue,  // self, dimension, positions: one number written
  kProduct,       // may sum over rows
  kReshape,
};

// Of a node. Row-wise is also what placement has found to leave the rows alone, along another
// dimension or in parts.
RowOp row_op_of(const Node& node);

}  // namespace epweave
