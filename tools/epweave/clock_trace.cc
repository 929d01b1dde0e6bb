#include "clock_trace.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "common/report.h"
#include "cost/live_bytes.h"

namespace epweave::cli {
namespace {

constexpr int kProcess = 1, kCompute = 1, kFirstGroup = 2;

double us(double seconds) {
  return std::round(seconds * 1e9) / 1e3;
}

class ClockTracer {
 public:
  ClockTracer(const Graph& graph, const StepModel& model, std::span<const Place> order, const Simulator& simulator)
      : graph_(graph), model_(model), order_(order), simulator_(simulator) {}

  std::string run(const std::string& name, const std::vector<std::string>& assumptions) {
    name_track("process_name", 0, name + ", predicted");
    name_track("thread_name", kCompute, "compute");
    for (std::size_t i = 0; i < model_.step_groups.size(); ++i)
      name_track("thread_name", kFirstGroup + static_cast<int>(i), "group " + model_.step_groups[i].name);
    for (const Place place : simulator_.kernels()) add_slice(place);
    for (const Place place : simulator_.collectives()) add_slice(place);
    add_live_bytes();
    add_critical_path();
    const Json other = {{"assumptions", assumptions}, {"cluster", model_.cluster.name}};
    return text_ + "],\n\"displayTimeUnit\": \"ms\",\n\"otherData\": " + report_line(other) + "}\n";
  }

 private:
  void event(const Json& event) {
    text_ += text_.ends_with("[\n") ? "" : ",\n";
    text_ += report_line(event);
  }
  void name_track(const char* kind, int track, const std::string& name) {
    event({{"name", kind}, {"ph", "M"}, {"pid", kProcess}, {"tid", track}, {"args", {{"name", name}}}});
  }
  int track_of(Place place) const {
    return model_.kinds[place] == StepKind::kLaunch ? kFirstGroup + static_cast<int>(model_.groups[place]) : kCompute;
  }

  void add_slice(Place place) {
    const Node& node = graph_.step().nodes[model_.nodes[place]];
    event({{"name", graph_.text(node.name)},
           {"cat", name_of(model_.kinds[place])},
           {"ph", "X"},
           {"ts", us(simulator_.start(place))},
           {"dur", us(simulator_.end(place) - simulator_.start(place))},
           {"pid", kProcess},
           {"tid", track_of(place)},
           {"args",
            {{"op", graph_.text(node.target)},
             {"module", text_or_null(graph_.text(node.module))},
             {"direction", node.is_backward() ? "backward" : "forward"},
             {"bytes", model_.bytes[place]},
             {"price", name_of(model_.sources[place])}}}});
  }

  // At each kernel; memory changes in the order of launches, which the compute stream follows.
  void add_live_bytes() {
    LiveBytes memory(model_);
    double time = 0;
    std::int64_t shown = -1;
    for (const Place place : order_) {
      const std::int64_t live = memory.live() + memory.change(place).made;
      memory.place(place);
      if (model_.kinds[place] == StepKind::kKernel) time = simulator_.start(place);
      if (live == shown) continue;
      shown = live;
      event({{"name", "live bytes"}, {"ph", "C"}, {"ts", us(time)}, {"pid", kProcess}, {"args", {{"bytes", live}}}});
    }
  }

  // Back from the last end: whatever ended when a slice started is what it waited for.
  void add_critical_path() {
    std::unordered_map<double, Place> ended;
    Place last = kNoPlace;
    for (const auto places : {simulator_.kernels(), simulator_.collectives()})
      for (const Place place : places) {
        ended.emplace(simulator_.end(place), place);
        if (last == kNoPlace || simulator_.end(place) > simulator_.end(last)) last = place;
      }
    std::vector<Place> path;
    while (last != kNoPlace) {
      path.push_back(last);
      const auto before = ended.find(simulator_.start(last));
      last = before == ended.end() || simulator_.end(before->second) <= simulator_.start(before->second)
                 ? kNoPlace
                 : before->second;
    }
    std::ranges::reverse(path);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      add_arrow(i, "s", path[i], simulator_.end(path[i]));
      add_arrow(i, "f", path[i + 1], simulator_.start(path[i + 1]));
    }
  }
  void add_arrow(std::size_t id, const char* phase, Place place, double time) {
    Json arrow = {{"name", "critical path"}, {"cat", "critical path"}, {"ph", phase}, {"id", id}, {"ts", us(time)},
                  {"pid", kProcess},         {"tid", track_of(place)}};
    if (phase[0] == 'f') arrow["bp"] = "e";
    event(arrow);
  }

  const Graph& graph_;
  const StepModel& model_;
  std::span<const Place> order_;
  const Simulator& simulator_;
  std::string text_ = "{\"traceEvents\": [\n";
};

}  // namespace

std::string clock_trace_text(const Graph& graph, const std::string& name, const StepModel& model,
                             std::span<const Place> order, const Simulator& simulator,
                             const std::vector<std::string>& assumptions) {
  return ClockTracer(graph, model, order, simulator).run(name, assumptions);
}

}  // namespace epweave::cli
