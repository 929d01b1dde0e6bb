// The collectives of a step on their way, as PyTorch's overlap scheduler accounts for them: what is
// in flight, and how much of each collective's time nothing hides yet.
//
//   start(g)         g: in flight, exposed for its 3 ms
//   hide(y, 2 ms)    y runs under it: exposed for 1 ms
//   land(g)          g is waited for
//
// A group executes its collectives one after the other: who waits for one waits for all in front
// of it. Collectives are named by their position in InductorFacts::collectives; times are in
// milliseconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "passes/schedule/inductor_facts.h"

namespace epweave {

class InductorFlight {
 public:
  using Credit = std::vector<double>;  // by group: milliseconds that can still hide

  struct State {
    double exposed = 0;
    std::vector<Place> hidden_by;  // perhaps more than once
    bool is_started = false, is_in_flight = false, is_being_waited = false;
  };

  // With `discounts_latency` a collective beside one in flight that might share its bucket costs no
  // latency.
  InductorFlight(const InductorFacts& facts, std::size_t groups, bool discounts_latency);

  const State& operator[](std::uint32_t collective) const { return states_[collective]; }
  std::size_t size() const { return states_.size(); }
  std::int64_t bytes() const { return bytes_; }  // of all in flight
  std::optional<std::uint32_t> find_oldest() const;
  std::vector<std::uint32_t> list_in_front_of(std::uint32_t collective) const;  // on its group

  void start(std::uint32_t collective);
  void begin_wait(std::uint32_t collective) { states_[collective].is_being_waited = true; }
  void end_wait(std::uint32_t collective) { states_[collective].is_being_waited = false; }
  void land(std::uint32_t collective);

  // Each group has all of `ms` to hide what it has in flight. Returns what is left of it; an
  // excluded group, and one that has no collectives, has none.
  Credit hide(Place node, double ms, std::uint32_t excluded);
  // So much of one collective's, out of its group's credit.
  void hide_one(std::uint32_t collective, Place node, Credit& credit);

  // Whether nodes other than this one hide all of it.
  bool is_hidden(std::uint32_t collective, Place node) const;
  // Whether a wait for it would, for it or one in front of it, happen inside a wait that is being
  // handled.
  bool would_wait_twice(std::uint32_t collective) const;

 private:
  const InductorFacts& facts_;
  const bool discounts_latency_;
  std::vector<State> states_;
  std::vector<bool> has_collective_;      // by group
  std::vector<std::uint32_t> in_flight_;  // and what was in flight, in the order of their launches
  std::size_t first_in_flight_ = 0;       // the oldest in flight
  std::vector<std::vector<std::uint32_t>> of_group_;  // in flight, by group
  std::vector<std::uint32_t> exposed_;                // in flight, and some that are not any more
  std::map<std::uint32_t, std::uint32_t> of_bucket_;  // how many are in flight
  std::int64_t bytes_ = 0;
};

}  // namespace epweave
