// Which items to keep so that they weigh no more than a capacity and are worth most.
//
// PyTorch's dp_knapsack, number for number: weights in steps of 1/10,000, and worth in single
// precision, so that what adds nothing to a large sum is left out, however little it weighs.
#pragma once

#include <cstdint>
#include <vector>

namespace epweave {

struct KnapsackItem {
  double weight = 0;  // as a share, as the capacity is
  std::int64_t worth = 0;
};

// By item.
std::vector<std::uint8_t> fill_knapsack(const std::vector<KnapsackItem>& items, double capacity);

}  // namespace epweave
