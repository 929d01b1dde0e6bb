// Pieces of a value along one dimension, however the graph takes them:
//
//   %s = split(%x, 4, 1); %b = getitem(%s, 1)        %b = slice(%x, 1, 4, 8)
//
// Both are [4, 8) of dimension 1 of %x.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace epweave {

struct TakenPiece {
  NodeId of;
  std::int64_t dim = 0, start = 0, end = 0;  // counted from the front

  std::int64_t size() const { return end - start; }
  friend auto operator<=>(const TakenPiece&, const TakenPiece&) = default;
};

// How many pieces a split makes, of whose elements the node is one, where all are of one size.
std::optional<std::int64_t> count_even_pieces(const Context& context, const Body& body, const Node& element);

// None of nodes that take no piece, and where a bound is no number. Of slices: views without gaps.
std::optional<TakenPiece> find_piece(const Context& context, const Body& body, const Node& node);

}  // namespace epweave
