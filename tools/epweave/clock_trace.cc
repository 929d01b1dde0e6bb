#include "clock_trace.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/report.h"
#include "cost/live_bytes.h"
#include "simulate_report.h"

namespace epweave::cli {
namespace {

constexpr double kInside = 1e-9;  // seconds
constexpr int kProcess = 1, kHost = 0, kCompute = 1, kFirstGroup = 2;

double nanoseconds(double seconds) {
  return std::round(seconds * 1e9);
}
double us(double seconds) {
  return nanoseconds(seconds) / 1e3;
}
// Both ends are rounded, not the length: of slices of one track that overlap by a nanosecond,
// Perfetto drops one.
double us_between(double start, double end) {
  return (nanoseconds(end) - nanoseconds(start)) / 1e3;
}

class ClockTracer {
 public:
  ClockTracer(const Graph& graph, const StepModel& model, std::span<const Place> order,
              const Simulator& simulator)
      : graph_(graph), model_(model), order_(order), simulator_(simulator) {}

  std::string run(const std::string& name, const std::vector<std::string>& assumptions) {
    name_track("process_name", 0, name + ", predicted");
    name_track("thread_name", kCompute, "compute");
    for (std::size_t i = 0; i < model_.step_groups.size(); ++i)
      name_track("thread_name", kFirstGroup + static_cast<int>(i), "group " + model_.step_groups[i].name);
    for (const Place place : simulator_.kernels()) add_slice(place);
    for (const Place place : simulator_.collectives()) add_slice(place);
    add_live_bytes();
    find_causes();
    add_host();
    add_critical_path();
    const Json other = {{"assumptions", assumptions}, {"cluster", cluster_report(model_.cluster)}};
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
    return model_.kinds[place] == StepKind::kLaunch ? kFirstGroup + static_cast<int>(model_.groups[place])
                                                    : kCompute;
  }

  void add_slice(Place place) {
    const Node& node = graph_.step().nodes[model_.nodes[place]];
    event({{"name", graph_.text(node.name)},
           {"cat", name_of(model_.kinds[place])},
           {"ph", "X"},
           {"ts", us(simulator_.start(place))},
           {"dur", us_between(simulator_.start(place), simulator_.end(place))},
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
      event({{"name", "live bytes"},
             {"ph", "C"},
             {"ts", us(time)},
             {"pid", kProcess},
             {"args", {{"bytes", live}}}});
    }
  }

  // ------------------------------------------------------------------ the critical path

  // A stretch of a track: a kernel, a collective, or the host's launch of one.
  struct Slice {
    Place place = kNoPlace;
    bool is_host = false;
  };
  // When something is free or done, and the slice that it is for.
  struct Moment {
    double time = 0;
    Slice by;
  };
  static Moment later(Moment a, const Moment& b) { return b.time > a.time ? b : a; }

  // What each slice waited for, by the rules of the simulation (cost/simulate.h).
  void find_causes() {
    const std::size_t size = model_.size();
    cause_.assign(size, {});
    host_cause_.assign(size, {});
    launched_.assign(size, 0);
    done_.assign(size, {});
    std::vector<Moment> groups(model_.step_groups.size());
    const double issue = model_.cluster.host_us * 1e-6;
    const bool host_sync = model_.cluster.host_sync != 0;
    Moment host, compute;
    for (const Place place : order_) {
      Moment ready;
      for (const Place input : model_.inputs[place]) ready = later(ready, done_[input]);
      const StepKind kind = model_.kinds[place];
      if (issue > 0 && (kind == StepKind::kKernel || kind == StepKind::kLaunch)) {
        host_cause_[place] = host.by;
        launched_[place] = host.time;
        host = {host.time + issue, {place, true}};
      }
      const Moment own{simulator_.end(place), {place, false}};
      done_[place] = ready;
      if (kind == StepKind::kKernel) {
        cause_[place] = later(later(compute, ready), host).by;
        done_[place] = compute = own;
        if (model_.stops_host[place] != 0 && host_sync) host = later(host, own);
      } else if (kind == StepKind::kLaunch && model_.seconds[place] == 0) {
        done_[place] = later(ready, host);
      } else if (kind == StepKind::kLaunch) {
        Moment& group = groups[model_.groups[place]];
        const Moment joined = model_.cluster.launch_joins != 0 ? later(group, compute) : group;
        cause_[place] = later(later(joined, ready), host).by;
        done_[place] = group = own;
      } else if (kind == StepKind::kWait) {
        const Moment& launch = done_[model_.launches[place]];
        compute = later(compute, launch);
        done_[place] = later(launch, ready);
      } else if (kind == StepKind::kItem && host_sync) {
        host = later(host, ready);
      }
    }
  }

  // The host's launches, where they take time.
  void add_host() {
    if (model_.cluster.host_us == 0) return;
    name_track("thread_name", kHost, "host");
    for (const Place place : order_) {
      if (model_.kinds[place] != StepKind::kKernel && model_.kinds[place] != StepKind::kLaunch) continue;
      event({{"name", graph_.text(graph_.step().nodes[model_.nodes[place]].name)},
             {"cat", "launch by the host"},
             {"ph", "X"},
             {"ts", us(launched_[place])},
             {"dur", us_between(launched_[place], end_of({place, true}))},
             {"pid", kProcess},
             {"tid", kHost}});
    }
  }

  // Back from the last end.
  void add_critical_path() {
    Slice last;
    for (const auto places : {simulator_.kernels(), simulator_.collectives()})
      for (const Place place : places)
        if (last.place == kNoPlace || simulator_.end(place) > simulator_.end(last.place))
          last = {place, false};
    std::vector<Slice> path;
    for (; last.place != kNoPlace; last = last.is_host ? host_cause_[last.place] : cause_[last.place])
      path.push_back(last);
    std::ranges::reverse(path);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      // An arrow belongs to the slice that is open at its time: at its end, that is the next.
      add_arrow(i, "s", path[i], std::max(start_of(path[i]), end_of(path[i]) - kInside));
      add_arrow(i, "f", path[i + 1], start_of(path[i + 1]));
    }
  }
  double start_of(Slice slice) const {
    return slice.is_host ? launched_[slice.place] : simulator_.start(slice.place);
  }
  double end_of(Slice slice) const {
    return slice.is_host ? launched_[slice.place] + model_.cluster.host_us * 1e-6
                         : simulator_.end(slice.place);
  }
  void add_arrow(std::size_t id, const char* phase, Slice slice, double time) {
    Json arrow = {{"name", "critical path"},
                  {"cat", "critical path"},
                  {"ph", phase},
                  {"id", id},
                  {"ts", us(time)},
                  {"pid", kProcess},
                  {"tid", slice.is_host ? kHost : track_of(slice.place)}};
    if (phase[0] == 'f') arrow["bp"] = "e";
    event(arrow);
  }

  const Graph& graph_;
  const StepModel& model_;
  std::span<const Place> order_;
  const Simulator& simulator_;
  std::vector<Slice> cause_, host_cause_;  // by place: of what runs, of its launch by the host
  std::vector<double> launched_;           // when the host begins to launch it
  std::vector<Moment> done_;
  std::string text_ = "{\"traceEvents\": [\n";
};

}  // namespace

std::string clock_trace_text(const Graph& graph, const std::string& name, const StepModel& model,
                             std::span<const Place> order, const Simulator& simulator,
                             const std::vector<std::string>& assumptions) {
  return ClockTracer(graph, model, order, simulator).run(name, assumptions);
}

}  // namespace epweave::cli
