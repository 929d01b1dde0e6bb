#include "passes/schedule/critical_blocks.h"

#include <algorithm>

namespace epweave {
namespace {

// The clock of the execution model (order_value.cc), with what each node started behind.
class CausedClock {
 public:
  explicit CausedClock(const ScheduleProblem& problem)
      : p_(problem),
        done_(problem.size()),
        last_of_group_(problem.groups, kNoPlace),
        cause_(problem.size(), kNoPlace),
        made_by_(problem.size(), kNoPlace) {}

  std::vector<Place> run(std::span<const Place> order) {
    for (Place node : order) run(node);
    Place last = compute_;
    for (Place launch : last_of_group_)
      if (end_of(launch) > end_of(last)) last = launch;
    std::vector<Place> path;
    for (Place node = last; node != kNoPlace; node = cause_[node]) path.push_back(node);
    return path;
  }

 private:
  double end_of(Place node) const { return node == kNoPlace ? 0 : done_[node]; }
  Place later(Place a, Place b) const { return end_of(b) > end_of(a) ? b : a; }

  void run(Place node) {
    // Of timed nodes, the one whose end makes the node ready.
    Place ready = kNoPlace;
    for (Place input : p_.inputs[node]) ready = later(ready, made_by_[input]);
    switch (p_.work[node]) {
      case PlaceWork::kKernel:
        start(node, later(compute_, ready));
        compute_ = node;
        break;
      case PlaceWork::kLaunch: {
        Place& last = last_of_group_[p_.group[node]];
        start(node, later(later(last, compute_), ready));
        last = node;
        break;
      }
      case PlaceWork::kWait:
        compute_ = later(compute_, p_.launch[node]);
        made_by_[node] = ready;
        break;
      default:
        made_by_[node] = ready;
    }
  }
  void start(Place node, Place behind) {
    cause_[node] = behind;
    done_[node] = end_of(behind) + p_.seconds[node];
    made_by_[node] = node;
  }

  const ScheduleProblem& p_;
  std::vector<double> done_;
  Place compute_ =
      kNoPlace;  // what the compute stream is free behind: a kernel, or a launch that was waited for
  std::vector<Place> last_of_group_, cause_, made_by_;
};

bool is_same_stream(const ScheduleProblem& problem, Place a, Place b) {
  if (problem.work[a] != problem.work[b]) return false;
  return problem.work[a] == PlaceWork::kKernel || problem.group[a] == problem.group[b];
}

}  // namespace

std::vector<CriticalBlock> find_critical_blocks(const ScheduleProblem& problem,
                                                std::span<const Place> order) {
  std::vector<CriticalBlock> blocks;
  for (Place node : CausedClock(problem).run(order)) {
    if (blocks.empty() || !is_same_stream(problem, blocks.back().nodes.back(), node)) blocks.emplace_back();
    blocks.back().nodes.push_back(node);
  }
  for (CriticalBlock& block : blocks) std::reverse(block.nodes.begin(), block.nodes.end());
  return blocks;
}

std::vector<Place> list_what_ends(const ScheduleProblem& problem, const CriticalBlock& block) {
  // Only nodes of the block count, and what lies between two of them was made between them.
  const Place first = *std::min_element(block.nodes.begin(), block.nodes.end());
  std::vector<Place> found = {block.nodes.back()};
  std::vector<bool> seen(block.nodes.back() - std::min(first, block.nodes.back()) + 1);
  for (std::size_t k = 0; k < found.size(); ++k)
    for (Place input : problem.inputs[found[k]]) {
      if (input < first || seen[input - first]) continue;
      seen[input - first] = true;
      found.push_back(input);
    }
  return found;
}

}  // namespace epweave
