// The optimum of 1 | r_j, q_j, preemption | max(C_j + q_j).
#pragma once

#include <span>
#include <vector>

namespace epweave {

struct MachineJob {
  double head = 0, seconds = 0, tail = 0;
};

using MachineHeap = std::vector<std::pair<double, double>>;  // room for a run

// Jackson's rule: at any time runs the released job with the longest tail. The larger of the
// optimum and `known`. Sorts the jobs by head.
double one_machine_bound(std::span<MachineJob> jobs, MachineHeap& heap, double known = 0);

}  // namespace epweave
