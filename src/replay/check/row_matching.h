// Rows of a whole against rows that parts have in orders of their own (those of the tokens of each
// expert).
//
//   whole   [[0, 1], [4, 4], [2, 2]]        parts   [[4.1, 4]], [[2, 2], [0, 1]]        bounds 0.2: within
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "replay/check/bound_comparison.h"

namespace epweave::replay {

// A place for each of some rows, another one for each, grown by a row at a time along the shortest
// chain of rows that give way to each other (Kuhn).
class Matching {
 public:
  // Calls visit(place) for the places that a row may take, the best first, until it says true.
  using Visit = std::function<bool(std::size_t place)>;
  using TryPlaces = std::function<void(std::size_t row, const Visit& visit)>;
  Matching(std::size_t rows, TryPlaces try_places);

  // A row takes a free place that it may take.
  void put(std::size_t row, std::size_t place);
  // Whether the row, and all that have a place, can have one each. If so, they have.
  bool add(std::size_t row);
  bool is_free(std::size_t place) const { return owner_[place] == kNone; }
  std::size_t place_of(std::size_t row) const { return place_of_[row]; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  void give_way(std::size_t row, std::size_t free);

  TryPlaces try_places_;
  std::vector<std::size_t> place_of_;      // of a row
  std::vector<std::size_t> owner_;         // of a place: the row that has it
  std::vector<std::size_t> reached_from_;  // of a place, in add(): the row that tried it
};

// Within where each row of the parts, along dimension `dim`, is within the bounds of a row of the
// whole, another for each: such a matching is found if there is one. There are as many rows in all
// parts as in the whole.
BoundComparison match_rows(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                           std::size_t dim);

}  // namespace epweave::replay
