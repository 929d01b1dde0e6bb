// A queue of nodes by rank: the highest on top, of equals the earliest node.
#pragma once

#include <algorithm>
#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

struct RankedNode {
  double rank;
  Place node;
  friend bool operator<(const RankedNode& a, const RankedNode& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.node > b.node;
  }
};

class RankedQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const RankedNode& top() const { return heap_.front(); }
  void push(RankedNode entry) {
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end());
  }
  RankedNode pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    const RankedNode entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

 private:
  std::vector<RankedNode> heap_;
};

}  // namespace epweave
