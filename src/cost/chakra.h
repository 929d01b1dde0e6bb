// A step as Chakra execution traces (MLCommons), one for each rank, priced by the cost model: what
// ASTRA-sim replays.
//
//   %y = mm(%x, %w)                     a compute node, as long as its price, behind the one before it on the stream
//   %e = all_to_all_single(%y, .., "ep")  a CPU node, the fixed part of its price; then a collective: kind, bytes, group,
//                                       behind all compute launched before it and the one before it in its group
//   %v = wait_tensor(%e)                no node: the next compute node is behind the collective, too
//
// Views, allocations and numbers of the host have no node. A time in whole microseconds carries its
// rounding along the stream; `num_ops` has it in picoseconds, for a system with roofline-enabled=1
// and peak-perf=1.
//
// All ranks run one program, so that traces differ by the groups' numbers only. Members on other
// ranks follow from the group table (analysis/world.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/step_model.h"

namespace epweave {

class ChakraTraces {
 public:
  // Throws PassError: chakra.collective (a kind that the format does not have), chakra.group
  // (members of another rank are not known). What has no price is refused before (require_prices).
  ChakraTraces(const Graph& graph, const StepModel& model);

  std::uint32_t ranks() const { return ranks_; }
  std::size_t nodes() const { return program_.size(); }     // of each rank
  std::size_t collectives() const { return collectives_; }  // of each rank
  std::size_t groups() const { return members_.size(); }    // of all ranks
  std::string trace(std::uint32_t rank) const;              // a .et file
  std::string groups_file() const;                          // JSON: {"1": [0, 1, ..], ..}

 private:
  struct Step {
    std::string bytes;          // but for the group
    std::uint32_t group = ~0U;  // of a collective: position among the model's groups
  };

  void number_groups(const Graph& graph, const StepModel& model);
  void add_compute(const Graph& graph, const StepModel& model, Place place);
  void add_launch(const Graph& graph, const StepModel& model, Place place);
  std::string name_of(const Graph& graph, const StepModel& model, Place place) const;

  std::uint32_t ranks_ = 1;
  std::vector<std::vector<std::uint32_t>> number_of_;  // by group and rank
  std::vector<std::vector<std::uint32_t>> members_;    // by number - 1
  std::vector<Step> program_;
  std::size_t collectives_ = 0;

  // While the program is written:
  std::vector<std::uint64_t> stream_;                 // what the next compute node is behind
  std::vector<std::uint64_t> last_in_group_;          // 0: none
  std::vector<std::uint64_t> id_of_;                  // by place; 0: no node
  std::uint64_t picoseconds_ = 0, microseconds_ = 0;  // of compute nodes so far
};

}  // namespace epweave
