// Measured times: a timeline for ui.perfetto.dev and chrome://tracing, and a cost file.
//
// Spans are what the device's events say (on a GPU: CUDA events; on the emulated device: the host's
// clock where its streams pass the events; on the CPU: the host's clock around each kernel), of one
// rank, from that rank's own start. In the timeline all ranks are on rank 0's clock, each to within
// what it says. Host work, waiting, and views have no spans.
//
// A rank measured alone (--measure-rank) does one node at a time, with no other work on the device:
// a span is that of the node's kernels. Then the other ranks have no spans, and collectives no
// costs: what virtual ranks do, copies within one memory, says nothing about a network.
#pragma once

#include <optional>

#include "common/report.h"
#include "ir/graph.h"
#include "replay/run/executor.h"

namespace epweave::cli {

// Spans of a rank, to be sent to rank 0: one row each.
Json list_spans(const Graph& graph, const replay::RunResult& run, replay::Rank rank);

// When a rank's last run began, on rank 0's clock, and how far off that may be; in seconds.
struct RankStart {
  double at = 0, within = 0;
};

// Spans of each rank, by rank, and what they were measured on.
struct Measurement {
  const std::vector<Json>& ranks;
  const std::vector<RankStart>& starts;
  const Json& environment;
  std::uint32_t warm_up = 0, repeat = 1;
  std::optional<replay::Rank> alone;
};
// The last run: a process per rank, a track per stream. One event per line.
std::string timeline_text(const Measurement& measurement);
// Microseconds per op and operands, and per collective, group size and bytes: samples of all ranks
// and runs, least, most, mean, and percentiles (the smallest sample that at least p % are not
// above).
Json cost_report(const Measurement& measurement);
// "rank 2 alone: 1670 nodes take 12.345 ms, collectives left out"; of the rank that is measured
// alone.
std::string describe_alone(const Measurement& measurement);

}  // namespace epweave::cli
