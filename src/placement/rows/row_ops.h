// What ops do with rows, as far as frames (placement/rows/frames.h) are concerned: by the order of
// rows that their families have (ops/family.h), and where operands stand (ops/indexed_dims.h).
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace epweave {

enum class RowOp : std::uint8_t {
  kRowWise,   // row i of the result belongs to row i of the operands
  kConstant,  // all rows of the result are equal
  kNone,      // has no rows of operands: counts, reads a size
  kSort,
  kPick,       // rows of the first operand, at positions
  kExchange,   // all-to-all
  kPut,        // rows written to positions of the first operand
  kPutNumber,  // one number, so
  kProduct,    // may sum over rows
  kReshape,
};

// Of a node. Row-wise is also what placement has found to leave the rows alone, along another
// dimension or in parts.
RowOp row_op_of(const Node& node);

}  // namespace epweave
