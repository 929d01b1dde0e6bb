// How much all ranks hold at one time. They do not run in step, but a collective of all of them
// bounds how far one is ahead of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/effects.h"
#include "ir/graph.h"
#include "replay/steps/steps.h"

namespace epweave::replay {

class RanksTogether {
 public:
  RanksTogether(const Graph& graph, const Effects& effects);

  // Each step in order, with what the rank holds behind it.
  void note(const Step& step, std::uint64_t held);
  // Of all ranks; at least `own`, what one holds.
  std::uint64_t find(std::uint64_t own) const;

 private:
  // From the launch of a collective of all ranks to the wait for it, in steps.
  struct Window {
    std::size_t launch = 0, wait = 0;
  };
  bool is_of_all(const Node& node) const;

  const Graph& graph_;
  const Effects& effects_;
  std::uint32_t ranks_;
  std::vector<std::uint64_t> held_;    // behind each step
  std::vector<std::size_t> launched_;  // by a collective's storage: the step; 0: not launched
  std::vector<Window> windows_;
};

}  // namespace epweave::replay
