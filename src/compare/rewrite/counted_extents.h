// Which numbers of a call say how large a tensor is, by their place among its arguments: only of
// those has a part its share.
//
//   %y = reshape(%x, [u, 3])         part: reshape(%x_0, [h, 3]), for item 0 is extent 0 of the result
//   %y = slice(%x, 0, 0, u)          part: slice(%x_0, 0, 0, h), for u is all of dimension 0 of %x
//   %y = select(%x, 1, 4)            part: select(%x_0, 1, 4), for 4 is the extent of nothing
//
// A place is known by the parameter of the schema, the extent by the recorded types of the call, so
// that nothing is an extent because it happens to be as large as one.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "ir/graph.h"

namespace epweave {

// Where a number stands: item `item` of the list that a parameter is, or the parameter itself.
struct NumberPlace {
  std::size_t param = 0;
  std::optional<std::size_t> item;
};

class CountedExtents {
 public:
  // `normalize`: as what the body's graph says of symbols has it (Facts::normalize).
  using Normalize = std::function<PolyId(PolyId)>;
  CountedExtents(Context& context, const Body& body, Normalize normalize)
      : context_(context), body_(body), normalize_(std::move(normalize)) {}

  // What the number at a place of a call must be to say how large a tensor is. None: it says that
  // of no tensor, or no size is recorded. `node` is a call of the body, perhaps with other
  // arguments than it has there.
  ExprId find(const Node& node, const NumberPlace& place);

 private:
  friend class CountedExtent;
  // Of a table of rows for each rank: how many rows are left when all took theirs.
  struct Table {
    Arg items;
    ExprId rows;
    PolyId left;
  };

  Context& context_;
  const Body& body_;
  Normalize normalize_;
  Table table_;  // that was asked for last: each of its entries is
};

}  // namespace epweave
