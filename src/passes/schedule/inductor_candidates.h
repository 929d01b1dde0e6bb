// Which collectives PyTorch's overlap scheduler may start under a node, ahead of what needs them.
//
//   compute node        0      1      2      3                 done: 0; in reach: 2 compute nodes ahead
//   needs               -      g      h      k
//   in reach            g and h; the gradients' reductions, which no compute node needs, always are
//   tried first         g, which the next compute node needs; then what is needed sooner; then what
//                       the node can hide more of
//
// Collectives are named by their position in InductorFacts::collectives.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_flight.h"
#include "passes/schedule/inductor_knobs.h"

namespace epweave {

class InductorCandidates {
 public:
  InductorCandidates(const InductorFacts& facts, std::size_t groups, const InductorKnobs& knobs);

  // Collectives that compute nodes need come into reach as compute in front of them is done. Call
  // it with each number, from 0 on.
  void set_done(std::uint32_t computes_done, const InductorFlight& flight);
  void remove(std::uint32_t collective) { active_[facts_.collectives[collective].group].erase(collective); }

  // Of all groups that have credit, but for an excluded one: the first so many in the order of
  // their waits, the most urgent first.
  std::vector<std::uint32_t> list(const InductorFlight& flight, const InductorFlight::Credit& credit,
                                  std::uint32_t excluded) const;

 private:
  struct Rank;
  Rank rank(std::uint32_t collective, double exposed, double credit) const;
  void group_by_key(std::vector<std::uint32_t>& collectives) const;

  const InductorFacts& facts_;
  const InductorKnobs& knobs_;
  std::vector<std::set<std::uint32_t>> active_;  // by group: in reach and not started
  std::vector<std::uint32_t> by_need_;           // what compute nodes need, by which needs it first
  std::size_t next_by_need_ = 0;                 // the first that is out of reach
  std::uint32_t computes_done_ = 0;
};

}  // namespace epweave
