// Rows of a joined value that lie in one part are taken from that part, so that they need not wait
// for the others.
//
//   %x = cat([%x_0, %x_1], 0)                       %s0 = split_with_sizes(%x_0, [%n, %n], 0)
//   %s = split_with_sizes(%x, [%n, %n, %n, %n], 0)  %s1 = split_with_sizes(%x_1, [%n, %n], 0)
//   %p = getitem(%s, 2)                             %p = getitem(%s1, 0)
//
// A loss that is computed in chunks of its tokens, as torchtitan's is, then begins with the first
// part, while the exchanges of the last part's last layer still run.
//
// Pieces of a split that together are one part are a split of that part. Slices take a part where
// their numbers need no new arithmetic: of the first part, to a part's end, or literals. Nothing
// changes
//
//   where the facts do not say in which part rows lie, or a slice is all of one
//   where what takes them is itself part of a divided module
//   where the join, the part or the rows are written, or the step returns the rows
//   where the join has another dtype or other strides than the part
//   where a view addresses the join's storage (as_strided)
//
// Numerics: reorder. The join stays if something else takes it.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassResult bypass_joins(const Graph& graph);

}  // namespace epweave
