// What random steps must reach: an operation for each way to divide one (family, linearity, writes
// in place), every placement and way to take an argument, every refusal of chunk, of memory
// policies and of partitions, every kind of phase, every reason for a tag; or why a step cannot
// reach it.
//
//   check_random_graphs --count 2000 --coverage            counts, and what was not reached
//   check_random_graphs --count 2000 --require-coverage    fails if something listed was not reached
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "passes/chunk/chunk_plan.h"

namespace epweave {

struct Listed {
  std::string name;
  std::string why_not;  // not reached by random steps, and what else covers it; empty: must be reached
  std::string rule =
      {};  // of an operation: what decides how it is divided; another one with the same serves as well
};

// The full lists. Operations: those with a placement rule.
std::vector<Listed> listed_operations();
std::vector<Listed> listed_placements();
std::vector<Listed> listed_refusals();
std::vector<Listed> listed_phases();
std::vector<Listed> listed_tags();

class Coverage {
 public:
  // Divided operands of a region: counts each operation, placement and access of the plan.
  void count_plan(const Graph& graph, const ChunkPlan& plan);
  // What a schedule did, by the reasons on its nodes.
  void count_schedule(const Graph& scheduled);
  // Tags that memory-policy wrote, by their reasons.
  void count_tags(const Graph& tagged);
  void count_refusal(std::string_view id) { ++refusals_[std::string(id)]; }

  // A section for each list: how often, then what was not reached and why.
  std::string print() const;
  // What must be reached and was not.
  std::vector<std::string> missing() const;
  std::size_t refused() const;
  std::size_t operations() const { return operations_.size(); }

 private:
  using Counts = std::map<std::string, std::size_t>;
  Counts operations_, placements_, refusals_, phases_, tags_;
};

}  // namespace epweave
