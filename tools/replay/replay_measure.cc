#include "replay_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace epweave::cli {
namespace {

// Columns of a row of list_spans().
enum Column { kRun, kStream, kOp, kNode, kModule, kOperands, kBytes, kMembers, kBegin, kEnd, kHostTime };

double microseconds(const Json& row) {
  return row[kEnd].get<double>() - row[kBegin].get<double>();
}

// `sorted` is not empty.
double percentile(const std::vector<double>& sorted, std::size_t percent) {
  const std::size_t at = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<std::size_t>(at, 1) - 1];
}

void add_statistics(Json& entry, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  entry["samples"] = samples.size();
  entry["min"] = samples.front();
  for (std::size_t percent : {10UL, 50UL, 90UL, 99UL})
    entry[fmt::format("p{}", percent)] = percentile(samples, percent);
  entry["max"] = samples.back();
  entry["mean"] = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

// In microseconds from the first rank's, or from that of the rank that is measured alone.
std::vector<double> list_starts(const Measurement& measurement) {
  const double first =
      measurement.alone ? measurement.starts[*measurement.alone].at
                        : std::min_element(measurement.starts.begin(), measurement.starts.end(),
                                           [](const RankStart& a, const RankStart& b) { return a.at < b.at; })
                              ->at;
  std::vector<double> starts;
  for (const RankStart& start : measurement.starts) starts.push_back((start.at - first) * 1e6);
  return starts;
}

std::vector<replay::Rank> list_measured(const Measurement& measurement) {
  if (measurement.alone) return {*measurement.alone};
  std::vector<replay::Rank> ranks(measurement.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Of a rank that is measured alone.
struct AloneTotal {
  std::size_t nodes = 0;           // of a run, those of collectives left out
  std::size_t with_host_time = 0;  // of these
  double microseconds = 0;         // the median of the runs' sums
};

AloneTotal add_up(const Measurement& measurement) {
  AloneTotal total;
  std::vector<double> sums(measurement.repeat);
  for (const Json& row : measurement.ranks[*measurement.alone]) {
    if (row[kMembers] != 0) continue;
    const auto run = row[kRun].get<std::uint32_t>();
    sums[run] += microseconds(row);
    if (run + 1 != measurement.repeat) continue;
    ++total.nodes;
    if (row[kHostTime].get<bool>()) ++total.with_host_time;
  }
  std::sort(sums.begin(), sums.end());
  total.microseconds = percentile(sums, 50);
  return total;
}

Json measured_on(const Measurement& measurement) {
  Json found = measurement.environment;
  if (!measurement.alone) return found;
  const AloneTotal total = add_up(measurement);
  found["alone"] = {
      {"rank", *measurement.alone},
      {"ranks", measurement.ranks.size()},
      {"how",
       "one node at a time, the other ranks' work being done; on a device a node's kernels begin "
       "once all are launched, but where host_waits is true: there the host's time is in it"},
      {"nodes", total.nodes},
      {"host_waits", total.with_host_time},
      {"microseconds", total.microseconds}};
  return found;
}

}  // namespace

Json list_spans(const Graph& graph, const replay::RunResult& run, replay::Rank rank) {
  Json rows = Json::array();
  const replay::RankResult& result = run.ranks[rank];
  for (std::size_t i = 0; i < result.spans.size(); ++i) {
    for (const replay::StepSpan& span : result.spans[i]) {
      const Node& node = graph.step().nodes[span.node];
      const auto found = result.measured.find(span.node);
      const replay::MeasuredNode what =
          found == result.measured.end() ? replay::MeasuredNode() : found->second;
      rows.push_back(Json::array({i, run.steps.streams[span.stream], graph.text(node.target),
                                  graph.text(node.name), graph.text(node.module), what.operands, what.bytes,
                                  what.members, span.begin * 1e6, span.end * 1e6, span.has_host_time}));
    }
  }
  return rows;
}

std::string timeline_text(const Measurement& measurement) {
  const std::vector<double> starts = list_starts(measurement);
  Json ranks = Json::array();
  for (const replay::Rank rank : list_measured(measurement))
    ranks.push_back(
        {{"rank", rank}, {"start", starts[rank]}, {"within", measurement.starts[rank].within * 1e6}});
  std::string text = "{\"displayTimeUnit\": \"ns\", \"otherData\": " +
                     report_line({{"measured_on", measured_on(measurement)},
                                  {"clock_of", fmt::format("rank {}", list_measured(measurement)[0])},
                                  {"ranks", std::move(ranks)}}) +
                     ", \"traceEvents\": [";
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    text += separator + report_line(event);
    separator = ",\n";
  };
  for (const replay::Rank rank : list_measured(measurement)) {
    add({{"ph", "M"},
         {"pid", rank},
         {"name", "process_name"},
         {"args", {{"name", fmt::format("rank {}", rank)}}}});
    std::map<std::string, std::size_t> tracks;
    for (const Json& row : measurement.ranks[rank]) {
      if (row[kRun].get<std::uint32_t>() + 1 != measurement.repeat) continue;
      const std::string stream = row[kStream];
      const auto [track, is_new] = tracks.emplace(stream, tracks.size());
      if (is_new)
        add({{"ph", "M"},
             {"pid", rank},
             {"tid", track->second},
             {"name", "thread_name"},
             {"args", {{"name", stream}}}});
      Json args = {{"node", row[kNode]}, {"module", row[kModule]}, {"operands", row[kOperands]}};
      if (row[kMembers] != 0) {
        args["bytes"] = row[kBytes];
        args["group_size"] = row[kMembers];
      }
      if (row[kHostTime].get<bool>()) args["host_waits"] = true;
      add({{"ph", "X"},
           {"pid", rank},
           {"tid", track->second},
           {"name", row[kOp]},
           {"ts", starts[rank] + row[kBegin].get<double>()},
           {"dur", microseconds(row)},
           {"args", std::move(args)}});
    }
  }
  return text + "\n]}\n";
}

Json cost_report(const Measurement& measurement) {
  using OpKey = std::tuple<std::string, std::string>;
  std::map<OpKey, std::vector<double>> ops;
  std::map<std::tuple<std::string, std::uint64_t, std::uint64_t>, std::vector<double>> collectives;
  std::set<OpKey> with_host_time;
  for (const Json& rows : measurement.ranks) {
    for (const Json& row : rows) {
      const OpKey op{row[kOp], row[kOperands]};
      if (row[kMembers] == 0) {
        ops[op].push_back(microseconds(row));
        if (row[kHostTime].get<bool>()) with_host_time.insert(op);
      } else if (!measurement.alone) {
        collectives[{row[kOp], row[kMembers], row[kBytes]}].push_back(microseconds(row));
      }
    }
  }
  Json op_costs = Json::array(), collective_costs = Json::array();
  for (const auto& [key, samples] : ops) {
    Json& entry = op_costs.emplace_back(Json{{"op", std::get<0>(key)}, {"operands", std::get<1>(key)}});
    add_statistics(entry, samples);
    if (with_host_time.contains(key)) entry["host_waits"] = true;
  }
  for (const auto& [key, samples] : collectives) {
    Json& entry = collective_costs.emplace_back(
        Json{{"op", std::get<0>(key)}, {"group_size", std::get<1>(key)}, {"bytes", std::get<2>(key)}});
    add_statistics(entry, samples);
  }
  return {{"format", "epweave costs 1"},
          {"unit", "microseconds"},
          {"measured_on", measured_on(measurement)},
          {"warm_up", measurement.warm_up},
          {"repeat", measurement.repeat},
          {"ranks", list_measured(measurement).size()},
          {"ops", std::move(op_costs)},
          {"collectives", std::move(collective_costs)}};
}

std::string describe_alone(const Measurement& measurement) {
  const AloneTotal total = add_up(measurement);
  std::string text = fmt::format("rank {} alone: {} nodes take {:.3f} ms, collectives left out",
                                 *measurement.alone, total.nodes, total.microseconds / 1e3);
  if (total.with_host_time != 0)
    text += fmt::format("; in {} of them the host waits, and its time is in theirs", total.with_host_time);
  return text;
}

}  // namespace epweave::cli
