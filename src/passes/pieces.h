// Pieces of a value along one dimension, however the graph takes them:
//
//   %s = split(%x, 4, 1); %b = getitem(%s, 1)        %b = slice(%x, 1, 4, 8)
//
// Both are [4, 8) of dimension 1 of %x.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct TakenPiece {
  NodeId of;
  std::int64_t dim = 0, start = 0, end = 0;  // counted from the front

  std::int64_t size() const { return end - start; }
  friend auto operator<=>(const TakenPiece&, const TakenPiece&) = default;
};

// Takes time in the pieces of a split once, not for each of its elements.
class PieceFinder {
 public:
  explicit PieceFinder(const Context& context) : context_(context) {}

  // None of nodes that take no piece, and where a bound is no number. Of slices: views without
  // gaps.
  std::optional<TakenPiece> find(const Body& body, const Node& node);

  // Which of the split's elements is the piece.
  std::optional<std::int64_t> find_index(const Node& split, const TakenPiece& piece);

  // How many pieces a split makes, of whose elements the node is one, where all are of one size.
  std::optional<std::int64_t> count_even(const Body& body, const Node& element);

 private:
  // Where each piece begins, and the last ends, as far as extents are numbers.
  struct Pieces {
    std::vector<std::int64_t> bounds{0};
    bool are_even = true;
  };
  const Pieces& read_split(const Node& split, std::int64_t& dim);
  std::optional<TakenPiece> find_element(const Body& body, const Node& node);

  const Context& context_;
  std::map<std::pair<TypeId, std::int64_t>, Pieces> pieces_;  // by a split's type and dimension
};

}  // namespace epweave
