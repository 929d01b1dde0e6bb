#include "step_clock.h"

#include <algorithm>

#include "common/command_files.h"
#include "cost/live_bytes.h"
#include "cost/measured_costs.h"

namespace epweave::cli {

StepModel price_step(const Graph& graph, const Cluster& cluster, const Pricing& pricing) {
  std::optional<MeasuredCosts> costs;
  if (!pricing.costs.empty())
    costs = MeasuredCosts::parse(read_file_of("--costs", pricing.costs), pricing.costs);
  StepModel model = model_step(graph, cluster, costs ? &*costs : nullptr);
  if (costs) require_measured(model, *costs, pricing.costs);
  if (pricing.unpriced != "free") require_prices(graph, model);
  return model;
}

StepClock::StepClock(const Graph& graph, const Cluster& cluster, const MeasuredCosts* costs)
    : graph_(graph), model_(model_step(graph, cluster, costs)), simulator_(model_) {
  const std::vector<Place> order = given_order(model_);
  simulator_.run(order);
  sums_ = simulator_.measure();
  collectives_ = explain_exposure(model_, order, simulator_);
  peak_bytes_ = find_peak(model_, order).bytes;
}

namespace {

// Adds the bar, or makes the last one longer.
void add_bar(std::vector<Bar>& bars, const Bar& bar, double step) {
  if (bars.empty() || bar.start - bars.back().end >= step) return bars.push_back(bar);
  Bar& last = bars.back();
  const bool is_small = bar.end - bar.start < step || last.end - last.start < step;
  const bool is_alike = last.kind == bar.kind && last.part == bar.part;
  if (!is_small || (!is_alike && bar.end - last.start >= 2 * step && bar.end - bar.start >= step))
    return bars.push_back(bar);
  last.end = bar.end;
  ++last.nodes;
  if (bar.longest <= last.longest) return;
  last.kind = bar.kind;
  last.part = bar.part;
  last.place = bar.place;
  last.longest = bar.longest;
}

// The stretches of a group's collectives in which no kernel runs. Both lists are in the order of
// time.
std::vector<Bar> find_exposed(const std::vector<Bar>& collectives, const std::vector<Bar>& kernels,
                              double step) {
  std::vector<Bar> exposed;
  std::size_t next = 0;
  for (const Bar& bar : collectives) {
    double time = bar.start;
    while (next < kernels.size() && kernels[next].end <= bar.start) ++next;
    for (std::size_t i = next; i < kernels.size() && kernels[i].start < bar.end; ++i) {
      if (kernels[i].start > time) add_bar(exposed, {.start = time, .end = kernels[i].start}, step);
      time = std::max(time, kernels[i].end);
    }
    if (time < bar.end) add_bar(exposed, {.start = time, .end = bar.end}, step);
  }
  return exposed;
}

}  // namespace

std::vector<Stream> draw_streams(const StepClock& clock, double from, double to, int steps) {
  const StepModel& model = clock.model();
  const Body& body = clock.graph().step();
  std::vector<Stream> streams = {{"compute", {}, {}}};
  for (const StepGroup& group : model.step_groups) streams.push_back({group.name, {}, {}});
  const auto add = [&](Stream& stream, Place place, BarKind kind) {
    const double start = std::max(clock.start(place), from), end = std::min(clock.end(place), to);
    if (end <= start) return;
    const Node& node = body.nodes[clock.node(place)];
    stream.bars.push_back({start, end, kind, node.chunk.part.value_or(-1), place, end - start});
  };
  for (const Place place : clock.kernels()) add(streams[0], place, BarKind::kCompute);
  for (const CollectiveExposure& collective : clock.collectives()) {
    const bool is_exchange = body.nodes[clock.node(collective.launch)].ep.token_exchange.valid();
    add(streams[1 + model.groups[collective.launch]], collective.launch,
        is_exchange ? BarKind::kExchange : BarKind::kOtherCollective);
  }
  const double step = (to - from) / steps;
  for (std::size_t i = 1; i < streams.size(); ++i)
    streams[i].exposed = find_exposed(streams[i].bars, streams[0].bars, step);
  for (Stream& stream : streams) {
    std::vector<Bar> bars;
    for (const Bar& bar : stream.bars) add_bar(bars, bar, step);
    stream.bars = std::move(bars);
  }
  std::erase_if(streams, [](const Stream& stream) { return stream.bars.empty(); });
  return streams;
}

}  // namespace epweave::cli
