// How much memory PyTorch's overlap scheduler lets collectives that are started ahead of need take.
//
//   the step as given   live behind compute node 0, 1, 2 ..    5, 7, 6 ..      peak 8
//   started ahead       bytes that 0, 1, 2 .. still wait for   0, 2, 2 ..
//   limits              of what is live: the given peak and an increase; of what is started ahead,
//                       and of what is in flight: max_in_flight_bytes
//
// Compute nodes are counted from 0; all sizes are bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_knobs.h"
#include "passes/schedule/inductor_memory.h"

namespace epweave {

class InductorBudget {
 public:
  // `memory`: of the step, in which nothing is placed.
  InductorBudget(InductorMemory memory, const InductorFacts& facts, const InductorKnobs& knobs);

  std::int64_t given_peak() const { return given_peak_; }
  bool is_exceeded(std::int64_t live) const { return limit_ && live > *limit_; }
  // Whether starting it behind `computes_done` compute nodes, with `live` bytes, breaks a limit,
  // now or in front of what needs it.
  bool would_exceed(const InductorCollective& collective, std::uint32_t computes_done,
                    std::int64_t live) const;
  // It is started there.
  void add(const InductorCollective& collective, std::uint32_t computes_done);

 private:
  const InductorFacts& facts_;
  const std::int64_t max_ahead_;
  std::vector<std::int64_t> given_live_;  // by compute node: the most behind the compute node before it
  std::vector<std::int64_t> ahead_;  // by compute node: bytes started ahead that something behind it needs
  std::int64_t given_peak_ = 0;
  std::optional<std::int64_t> limit_;  // of what is live
};

}  // namespace epweave
