#include "replay_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace epweave::cli {
namespace {

// Columns of a row of list_spans().
enum Column { kRun, kStream, kOp, kNode, kModule, kOperands, kBytes, kMembers, kBegin, kEnd };

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

// In microseconds from the first rank's.
std::vector<double> list_starts(const Measurement& measurement) {
  const double first = std::min_element(measurement.starts.begin(), measurement.starts.end(),
                                        [](const RankStart& a, const RankStart& b) { return a.at < b.at; })
                           ->at;
  std::vector<double> starts;
  for (const RankStart& start : measurement.starts) starts.push_back((start.at - first) * 1e6);
  return starts;
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
                                  what.members, span.begin * 1e6, span.end * 1e6}));
    }
  }
  return rows;
}

std::string timeline_text(const Measurement& measurement) {
  const std::vector<double> starts = list_starts(measurement);
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < starts.size(); ++rank)
    ranks.push_back(
        {{"rank", rank}, {"start", starts[rank]}, {"within", measurement.starts[rank].within * 1e6}});
  std::string text =
      "{\"displayTimeUnit\": \"ns\", \"otherData\": " +
      report_line(
          {{"measured_on", measurement.environment}, {"clock_of", "rank 0"}, {"ranks", std::move(ranks)}}) +
      ", \"traceEvents\": [";
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    text += separator + report_line(event);
    separator = ",\n";
  };
  for (std::size_t rank = 0; rank < measurement.ranks.size(); ++rank) {
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
  std::map<std::tuple<std::string, std::string>, std::vector<double>> ops;
  std::map<std::tuple<std::string, std::uint64_t, std::uint64_t>, std::vector<double>> collectives;
  for (const Json& rows : measurement.ranks) {
    for (const Json& row : rows) {
      if (row[kMembers] != 0)
        collectives[{row[kOp], row[kMembers], row[kBytes]}].push_back(microseconds(row));
      else
        ops[{row[kOp], row[kOperands]}].push_back(microseconds(row));
    }
  }
  Json op_costs = Json::array(), collective_costs = Json::array();
  for (const auto& [key, samples] : ops) {
    Json& entry = op_costs.emplace_back(Json{{"op", std::get<0>(key)}, {"operands", std::get<1>(key)}});
    add_statistics(entry, samples);
  }
  for (const auto& [key, samples] : collectives) {
    Json& entry = collective_costs.emplace_back(
        Json{{"op", std::get<0>(key)}, {"group_size", std::get<1>(key)}, {"bytes", std::get<2>(key)}});
    add_statistics(entry, samples);
  }
  return {{"format", "epweave costs 1"},
          {"unit", "microseconds"},
          {"measured_on", measurement.environment},
          {"warm_up", measurement.warm_up},
          {"repeat", measurement.repeat},
          {"ranks", measurement.ranks.size()},
          {"ops", std::move(op_costs)},
          {"collectives", std::move(collective_costs)}};
}

}  // namespace epweave::cli
