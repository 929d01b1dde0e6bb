#include "replay/steps/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/host_copy.h"
#include "analysis/users.h"
#include "ops/may_copy.h"
#include "ops/op.h"

namespace epweave::replay {
namespace {

constexpr std::uint32_t kCompute = 0;

class StepPlanner {
 public:
  StepPlanner(const Graph& graph, const Body& body) : graph_(graph), body_(body) {
    steps_.streams.push_back("compute");
    steps_.has_high_priority.push_back(false);
    for (const Launch& launch : find_launches(*graph.context, body)) groups_[launch.node] = launch.group;
    find_last_uses();
  }

  Steps plan() {
    for (std::size_t i = 0; i < body_.order.size(); ++i) {
      add_node(body_.order[i]);
      for (NodeId dead : dying_[i]) add(StepKind::kFree, dead);
    }
    return std::move(steps_);
  }

 private:
  void find_last_uses() {
    const NodeLists inputs = list_inputs(*graph_.context, body_);
    dying_.resize(body_.order.size());
    IdVector<NodeId, std::uint32_t> last(body_.nodes.size(), kNotExecuted);
    for (std::uint32_t i = 0; i < body_.order.size(); ++i) {
      last[body_.order[i]] = i;
      for (NodeId input : inputs[body_.order[i]]) last[input] = i;
    }
    for (NodeId id : body_.order)
      if (body_.nodes[id].kind != NodeKind::kOutput && last[id] != kNotExecuted &&
          body_.nodes[body_.order[last[id]]].kind != NodeKind::kOutput)
        dying_[last[id]].push_back(id);
  }

  void add(StepKind kind, NodeId node = {}, std::uint32_t stream = kCompute, std::uint32_t event = kNoEvent) {
    steps_.list.push_back({kind, node, stream, event});
  }

  std::uint32_t stream_of(Arg group) {
    const StringId recorded = recorded_group(*graph_.context, body_, group);
    const std::string group_name(recorded ? graph_.text(recorded)
                                          : name_of_group(*graph_.context, body_, group));
    std::string name = "comm:" + group_name;
    const auto at = std::find(steps_.streams.begin(), steps_.streams.end(), name);
    if (at != steps_.streams.end()) return static_cast<std::uint32_t>(at - steps_.streams.begin());
    steps_.streams.push_back(std::move(name));
    steps_.has_high_priority.push_back(has_high_priority(group_name));
    return static_cast<std::uint32_t>(steps_.streams.size() - 1);
  }

  bool has_high_priority(std::string_view name) const {
    return std::any_of(graph_.groups.begin(), graph_.groups.end(), [&](const ProcessGroup& group) {
      return graph_.text(group.name) == name && graph_.text(group.priority) == "high";
    });
  }

  void add_collective(NodeId id) {
    const std::uint32_t stream = stream_of(groups_.at(id));
    const std::uint32_t before = steps_.events++;
    add(StepKind::kRecord, {}, kCompute, before);
    add(StepKind::kJoin, {}, stream, before);
    add(StepKind::kComm, id, stream);
    const std::uint32_t behind = steps_.events++;
    add(StepKind::kRecord, {}, stream, behind);
    completed_[id] = behind;
  }

  void add_wait(NodeId id) {
    const NodeId launch = find_waited_launch(*graph_.context, body_, id);
    const auto event = completed_.find(launch);
    if (event != completed_.end()) add(StepKind::kJoin, {}, kCompute, event->second);
    add(StepKind::kWait, id);
  }

  void add_node(NodeId id) {
    const Node& node = body_.nodes[id];
    if (node.kind == NodeKind::kPlaceholder) return add(StepKind::kInput, id);
    if (node.kind == NodeKind::kOutput) return add(StepKind::kOutput, id);
    if (node.kind == NodeKind::kGetAttr) return add(StepKind::kHost, id);
    if (groups_.contains(id)) return add_collective(id);
    if (is_wait(node)) return add_wait(id);
    const CostClass cost = node.op == nullptr ? CostClass::kMemory : node.op->cost;
    if (cost == CostClass::kHostSync) add(StepKind::kSync);
    // `reshape` copies where it must: a launch.
    const bool is_launch = node.op != nullptr && may_copy(*node.op);
    if (cost == CostClass::kHostSync || (cost == CostClass::kFree && !is_launch))
      return add(StepKind::kHost, id);
    add(StepKind::kLaunch, id);
    if (const auto copy = find_host_copy(*graph_.context, body_, node); copy && copy->is_blocking)
      add(StepKind::kSync);
  }

  const Graph& graph_;
  const Body& body_;
  Steps steps_;
  std::unordered_map<NodeId, Arg> groups_;
  std::unordered_map<NodeId, std::uint32_t> completed_;
  std::vector<std::vector<NodeId>> dying_;  // by position
};

}  // namespace

Steps plan_steps(const Graph& graph, const Body& body) {
  return StepPlanner(graph, body).plan();
}

std::string_view name_of(StepKind kind) {
  constexpr std::string_view kNames[] = {"input", "host", "launch", "record", "join",
                                         "comm",  "wait", "sync",   "free",   "output"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool has_node(StepKind kind) {
  switch (kind) {
    case StepKind::kInput:
    case StepKind::kHost:
    case StepKind::kLaunch:
    case StepKind::kComm:
    case StepKind::kWait:
    case StepKind::kFree:
      return true;
    case StepKind::kRecord:
    case StepKind::kJoin:
    case StepKind::kSync:
    case StepKind::kOutput:
      return false;
  }
  return false;
}

bool has_stream(StepKind kind) {
  switch (kind) {
    case StepKind::kLaunch:
    case StepKind::kRecord:
    case StepKind::kJoin:
    case StepKind::kComm:
    case StepKind::kWait:
    case StepKind::kSync:
      return true;
    case StepKind::kInput:
    case StepKind::kHost:
    case StepKind::kFree:
    case StepKind::kOutput:
      return false;
  }
  return false;
}

std::string print_steps(const Graph& graph, const Body& body, const Steps& steps) {
  std::string text;
  for (const Step& step : steps.list) {
    std::string line = fmt::format("{:<6}", name_of(step.kind));
    if (has_node(step.kind)) {
      const Node& node = body.nodes[step.node];
      line += fmt::format(" %{}", graph.text(node.name));
      if (step.kind != StepKind::kInput && step.kind != StepKind::kFree)
        line += fmt::format(" = {}", graph.text(node.target));
      if (has_stream(step.kind)) line += fmt::format(" on {}", steps.streams[step.stream]);
    } else if (step.kind == StepKind::kSync) {
      line += fmt::format(" {}", steps.streams[step.stream]);
    } else if (step.kind != StepKind::kOutput) {
      line += fmt::format(" e{} on {}", step.event, steps.streams[step.stream]);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace epweave::replay
