// Which numbers of a call say how large a tensor is, by their place among its arguments: only of those has a part
// its share.
//
//   %y = reshape(%x, [u, 3])         part: reshape(%x_0, [h, 3]), for item 0 is extent 0 of the result
//   %y = slice(%x, 0, 0, u)          part: slice(%x_0, 0, 0, h), for u is all of dimension 0 of %x
//   %y = select(%x, 1, 4)            part: select(%x_0, 1, 4), for 4 is the extent of nothing
//
// A place is known by the parameter of the schema, the extent by the recorded types of the call, so that nothing
// is an extent because it happens to be as large as one.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// Where a number stands: item `item` of the list that a parameter is, or the parameter itself.
struct NumberPlace {
  std::size_t param = 0;
  std::optional<std::size_t> item;
};

// What the number at a place of a call must be to say how large a tensor is. None: it says that of no tensor, or no
// size is recorded. `node` is a call of `body`, perhaps with other arguments than it has there.
ExprId find_counted_extent(Context& context, const Body& body, const Node& node, const NumberPlace& place);

}  // namespace epweave
