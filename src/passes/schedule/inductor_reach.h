// What needs what in a step whose collectives are hidden: the step's dependences, and those between
// a collective that is hidden as a whole and what hides it.
//
//   g = all_gather(p)   y = mm(x, x)   w = wait(g)      y hides g: leads(g, y), leads(y, w)
#pragma once

#include <cstdint>
#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_order.h"

namespace epweave {

class InductorReach {
 public:
  InductorReach(const PlaceLists& inputs, const InductorFacts& facts, const InductorOrder& order);

  // Whether `to` needs `from`; `to` is the start or the wait of a collective, or hides one.
  bool leads(Place from, Place to) const {
    const std::uint32_t column = column_[to];
    return (words_[from * width_ + column / 64] >> (column % 64) & 1) != 0;
  }

 private:
  void add_column(Place to);
  void take_over(Place before, Place after);

  std::vector<std::uint32_t> column_;  // by place
  std::vector<Place> columns_;
  std::size_t width_ = 0;
  std::vector<std::uint64_t> words_;  // of each place: which of the columns need it
};

}  // namespace epweave
