// Following a divided dimension through a reshape.
//
//   [u, 3]    -> [3*u]        Split(0)                        Split(0)
//   [4, s, 8] -> [4*s, 8]     Split(1)                        Split(0) in 4 blocks
//   [12*s]    -> [4, s, 3]    Split(0) in 4 blocks            Split(1)
//   [u]       -> [8, u//8]    the divided extent is broken    refused
#pragma once

#include <optional>

#include "placement/placement.h"

namespace epweave {

enum class ReshapeRefusal {
  kNone,
  kInnerFactor,   // rows in an order of their part's own are merged behind another dimension
  kBrokenExtent,  // the divided extent is spread over a dimension of fixed size
  kNotFollowed,   // the extents before and after have no groups of equal products
};

struct Followed {
  std::optional<Placement> placement;
  ReshapeRefusal refusal = ReshapeRefusal::kNone;
};

// Where the rows of `source`, placed `p`, are in `target`, a reshape of it; or why they are
// nowhere.
Followed follow_reshape(Facts& facts, const TensorType& source, const TensorType& target, const Placement& p);

}  // namespace epweave
