#include "measured_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "analysis/world.h"
#include "base/counted.h"
#include "common/command_files.h"
#include "cost/unique_json.h"
#include "figures.h"

namespace epweave::cli {
namespace {

constexpr std::size_t kShownRanks = 16, kShownOps = 10;
constexpr std::uint64_t kMostRanks = 1 << 20;

struct Span {
  Place place = kNoPlace;
  Interval time;
};

// Reads the events that have a node, in microseconds:
//   {"ph": "X", "pid": rank, "ts": 12.5, "dur": 3.1, "args": {"node": "mm"}}
class TimelineReader {
 public:
  TimelineReader(const std::string& path, const Graph& graph, const StepModel& model)
      : path_(path), timeline_(parse_unique_json(read_file_of("--measured", path), path)) {
    for (Place place = 0; place < model.size(); ++place)
      places_.emplace(graph.text(graph.step().nodes[model.nodes[place]].name), place);
  }

  std::map<std::uint32_t, std::vector<Span>> read_spans() const {
    if (!timeline_.is_object() || !timeline_.contains("traceEvents") ||
        !timeline_.at("traceEvents").is_array())
      fail("\"traceEvents\" is missing");
    std::map<std::uint32_t, std::vector<Span>> ranks;
    for (const Json& event : timeline_.at("traceEvents"))
      if (text_of(field(event, "ph")) == "X") ranks[rank_of(event)].push_back(read_span(event));
    if (ranks.empty()) fail("no node has a span");
    for (auto& [rank, spans] : ranks)
      std::ranges::stable_sort(spans, {}, [](const Span& span) { return span.time.start; });
    return ranks;
  }

  bool is_of_one_rank_alone() const { return !field(measured_on(), "alone").is_null(); }
  // "" where the file does not say it.
  std::string device() const { return text_of(field(field(measured_on(), "device"), "name")); }

 private:
  // Null where the value is no object, or has no such key.
  static Json field(const Json& value, const char* key) {
    return value.is_object() && value.contains(key) ? value.at(key) : Json();
  }
  static std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }
  Json measured_on() const { return field(field(timeline_, "otherData"), "measured_on"); }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: no timeline of `epweave-replay run --timeline`: {}", path_, what));
  }

  std::uint32_t rank_of(const Json& event) const {
    const Json rank = field(event, "pid");
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > kMostRanks)
      fail("a span has no rank (\"pid\")");
    return rank.get<std::uint32_t>();
  }

  double microseconds(const Json& event, const char* key) const {
    const Json value = field(event, key);
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail(fmt::format("a span has no \"{}\"", key));
    return value.get<double>();
  }

  Span read_span(const Json& event) const {
    const Json name = field(field(event, "args"), "node");
    if (!name.is_string()) fail("a span has no node");
    const auto place = places_.find(name.get<std::string>());
    if (place == places_.end())
      throw InputError(fmt::format("{}: the graph has no node %{}: measure this graph, in this order", path_,
                                   name.get<std::string>()));
    const double start = microseconds(event, "ts"), seconds = microseconds(event, "dur");
    if (seconds < 0) fail(fmt::format("the span of %{} ends before it starts", name.get<std::string>()));
    return {place->second, {start * 1e-6, (start + seconds) * 1e-6}};
  }

  const std::string& path_;
  Json timeline_;
  std::unordered_map<std::string_view, Place> places_;
};

bool communicates(const StepModel& model, const Span& span) {
  return model.kinds[span.place] == StepKind::kLaunch;
}

MeasuredRank add_up(std::uint32_t number, std::span<const Span> spans, const StepModel& model,
                    std::vector<MeasuredCollective>& collectives) {
  BusyTime busy;
  for (const Span& span : spans)
    if (!communicates(model, span)) busy.add(span.time);
  MeasuredRank rank{.rank = number, .compute = busy.seconds()};
  double last = 0;
  std::vector<Interval> running;
  collectives.clear();
  for (const Span& span : spans) {
    last = std::max(last, span.time.end);
    if (!communicates(model, span)) continue;
    running.push_back(span.time);
    rank.comm += span.time.seconds();
    collectives.push_back({span.place, span.time.seconds() - busy.within(span.time), span.time.seconds()});
  }
  rank.makespan = last - spans.front().time.start;
  rank.exposed = busy.idle_under(running);
  rank.idle = std::max(0.0, rank.makespan - rank.compute - rank.exposed);
  return rank;
}

std::vector<MeasuredOp> compare_ops(const Graph& graph, const StepModel& model, std::span<const Span> spans) {
  std::map<std::string_view, MeasuredOp> ops;
  for (const Span& span : spans) {
    MeasuredOp& op = ops[graph.text(graph.step().nodes[model.nodes[span.place]].target)];
    ++op.nodes;
    op.predicted += model.seconds[span.place];
    op.measured += span.time.seconds();
  }
  std::vector<MeasuredOp> list;
  for (auto& [name, op] : ops) {
    op.op = name;
    list.push_back(std::move(op));
  }
  std::ranges::stable_sort(list, std::greater(),
                           [](const MeasuredOp& op) { return std::abs(op.predicted - op.measured); });
  return list;
}

void find_unmeasured(const StepModel& model, std::span<const Span> spans, MeasuredRank& rank) {
  std::vector<bool> measured(model.size());
  for (const Span& span : spans) measured[span.place] = true;
  for (Place place = 0; place < model.size(); ++place) {
    if (model.seconds[place] == 0 || measured[place]) continue;
    ++rank.unmeasured;
    if (model.kinds[place] == StepKind::kLaunch) rank.is_whole = false;
  }
}

}  // namespace

MeasuredStep read_measured_step(const std::string& path, const Graph& graph, const StepModel& model) {
  const TimelineReader reader(path, graph, model);
  const auto ranks = reader.read_spans();
  MeasuredStep step{.file = path, .device = reader.device()};
  const auto own = ranks.find(own_rank(graph));
  const auto& [chosen, spans] = own != ranks.end() ? *own : *ranks.begin();
  step.rank = chosen;
  for (const auto& [rank, its_spans] : ranks) {
    std::vector<MeasuredCollective> collectives;
    step.ranks.push_back(add_up(rank, its_spans, model, collectives));
    step.ranks.back().is_whole = !reader.is_of_one_rank_alone();
    find_unmeasured(model, its_spans, step.ranks.back());
    if (rank == chosen) step.collectives = std::move(collectives);
  }
  step.ops = compare_ops(graph, model, spans);
  return step;
}

std::optional<double> makespan_error(double predicted, const MeasuredRank& rank) {
  if (!rank.is_whole || rank.makespan <= 0) return {};
  return predicted / rank.makespan - 1;
}

Json measured_report(const Graph& graph, const StepModel& model, const MeasuredStep& step,
                     const OverlapSums& predicted) {
  Json ranks = Json::array(), ops = Json::array(), collectives = Json::array();
  for (const MeasuredRank& rank : step.ranks) {
    const auto error = makespan_error(predicted.makespan, rank);
    ranks.push_back({{"rank", rank.rank},
                     {"makespan_ms", milliseconds(rank.makespan)},
                     {"compute_ms", milliseconds(rank.compute)},
                     {"comm_ms", milliseconds(rank.comm)},
                     {"exposed_ms", milliseconds(rank.exposed)},
                     {"idle_ms", milliseconds(rank.idle)},
                     {"error", error ? Json(rounded_share(*error)) : Json()},
                     {"nodes_without_span", rank.unmeasured}});
  }
  for (const MeasuredOp& op : step.ops)
    ops.push_back({{"op", op.op},
                   {"nodes", op.nodes},
                   {"predicted_ms", milliseconds(op.predicted)},
                   {"measured_ms", milliseconds(op.measured)}});
  for (const MeasuredCollective& collective : step.collectives)
    collectives.push_back({{"node", graph.text(graph.step().nodes[model.nodes[collective.launch]].name)},
                           {"measured_ms", milliseconds(collective.seconds)},
                           {"exposed_ms", milliseconds(collective.exposed)}});
  return {{"file", step.file},         {"device", text_or_null(step.device)},
          {"ranks", std::move(ranks)}, {"rank", step.rank},
          {"ops", std::move(ops)},     {"collectives", std::move(collectives)}};
}

std::string measured_text(const MeasuredStep& step, const OverlapSums& predicted) {
  std::string text =
      fmt::format("\nMeasured{}, milliseconds ({})\n{:<12}{:>12}{:>12}{:>12}{:>12}{:>12}  {}\n",
                  step.device.empty() ? "" : " on " + step.device, step.file, "", "step", "compute", "comm",
                  "exposed", "idle", "error of the step");
  const auto row = [&](std::string_view name, const auto& sums, std::string_view error) {
    text += fmt::format("{:<12}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{}{}\n", name,
                        sums.makespan * 1e3, sums.compute * 1e3, sums.comm * 1e3, sums.exposed * 1e3,
                        sums.idle * 1e3, error.empty() ? "" : "  ", error);
  };
  row("predicted", predicted, "");
  std::size_t unmeasured = 0;
  for (std::size_t i = 0; i < step.ranks.size(); ++i) {
    const MeasuredRank& rank = step.ranks[i];
    unmeasured = std::max(unmeasured, rank.unmeasured);
    const auto error = makespan_error(predicted.makespan, rank);
    if (i < kShownRanks)
      row(fmt::format("rank {}", rank.rank), rank,
          error ? fmt::format("{:+.1f} %", 100 * *error) : "none: no whole step was measured");
  }
  if (step.ranks.size() > kShownRanks) text += counted(step.ranks.size() - kShownRanks, "rank") + " more\n";
  text +=
      fmt::format("\n{:<56}{:>7}{:>13}{:>13}\n", fmt::format("ops of rank {}, furthest off first", step.rank),
                  "nodes", "predicted", "measured");
  for (std::size_t i = 0; i < std::min(step.ops.size(), kShownOps); ++i)
    text += fmt::format("{:<56}{:>7}{:>13.3f}{:>13.3f}\n", step.ops[i].op, step.ops[i].nodes,
                        step.ops[i].predicted * 1e3, step.ops[i].measured * 1e3);
  if (step.ops.size() > kShownOps) text += counted(step.ops.size() - kShownOps, "op") + " more\n";
  if (unmeasured > 0)
    text += fmt::format("{} with a price {} no span\n", counted(unmeasured, "node"),
                        unmeasured == 1 ? "has" : "have");
  return text;
}

}  // namespace epweave::cli
