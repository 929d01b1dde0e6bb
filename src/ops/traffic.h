// What a kernel moves through memory, by what its op does with its operands: what a price asks of a
// row.
//
//   y = gather(x, dim, index)       reads as many rows of x as it writes
//   x = index_put_(x, index, v)     writes as many rows of x as v has
//   y = zeros_like(x)               writes y and reads nothing
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

enum class Traffic : std::uint8_t {
  kEach,       // each operand and each result once
  kAllocates,  // nothing: elements are left as they are
  kFills,      // each result
  kTakesRows,  // of the first operand what the result has; the others once
  kPutsRows,   // into the first operand what the others have
  kSorts,      // passes over operands and results
  kSlot,       // each operand, and as many elements of the result: the rest of it is not touched
};

// Of a call on the device; views and what the host does move nothing whatever this says.
Traffic traffic_of(const OpInfo& op);

// Whether nobody has written the elements of its result: empty_like.
inline bool leaves_unset(const OpInfo& op) {
  return traffic_of(op) == Traffic::kAllocates;
}
inline bool leaves_unset(const Node& node) {
  return node.op != nullptr && leaves_unset(*node.op);
}
// Or some of them: a buffer for the ranks of a group, of which a rank writes its slot.
inline bool leaves_some_unset(const OpInfo& op) {
  return leaves_unset(op) || traffic_of(op) == Traffic::kSlot;
}
inline bool leaves_some_unset(const Node& node) {
  return node.op != nullptr && leaves_some_unset(*node.op);
}

}  // namespace epweave
