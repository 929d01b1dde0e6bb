#include "replay/need/ranks_together.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/world.h"

namespace epweave::replay {
namespace {

std::uint32_t count_ranks(const Graph& graph) {
  std::size_t ranks = 1;
  for (const ProcessGroup& group : graph.groups) ranks = std::max(ranks, group.ranks.size());
  return std::max(static_cast<std::uint32_t>(recorded_world_size(graph)), static_cast<std::uint32_t>(ranks));
}

}  // namespace

RanksTogether::RanksTogether(const Graph& graph, const Effects& effects)
    : graph_(graph), effects_(effects), ranks_(count_ranks(graph)), launched_(graph.step().nodes.size(), 0) {}

void RanksTogether::note(const Step& step, std::uint64_t held) {
  const std::size_t at = held_.size();
  held_.push_back(held);
  if (step.kind == StepKind::kComm && is_of_all(graph_.step().nodes[step.node])) {
    launched_[effects_.storage_of(step.node).index()] = at;
  } else if (step.kind == StepKind::kWait) {
    const std::size_t launch = launched_[effects_.storage_of(step.node).index()];
    if (launch != 0) windows_.push_back({launch, at});
  }
}

bool RanksTogether::is_of_all(const Node& node) const {
  const auto args = graph_.context->args[node.args];
  if (args.empty()) return false;
  const ProcessGroup* group = graph_.find_group(recorded_group(*graph_.context, graph_.step(), args.back()));
  return group != nullptr && group->ranks.size() == ranks_;
}

// A rank that has waited at `wait` holds what it holds; each other one is somewhere between its
// launch of that collective and its wait for the first one of all that comes behind `wait`.
std::uint64_t RanksTogether::find(std::uint64_t own) const {
  std::uint64_t most = own;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    std::size_t end = held_.size();
    for (std::size_t j = i + 1; j < windows_.size() && end == held_.size(); ++j)
      if (windows_[j].launch > windows_[i].wait) end = windows_[j].wait;
    const std::uint64_t least =
        *std::min_element(held_.begin() + static_cast<std::ptrdiff_t>(windows_[i].launch),
                          held_.begin() + static_cast<std::ptrdiff_t>(end));
    most = std::max(most, held_[windows_[i].wait] + (ranks_ - 1) * least);
  }
  return most;
}

}  // namespace epweave::replay
