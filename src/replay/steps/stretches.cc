#include "replay/steps/stretches.h"

#include <fmt/format.h>

namespace epweave::replay {
namespace {

// Why a stretch cannot hold the step; empty: it can.
std::string_view find_cut(const Body& body, const Step& step, const FindHostWait& find_host_wait) {
  switch (step.kind) {
    case StepKind::kInput:
      return "an input is copied from the host";
    case StepKind::kRecord:
    case StepKind::kComm:
      return "a collective is launched";
    case StepKind::kJoin:
    case StepKind::kWait:
      return "a collective is waited for";
    case StepKind::kSync:
      return "the host waits for the stream";
    case StepKind::kOutput:
      return "the step ends";
    case StepKind::kHost: {
      const Node& node = body.nodes[step.node];
      if (node.kind == NodeKind::kGetAttr)
        return node.attr.is(ArgKind::kTensor) ? "a constant is copied from the host" : "";
      return find_host_wait(node);
    }
    case StepKind::kLaunch:
      return find_host_wait(body.nodes[step.node]);
    case StepKind::kFree:
      return {};
  }
  return {};
}

}  // namespace

std::vector<Stretch> plan_stretches(const Body& body, const Steps& steps,
                                    const FindHostWait& find_host_wait) {
  std::vector<Stretch> stretches;
  bool is_open = false;
  for (std::uint32_t i = 0; i < steps.list.size(); ++i) {
    const Step& step = steps.list[i];
    if (const std::string_view cut = find_cut(body, step, find_host_wait); !cut.empty()) {
      if (is_open) stretches.back().cut = cut;
      is_open = false;
    } else if (step.kind == StepKind::kLaunch) {
      if (!is_open) stretches.push_back({i, i, 0, "the step ends"});
      is_open = true;
      ++stretches.back().launches;
      stretches.back().end = i + 1;
    }
  }
  return stretches;
}

std::string print_stretches(const std::string& steps, const std::vector<Stretch>& stretches) {
  std::string text;
  std::size_t line = 0, next = 0;
  for (std::size_t at = 0; at < steps.size(); ++line) {
    const bool is_in = next < stretches.size() && stretches[next].first <= line;
    if (is_in && stretches[next].first == line)
      text += fmt::format("graph  {}: {} launches, until {}\n", next, stretches[next].launches,
                          stretches[next].cut);
    const std::size_t end = steps.find('\n', at) + 1;
    text.append(steps, at, end - at);
    at = end;
    if (is_in && stretches[next].end == line + 1) text += fmt::format("end    {}\n", next++);
  }
  return text;
}

}  // namespace epweave::replay
