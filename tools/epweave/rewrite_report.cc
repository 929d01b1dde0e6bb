#include "rewrite_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "analysis/ep_regions.h"
#include "analysis/module_path.h"
#include "assumption_kinds.h"
#include "base/counted.h"
#include "compare/diff/diff_summary.h"
#include "cost/graph_cost.h"
#include "cost/prices.h"
#include "cost/stats.h"
#include "figures.h"
#include "folding.h"
#include "node_captions.h"
#include "plan_view.h"
#include "rewrite_check.h"
#include "step_clock.h"

namespace epweave::cli {
namespace {

constexpr std::size_t kMostRows = 40;    // of a table
constexpr std::size_t kMostWindows = 8;  // regions whose exchanges are drawn
constexpr int kOverviewSteps = 900, kWindowSteps = 400;

double rounded_ms(double seconds) {
  return std::round(seconds * 1e7) / 1e4 + 0.0;
}

std::string_view direction_word(bool backward) {
  return backward ? "backward" : "forward";
}

// --------------------------------------------------------------------------- the proof

Json kinds_report(const std::vector<AssumptionKind>& kinds, const NodeCaptions& captions) {
  Json list = Json::array();
  for (const AssumptionKind& kind : kinds) {
    if (list.size() == kMostRows) break;
    list.push_back({{"assumption", captions.with_input_names(kind.first)},
                    {"count", kind.count},
                    {"why", text_or_null(kind.why)},
                    {"spelling", text_or_null(kind.spelling)}});
  }
  return list;
}

Json verdict(const RewriteSides& sides) {
  const RewriteReport report = check_rewrite(sides.a, sides.b);
  const NodeCaptions captions(sides.b);
  const std::vector<AssumptionKind> kinds = group_assumptions(report.assumptions);
  Json violations = Json::array(), outputs = Json::object();
  for (std::size_t i = 0; i < std::min(report.violations.size(), kMostRows); ++i) {
    Json& row = violations.emplace_back(
        Json{{"invariant", report.violations[i].invariant}, {"message", report.violations[i].message}});
    add_site(row, report.violations[i].site);
  }
  for (const RewriteOutput& output : report.outputs) {
    Json& count = outputs[std::string(name_of(output.numerics))];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  return {{"proved", report.violations.empty()},
          {"violations", std::move(violations)},
          {"violation_count", report.violations.size()},
          {"assumption_count", report.assumptions.size()},
          {"assumption_kinds", kinds.size()},
          {"assumptions", kinds_report(kinds, captions)},
          {"outputs", std::move(outputs)},
          {"whole", report.whole},
          {"divided", report.divided},
          {"joins", report.joins},
          {"splits", report.splits}};
}

// --------------------------------------------------------------------------- the clock

// "mesh_ep" of group 35, where the graph says so.
std::string group_title(const Graph& graph, const std::string& name) {
  for (const ProcessGroup& group : graph.groups)
    if (graph.text(group.name) == name && group.description)
      return fmt::format("{} ({})", graph.text(group.description), name);
  return name;
}

Json prediction(const StepClock& clock) {
  const OverlapSums& sums = clock.sums();
  Json groups = Json::array();
  for (std::size_t i = 0; i < clock.model().step_groups.size(); ++i)
    groups.push_back({{"name", group_title(clock.graph(), clock.model().step_groups[i].name)},
                      {"ranks", clock.model().step_groups[i].ranks},
                      {"comm_ms", rounded_ms(sums.group_comm[i])},
                      {"exposed_ms", rounded_ms(sums.group_exposed[i])}});
  return {{"makespan_ms", rounded_ms(sums.makespan)},
          {"compute_ms", rounded_ms(sums.compute)},
          {"comm_ms", rounded_ms(sums.comm)},
          {"exposed_ms", rounded_ms(sums.exposed)},
          {"idle_ms", rounded_ms(sums.idle)},
          {"collectives", clock.collectives().size()},
          {"collectives_exposed",
           std::ranges::count_if(clock.collectives(),
                                 [](auto& c) { return c.reason != ExposureReason::kHidden; })},
          {"unpriced", clock.model().unpriced.size()},
          {"peak_bytes", clock.peak_bytes()},
          {"groups", std::move(groups)}};
}

// Token exchanges of one module in one direction.
struct RegionTimes {
  std::string root;
  bool backward = false;
  struct Side {
    std::size_t exchanges = 0, exposed = 0, parts = 0;
    double comm = 0, exposed_time = 0;
    std::int64_t bytes = 0;
    double start = 0, end = 0;  // from the first exchange to the last one's end
  };
  Side a, b;
};

class RegionTable {
 public:
  // The roots of `graph` name the modules; both graphs' exchanges are then sorted by them.
  explicit RegionTable(const Graph& graph) : graph_(graph) {
    for (const EpRegion& region : find_ep_regions(graph).regions) roots_.insert(region.root);
  }

  void add(const StepClock& clock, RegionTimes::Side RegionTimes::*side) {
    const Body& body = clock.graph().step();
    for (const CollectiveExposure& collective : clock.collectives()) {
      const Node& node = body.nodes[clock.node(collective.launch)];
      if (!node.ep.token_exchange) continue;
      RegionTimes& region = find(root_of(node), is_in_backward_region(node));
      RegionTimes::Side& times = region.*side;
      times.start = times.exchanges == 0 ? collective.start : std::min(times.start, collective.start);
      times.end = std::max(times.end, collective.end);
      ++times.exchanges;
      times.exposed += collective.reason != ExposureReason::kHidden;
      times.comm += collective.end - collective.start;
      times.exposed_time += collective.exposed;
      times.bytes += clock.model().bytes[collective.launch];
      if (node.chunk.part)
        times.parts = std::max<std::size_t>(times.parts, static_cast<std::size_t>(*node.chunk.part) + 1);
    }
  }

  const std::vector<RegionTimes>& regions() const { return regions_; }
  std::vector<FoldedRows> fold() const {
    std::vector<FoldableRow> rows;
    for (const RegionTimes& region : regions_)
      rows.push_back(
          {region.root, fmt::format("{} {} {} {} {} {}", region.backward, region.a.exchanges,
                                    region.b.exchanges, region.b.parts, region.a.bytes, region.b.bytes)});
    return fold_rows(rows);
  }

 private:
  // The divided module that the node is in, else three elements of its own.
  std::string root_of(const Node& node) {
    if (node.chunk.region) return std::string(graph_.text(node.chunk.region));
    const std::string_view module = graph_.text(node.module);
    for (std::string_view path = module; !path.empty();
         path = path.substr(0, path.rfind('.') == path.npos ? 0 : path.rfind('.')))
      if (roots_.contains(graph_.intern(path))) return std::string(path);
    return module.empty() ? "outside modules" : std::string(cut_module(module));
  }
  RegionTimes& find(const std::string& root, bool backward) {
    const auto [found, is_new] = places_.try_emplace({root, backward}, regions_.size());
    if (is_new) regions_.push_back({.root = root, .backward = backward, .a = {}, .b = {}});
    return regions_[found->second];
  }

  const Graph& graph_;
  IdSet<StringId> roots_;
  std::map<std::pair<std::string, bool>, std::size_t> places_;
  std::vector<RegionTimes> regions_;
};

Json region_rows(const RegionTable& table) {
  Json rows = Json::array();
  for (const FoldedRows& fold : table.fold()) {
    const RegionTimes& first = table.regions()[fold.members.front()];
    Json row = {{"region", fold.path},
                {"direction", direction_word(first.backward)},
                {"count", fold.members.size()},
                {"parts", std::max<std::size_t>(1, first.b.parts)}};
    for (const auto& [key, side] : {std::pair{"a", &RegionTimes::a}, std::pair{"b", &RegionTimes::b}}) {
      RegionTimes::Side sum;
      for (const std::size_t i : fold.members) {
        const RegionTimes::Side& one = table.regions()[i].*side;
        sum.exchanges += one.exchanges;
        sum.exposed += one.exposed;
        sum.comm += one.comm;
        sum.exposed_time += one.exposed_time;
      }
      row[key] = {{"exchanges", sum.exchanges},
                  {"exposed", sum.exposed},
                  {"comm_ms", rounded_ms(sum.comm)},
                  {"exposed_ms", rounded_ms(sum.exposed_time)}};
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string bar_title(const NodeCaptions& captions, NodeId node, std::size_t nodes) {
  return nodes == 1 ? captions.what(node) : fmt::format("{} and {} more", captions.what(node), nodes - 1);
}

// Bars as [start, milliseconds, kind, part, what, where]; of the whole step without the last two.
Json streams_page(const StepClock& clock, double from, double to, int steps, const NodeCaptions* captions) {
  Json list = Json::array();
  for (const Stream& stream : draw_streams(clock, from, to, steps)) {
    Json bars = Json::array(), exposed = Json::array();
    for (const Bar& bar : stream.bars) {
      Json& row = bars.emplace_back(Json{rounded_ms(bar.start - from), rounded_ms(bar.end - bar.start),
                                         static_cast<int>(bar.kind), bar.part});
      if (captions == nullptr) continue;
      row.push_back(bar_title(*captions, clock.node(bar.place), bar.nodes));
      row.push_back(captions->where(clock.node(bar.place)));
    }
    for (const Bar& bar : stream.exposed)
      exposed.push_back(Json{rounded_ms(bar.start - from), rounded_ms(bar.end - bar.start)});
    list.push_back({{"name", group_title(clock.graph(), stream.name)},
                    {"bars", std::move(bars)},
                    {"exposed", std::move(exposed)}});
  }
  return list;
}

// The stretch of a region's exchanges, one of each kind of region, with a tenth of it on both
// sides.
Json windows_page(const RegionTable& table, const StepClock& a, const StepClock& b) {
  const NodeCaptions captions_a(a.graph()), captions_b(b.graph());
  Json windows = Json::array();
  for (const FoldedRows& fold : table.fold()) {
    if (windows.size() == kMostWindows) break;
    const RegionTimes& region = table.regions()[fold.members[fold.members.size() / 2]];
    if (region.a.exchanges == 0 || region.b.exchanges == 0) continue;
    const double span = 1.2 * std::max(region.a.end - region.a.start, region.b.end - region.b.start);
    Json window = {{"title", fmt::format("{} {}", region.root, direction_word(region.backward))},
                   {"region", fold.path},
                   {"count", fold.members.size()},
                   {"span_ms", rounded_ms(span)}};
    const double start_a = std::max(0.0, region.a.start - span / 12),
                 start_b = std::max(0.0, region.b.start - span / 12);
    window["a"] = streams_page(a, start_a, start_a + span, kWindowSteps, &captions_a);
    window["b"] = streams_page(b, start_b, start_b + span, kWindowSteps, &captions_b);
    windows.push_back(std::move(window));
  }
  return windows;
}

// The collectives that are exposed most, those of equal layers in one row.
Json exposed_rows(const StepClock& clock) {
  const NodeCaptions captions(clock.graph());
  std::vector<const CollectiveExposure*> exposed;
  std::vector<FoldableRow> keys;
  for (const CollectiveExposure& collective : clock.collectives()) {
    if (collective.reason == ExposureReason::kHidden) continue;
    exposed.push_back(&collective);
    const NodeId node = clock.node(collective.launch);
    std::string what = captions.what(node);
    if (const std::size_t of = what.find(" of "); of != what.npos) what = generic_module(what);
    keys.push_back({captions.where(node),
                    fmt::format("{}\n{}\n{}", what, captions.source(node), name_of(collective.reason))});
  }
  struct Row {
    double exposed = 0, total = 0;
    Json json;
  };
  std::vector<Row> rows;
  for (const FoldedRows& fold : fold_rows(keys)) {
    Row row;
    for (const std::size_t i : fold.members) {
      row.exposed += exposed[i]->exposed;
      row.total += exposed[i]->end - exposed[i]->start;
    }
    const CollectiveExposure& first = *exposed[fold.members.front()];
    const NodeId node = clock.node(first.launch);
    const auto what = [&](NodeId id) {  // of several layers: layers.*
      return fold.members.size() == 1 ? captions.what(id) : generic_module(captions.what(id));
    };
    const auto say = [&](Place place) { return place == kNoPlace ? Json() : Json(what(clock.node(place))); };
    row.json = {{"what", what(node)},
                {"where", fold.path},
                {"count", fold.members.size()},
                {"source", text_or_null(captions.source(node))},
                {"exposed_ms", rounded_ms(row.exposed)},
                {"of_ms", rounded_ms(row.total)},
                {"why", name_of(first.reason)},
                {"blame", say(first.blame)},
                {"hidden_by", say(first.hidden_by)}};
    rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(rows, std::greater(), &Row::exposed);
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), 12); ++i)
    list.push_back(std::move(rows[i].json));
  return list;
}

// --------------------------------------------------------------------------- stats, plan,
// difference

Json stats_rows(const RewriteSides& sides) {
  const GraphStats stats[] = {count_graph(sides.a), count_graph(sides.b)};
  Extents extents_a(sides.a), extents_b(sides.b);
  const GraphCost costs[] = {count_cost(sides.a, extents_a), count_cost(sides.b, extents_b)};
  Json rows = Json::array();
  const auto row = [&](const char* what, const char* unit, auto value) {
    rows.push_back({{"what", what}, {"unit", unit}, {"a", value(0)}, {"b", value(1)}});
  };
  row("nodes", "", [&](int i) { return stats[i].nodes; });
  row("calls", "", [&](int i) { return stats[i].calls; });
  row("floating-point operations", "flop", [&](int i) { return costs[i].flops; });
  row("bytes that kernels move", "B", [&](int i) { return costs[i].bytes; });
  row("collectives", "", [&](int i) {
    std::size_t launches = 0;
    for (const CollectiveCost& one : costs[i].collectives) launches += one.launches;
    return launches;
  });
  row("bytes of collectives", "B", [&](int i) {
    std::int64_t bytes = 0;
    for (const CollectiveCost& one : costs[i].collectives) bytes += one.bytes;
    return bytes;
  });
  row("divided regions", "", [&](int i) { return stats[i].regions.size(); });
  return rows;
}

Json plan_page(const RewriteSides& sides) {
  Json passes = Json::array(), regions = Json::array(), assumptions = Json::array(), notes = Json::array();
  for (std::size_t i = sides.a.passes.size(); i < sides.b.passes.size(); ++i) {
    const PassRun& run = sides.b.passes[i];
    passes.push_back({{"name", run.name},
                      {"options", run.options},
                      {"nodes_before", run.nodes_before},
                      {"nodes_after", run.nodes_after},
                      {"notes", run.notes}});
    for (const std::string& note : run.notes)
      if (is_choice_note(note)) notes.push_back(fmt::format("{}: {}", run.name, note));
  }
  std::optional<ChunkReport> plan;
  std::string trouble;
  try {
    plan = plan_of_rewrite(sides.a, sides.b);
  } catch (const std::exception& error) {  // made by a version with other passes, or not of this graph
    trouble = error.what();
  }
  if (plan) {
    const NodeCaptions captions(sides.a);
    std::vector<FoldableRow> rows;
    for (const RegionReport& region : plan->regions)
      rows.push_back(
          {region.root, fmt::format("{} {} {} {} {} {} {}", region.backward, region.parts, region.cut.size(),
                                    region.joined.size(), region.nodes.size(), region.once, region.proved)});
    for (const FoldedRows& fold : fold_rows(rows)) {
      const RegionReport& first = plan->regions[fold.members.front()];
      Json cut = Json::array(), joined = Json::array();
      for (const auto& [list, values] : {std::pair{&cut, &first.cut}, std::pair{&joined, &first.joined}})
        for (const RegionReport::Value& value : *values)
          list->push_back({{"value", captions.with_input_names("%" + value.name)},
                           {"type", value.type},
                           {"how", value.how},
                           {"why", captions.with_input_names(value.why)}});
      regions.push_back({{"region", fold.path},
                         {"of", first.root},
                         {"direction", direction_word(first.backward)},
                         {"count", fold.members.size()},
                         {"parts", first.parts},
                         {"divided", first.nodes.size()},
                         {"runs_once", first.once},
                         {"cut", std::move(cut)},
                         {"joined", std::move(joined)}});
    }
    for (const std::string& line : plan->assumptions) assumptions.push_back(line);
  }
  return {{"passes", std::move(passes)},
          {"regions", std::move(regions)},
          {"notes", std::move(notes)},
          {"assumptions", std::move(assumptions)},
          {"trouble", text_or_null(trouble)}};
}

// Rows of most differences first.
Json diff_rows(const std::map<std::string, DiffRow>& rows) {
  const auto changes = [](const DiffRow& row) {
    return row.divided + row.added + row.removed + row.changed + row.moved;
  };
  std::vector<std::pair<std::string, DiffRow>> list;
  for (const auto& [name, row] : rows)
    if (row.differs()) list.emplace_back(name, row);
  std::ranges::stable_sort(list, [&](auto& x, auto& y) { return changes(x.second) > changes(y.second); });
  Json report = Json::array();
  for (std::size_t i = 0; i < std::min(list.size(), kMostRows); ++i) {
    const auto& [name, row] = list[i];
    report.push_back({{"name", name},
                      {"before", row.before},
                      {"after", row.after},
                      {"divided", row.divided},
                      {"added", row.added},
                      {"removed", row.removed},
                      {"changed", row.changed},
                      {"moved", row.moved}});
  }
  return report;
}

Json diff_page(const RewriteSides& sides) {
  const GraphDiff diff = diff_graphs(sides.a, sides.b, {});
  const DiffSummary summary = summarize_diff(sides.a, sides.b, diff);
  Json changes = Json::object();
  for (std::size_t i = 0; i < summary.counts.size(); ++i)
    if (summary.counts[i] != 0)
      changes[std::string(name_of(static_cast<Change>(1U << i)))] = summary.counts[i];
  const auto count = [](const std::map<std::string, DiffRow>& rows) {
    return std::ranges::count_if(rows, [](auto& row) { return row.second.differs(); });
  };
  return {{"same", diff.is_same()},
          {"same_nodes", summary.same},
          {"changes", std::move(changes)},
          {"added", Json(summary.added)},
          {"op_count", count(summary.ops)},
          {"ops", diff_rows(summary.ops)},
          {"module_count", count(summary.modules)},
          {"modules", diff_rows(summary.modules)}};
}

// "12 of 40 kernels and collectives"
std::string count_measured(const StepModel& model) {
  const auto priced = std::ranges::count_if(model.sources, [](PriceSource source) {
    return source != PriceSource::kNone && source != PriceSource::kUnpriced;
  });
  return fmt::format("{} of {}", std::ranges::count_if(model.sources, is_measured), priced);
}

std::vector<std::string> list_model_assumptions(const StepClock& a, const StepClock& b,
                                                const PagePrices& prices) {
  std::vector<std::string> lines = {
      "one rank's view: every other rank is taken to be as fast, and as far, as this one",
      prices.costs
          ? fmt::format(
                "prices measured ({}) for {} kernels and collectives before, {} after; the others cost "
                "what the cluster's rates say",
                prices.costs_path, count_measured(a.model()), count_measured(b.model()))
          : std::string("no measured price: kernels and collectives cost what the cluster's rates say "
                        "(docs/overlap.md)")};
  if (runs_on_host(a.graph()))
    lines.emplace_back("the step was traced on the CPU: its tensors are taken to be the device's");
  if (const std::size_t n = std::max(a.model().assumed_symbols, b.model().assumed_symbols); n > 0)
    lines.push_back(fmt::format("routing is balanced: {} without a number {} the same share of the rows",
                                counted(n, "symbol"), n == 1 ? "has" : "have"));
  if (const std::size_t n = std::max(a.model().unpriced.size(), b.model().unpriced.size()); n > 0)
    lines.push_back(fmt::format("{} without a price {} free", counted(n, "call"), is_or_are(n)));
  return lines;
}

}  // namespace

Json rewrite_page(const RewriteSides& sides, const PagePrices& prices) {
  const Cluster& cluster = prices.cluster;
  const MeasuredCosts* costs = prices.costs ? &*prices.costs : nullptr;
  const StepClock a(sides.a, cluster, costs), b(sides.b, cluster, costs);
  if (costs != nullptr)
    for (const StepClock* clock : {&a, &b}) require_measured(clock->model(), *costs, prices.costs_path);
  RegionTable table(sides.b);
  table.add(a, &RegionTimes::a);
  table.add(b, &RegionTimes::b);
  const double span = std::max(a.sums().makespan, b.sums().makespan);
  Json page = {
      {"a", file_report(sides.name_a)}, {"b", file_report(sides.name_b)}, {"verdict", verdict(sides)}};
  page["predicted"] = {{"cluster", cluster.name},
                       {"changed", changed_parameters(cluster)},
                       {"planned_for", text_or_null(prices.planned_for)},
                       {"costs", prices.costs ? Json(prices.costs_path) : Json()},
                       {"assumptions", list_model_assumptions(a, b, prices)},
                       {"a", prediction(a)},
                       {"b", prediction(b)}};
  page["exchanges"] = region_rows(table);
  page["exposed"] = {{"a", exposed_rows(a)}, {"b", exposed_rows(b)}};
  page["step"] = {{"span_ms", rounded_ms(span)},
                  {"a", streams_page(a, 0, span, kOverviewSteps, nullptr)},
                  {"b", streams_page(b, 0, span, kOverviewSteps, nullptr)}};
  page["windows"] = windows_page(table, a, b);
  page["stats"] = stats_rows(sides);
  page["plan"] = plan_page(sides);
  page["diff"] = diff_page(sides);
  return page;
}

}  // namespace epweave::cli
