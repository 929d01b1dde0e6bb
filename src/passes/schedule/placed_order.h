// The order that a list scheduler writes, and what it leaves of memory: the bytes that are live
// behind the last node, and a forecast of those at the places of the body that are left.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "passes/schedule/memory_forecast.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

class PlacedOrder {
 public:
  // `live`: bytes at each place of the body, in its own order.
  PlacedOrder(const ScheduleProblem& problem, const std::vector<std::int64_t>& live, std::int64_t budget);

  std::size_t size() const { return order_.size(); }
  bool has(Place node) const { return is_placed_[node] != 0; }
  const std::vector<char>& flags() const { return is_placed_; }
  std::int64_t peak() const { return peak_; }

  // An input of the step, whose bytes are live from the start.
  void begin_with(Place node);
  // Places the node behind the views and allocations that it needs, unless it is placed.
  void need(Place node);
  // The first kernel, launch or wait that is left: places before it are past.
  std::size_t find_frontier();
  // Whether the node, placed next, leaves the live bytes and the forecast within the budget.
  bool fits(Place node);

  std::vector<Place> take_order() { return std::move(order_); }

 private:
  void place(Place node);
  void account(Place node);
  void shorten(std::uint32_t s, std::size_t frontier);
  void collect_new(Place node, std::vector<Place>& makers) const;
  bool fits_with_what_dies(Place node, std::size_t frontier, std::size_t latest, std::int64_t made);

  struct Freed {
    std::size_t from, to;
    std::int64_t bytes;
  };

  const ScheduleProblem& p_;
  const std::int64_t budget_;
  std::vector<char> is_placed_;
  std::vector<Place> order_;
  std::size_t frontier_ = 0;
  std::vector<std::int64_t> made_;  // by node: bytes of storages that it makes
  std::vector<std::uint32_t> end_;  // of a storage's touchers, in order: one behind the last that is left
  std::int64_t live_, peak_;
  MemoryForecast forecast_;
  std::vector<Place> stack_, makers_;
  std::vector<Freed> freed_;
};

}  // namespace epweave
