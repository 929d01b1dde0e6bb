// Live bytes if the rest of a body executes in the order that it has.
//
// A scheduler runs some nodes ahead of their place. Whatever it did, what is left can be executed
// in the body's own order, and the forecast says how many bytes live at each place if it is. As
// long as no place exceeds the budget, there is a way on within the budget: the first node that is
// left.
//
//   add(from, to, bytes)    a result made early lives from now to its place; an operand read early dies early
//
// O(log places) each.
#pragma once

#include <cstdint>
#include <vector>

namespace epweave {

class MemoryForecast {
 public:
  explicit MemoryForecast(const std::vector<std::int64_t>& live);

  void add(std::size_t from, std::size_t to, std::int64_t bytes);  // places from <= p < to
  std::int64_t most(std::size_t from, std::size_t to) const;       // over from <= p < to; very low if none

  std::int64_t most() const { return most_[1]; }

 private:
  bool update(std::size_t i);  // what its children say; whether that is new
  void add_in_block(std::size_t from, std::size_t to, std::int64_t bytes);
  std::int64_t most_in_block(std::size_t from, std::size_t to) const;  // without what was added to the block

  std::size_t blocks_ = 1;
  std::vector<std::int64_t> values_;  // by place, without what was added to whole blocks
  std::vector<std::int64_t> most_;    // of the subtree, with what was added to it as a whole
  std::vector<std::int64_t> added_;   // to the subtree as a whole
};

}  // namespace epweave
