#include "passes/overlap_ep/overlap_ep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "analysis/all_to_alls.h"
#include "analysis/collectives.h"
#include "analysis/eager_chunks.h"
#include "analysis/module_path.h"
#include "analysis/order.h"
#include "base/counted.h"
#include "ir/walk.h"
#include "passes/overlap_ep/overlap_ep_check.h"
#include "passes/overlap_ep/overlap_ep_movement.h"
#include "passes/overlap_ep/overlap_ep_phases.h"
#include "passes/overlap_ep/overlap_ep_refusal.h"
#include "passes/record.h"

namespace epweave {
namespace {

// --------------------------------------------------------------------------- collecting

// The graph, and what was found out about it.
struct Input {
  const Graph& graph;
  OrderFacts facts;
  std::vector<EpRegion> regions;  // those that the option selects
};

// Regions without exchanges keep what they own but are not scheduled.
void select_regions(const Graph& graph, const OverlapEpOptions& options, std::vector<EpRegion>& regions) {
  ModuleMatcher matcher(options.roots, graph.context->strings);
  if (!options.roots.empty())
    std::erase_if(regions, [&](const EpRegion& r) { return !matcher.root_of(r.root); });
}

Input analyze(const Graph& graph, const OverlapEpOptions& options) {
  EpRegionFinder finder(graph);
  OrderFacts facts =
      find_order_facts(graph, graph.step(), [&](NodeId id, const Node& node) { finder.add(id, node); });
  EpRegions found = finder.take();
  if (!found.malformed.empty())  // only where nobody verified the graph
    decline(graph, found.malformed.front(), {"part-unnamed", "chunk the region again"},
            "it is in the body of a region and does not say of which part");
  select_regions(graph, options, found.regions);
  return {graph, std::move(facts), std::move(found.regions)};
}

// A block computes attention before its first exchange: the other part's attention is what that
// exchange hides behind.
FirstExchange choose_first(const Graph& graph, const EpRegion& region, PairFirst pair_first) {
  if (pair_first != PairFirst::kAuto)
    return pair_first == PairFirst::kYes ? FirstExchange::kPaired : FirstExchange::kGated;
  const std::string_view root = graph.text(region.root);
  const std::string_view last = root.substr(root.rfind('.') + 1);
  const bool is_block = !last.empty() && last.find_first_not_of("0123456789") == last.npos;
  return is_block ? FirstExchange::kGated : FirstExchange::kPaired;
}

// --------------------------------------------------------------------------- applying

struct Plan {
  std::vector<const EpRegion*> regions;  // scheduled ones
  std::vector<RegionSchedule> schedules;
  std::vector<WaitLabel> labels;
  Movement movement = Movement::kDelay;
};

// Each node of a region behind the one before it, over all phases.
void add_phase_edges(const RegionSchedule& schedule, std::vector<OrderEdge>& edges) {
  NodeId last;
  for (const Phase& phase : schedule.phases)
    for (NodeId id : phase.nodes) {
      if (last) edges.push_back({last, id, OrderReason::kRequested, {}});
      last = id;
    }
}

// "; a1: exchange 0 (dispatch) needs it; e0: follows exchange 1 (combine), the last": what the
// schedule wants of the first and the last node of each run of requested edges.
std::string explain_requests(const Graph& graph, const Plan& plan, const Cycle& cycle) {
  SideTable<NodeId, std::string> wanted;
  for (std::size_t r = 0; r < plan.regions.size(); ++r)
    for (const Phase& phase : plan.schedules[r].phases)
      for (NodeId id : phase.nodes) wanted.at(id) = describe_phase(graph, *plan.regions[r], phase);
  const auto is_request = [&](std::size_t i) {
    return cycle[i % cycle.size()].reason == OrderReason::kRequested;
  };
  std::string text;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (!is_request(i) || is_request(i + cycle.size() - 1)) continue;
    std::size_t last = i;
    while (is_request(last + 1) && last + 1 < i + cycle.size()) ++last;
    for (NodeId id : {cycle[i].before, cycle[last % cycle.size()].after})
      text += fmt::format("; {}: {}", graph.text(graph.step().nodes[id].name), wanted[id]);
  }
  return text;
}

StableOrder sort_body(const Graph& graph, const Plan& plan, const NodeLists& inputs,
                      const std::vector<OrderEdge>& edges) {
  auto sorted = sort_stably(graph.step(), inputs, edges);
  if (auto* cycle = std::get_if<Cycle>(&sorted))
    decline(
        graph, cycle->front().after,
        {"contradiction", "schedule fewer regions (option roots), or change what ties the parts together"},
        "the schedule contradicts the graph: " + print_path(graph, graph.step(), *cycle) +
            explain_requests(graph, plan, *cycle));
  return std::get<StableOrder>(std::move(sorted));
}

// Launches that may change places with others: those of scheduled bodies, and those that only
// follow them because they depend on them. Every rank runs this program and gets this same order.
IdSet<NodeId> list_free_launches(const Input& input, const Plan& plan) {
  const Body& body = input.graph.step();
  IdSet<NodeId> dependent(body.nodes.size()), free_launches(body.nodes.size());
  for (const EpRegion* region : plan.regions)
    for (const EpPart& part : region->parts)
      for (NodeId id : part.nodes) dependent.insert(id);
  for (NodeId id : body.order) {
    const auto from = input.facts.inputs[id];
    if (std::any_of(from.begin(), from.end(), [&](NodeId i) { return dependent.contains(i); }))
      dependent.insert(id);
  }
  for (const Launch& launch : input.facts.launches)
    if (dependent.contains(launch.node)) free_launches.insert(launch.node);
  return free_launches;
}

// The launches of each group, but for free ones, in the order they have.
void add_launch_edges(const std::vector<Launch>& launches, const IdSet<NodeId>& free_launches,
                      std::vector<OrderEdge>& edges) {
  std::map<std::pair<ArgKind, std::uint64_t>, NodeId> last_on_group;
  for (const Launch& launch : launches) {
    if (free_launches.contains(launch.node)) continue;
    NodeId& last = last_on_group[{launch.group.kind(), launch.group.bits()}];
    if (last) edges.push_back({last, launch.node, OrderReason::kLaunchOrder, {}});
    last = launch.node;
  }
}

StableOrder find_order(const Input& input, const Plan& plan) {
  const Body& body = input.graph.step();
  std::vector<OrderEdge> edges = input.facts.effects.order_edges();
  if (plan.movement == Movement::kMinimal) {
    add_launch_edges(input.facts.launches, list_free_launches(input, plan), edges);
    if (auto order = order_with_fewest_moves(body, input.facts.inputs, edges, plan.schedules))
      return {std::move(*order), IdVector<NodeId, NodeId>(body.nodes.size())};
  }
  for (const RegionSchedule& schedule : plan.schedules) add_phase_edges(schedule, edges);
  StableOrder sorted = sort_body(input.graph, plan, input.facts.inputs, edges);
  EPWEAVE_CHECK(plan.movement == Movement::kDelay);  // else it printed the contradiction
  return sorted;
}

// Sets keyword `non_blocking`; whether that changed the node.
bool set_non_blocking(const Graph& graph, Node& node, bool value) {
  Context& context = *graph.context;
  const Arg* present = find_kwarg(context, node, "non_blocking");
  const Arg wanted = Arg::boolean(value);
  if (present != nullptr && *present == wanted) return false;
  const auto kwargs = context.args[node.kwargs];
  std::vector<Arg> changed(kwargs.begin(), kwargs.end());
  if (present != nullptr) {
    changed[static_cast<std::size_t>(present - kwargs.data())] = wanted;
  } else {
    changed.push_back(Arg::text(graph.intern("non_blocking")));
    changed.push_back(wanted);
  }
  node.kwargs = context.args.add(changed);
  return true;
}

// --------------------------------------------------------------------------- provenance

Provenance make_record(StringId pass, StringId reason, const EpRegion* region) {
  Provenance record{.pass = pass, .reason = reason};
  if (region != nullptr) {
    record.region = region->root;
    record.backward = region->backward;
  }
  return record;
}

struct Moves {
  const StableOrder& sorted;
  const std::vector<NodeId>& moved;
};

void record_moves(const Graph& before, const Plan& plan, const Moves& moves, Graph& after) {
  struct MovedBy {
    const EpRegion* region = nullptr;
    StringId reason;
  };
  SideTable<NodeId, MovedBy> places(before.step().nodes.size(), {});
  for (std::size_t r = 0; r < plan.regions.size(); ++r)
    for (const Phase& phase : plan.schedules[r].phases) {
      const StringId reason = after.intern(describe_phase(before, *plan.regions[r], phase));
      for (NodeId id : phase.nodes) places.at(id) = {plan.regions[r], reason};
    }
  const StringId pass = after.intern("overlap-ep");
  Body& step = after.step();
  for (const auto [id, node] : walk_records(step, moves.moved)) {
    MovedBy place = places[id];
    if (!place.reason) {
      const NodeId waited_for = moves.sorted.waited_for[id];
      place.reason = after.intern(
          waited_for ? fmt::format("follows {}", before.text(before.step().nodes[waited_for].name))
                     : "order of its users");
    }
    record_moved(*after.context, step.nodes[id], make_record(pass, place.reason, place.region));
  }
}

// --------------------------------------------------------------------------- the pass

Plan make_plan(const Input& input, const OverlapEpOptions& options) {
  const Graph& graph = input.graph;
  const Body& body = graph.step();
  const NodeLists& inputs = input.facts.inputs;
  const NodeLists users = invert(inputs, body.order);
  Plan plan{.regions = {}, .schedules = {}, .labels = {}, .movement = options.movement};
  ExchangeChecker checker(graph, users);
  StepDependences step(graph, input.regions, inputs, input.facts.effects.order_edges());
  for (const EpRegion& region : input.regions) {
    const std::vector<WaitLabel> labels = checker.check(region);
    if (region.count_exchanges() == 0) continue;
    plan.labels.insert(plan.labels.end(), labels.begin(), labels.end());
    plan.schedules.push_back(plan_phases(step, region, choose_first(graph, region, options.pair_first)));
    plan.regions.push_back(&region);
  }
  return plan;
}

void relabel_waits(const Plan& plan, Body& body) {
  for (const WaitLabel& label : plan.labels) {
    EpLabels& ep = body.nodes[label.wait].ep;
    ep.token_exchange_wait = ep.token_exchange ? ep.token_exchange : label.label;
    ep.token_exchange = StringId();
  }
}

void set_copy_flags(const Plan& plan, Graph& graph) {
  const StringId pass = graph.intern("overlap-ep");
  const StringId early =
      graph.intern("non_blocking=True: a later token-count copy makes the host wait for all");
  const StringId last =
      graph.intern("non_blocking=False: the last token-count copy makes the host wait for all");
  for (std::size_t r = 0; r < plan.regions.size(); ++r)
    for (const CopyFlag& flag : plan.schedules[r].copies) {
      Node& copy = graph.step().nodes[flag.copy];
      if (!set_non_blocking(graph, copy, flag.non_blocking)) continue;
      record_specialized(*graph.context, copy,
                         make_record(pass, flag.non_blocking ? early : last, plan.regions[r]));
    }
}

// Launches outside the bodies that changed places with others of their group: the user may want to
// know.
std::size_t count_displaced(const std::vector<Launch>& launches, const Body& after, const Plan& plan) {
  IdSet<NodeId> bodies(after.nodes.size());
  for (const EpRegion* region : plan.regions)
    for (const EpPart& part : region->parts)
      for (NodeId id : part.nodes) bodies.insert(id);
  std::map<std::pair<ArgKind, std::uint64_t>, std::vector<NodeId>> by_group;
  for (const Launch& launch : launches)
    if (!bodies.contains(launch.node))
      by_group[{launch.group.kind(), launch.group.bits()}].push_back(launch.node);
  const auto position = find_positions(after, after.order);
  std::size_t count = 0;
  for (const auto& [group, before] : by_group) {
    std::vector<NodeId> moved = before;
    std::sort(moved.begin(), moved.end(), [&](NodeId a, NodeId b) { return position[a] < position[b]; });
    for (std::size_t i = 0; i < moved.size(); ++i) count += moved[i] != before[i];
  }
  return count;
}

// "3 of 17 nodes moved, past 4 nodes that stay on average, 6 at most".
std::string describe_moves(const Body& before, const std::vector<NodeId>& after,
                           const std::vector<NodeId>& moved) {
  const MoveCount count = count_moves(before, after, moved);
  const std::size_t average = count.moved == 0 ? 0 : (count.passed + count.moved / 2) / count.moved;
  return fmt::format("{} of {} moved, past {} that stay on average, {} at most", count.moved,
                     counted(after.size(), "node"), average, count.farthest);
}

PassResult apply(const Input& input, const Plan& plan) {
  const Graph& graph = input.graph;
  const Body& before = graph.step();
  const StableOrder sorted = find_order(input, plan);
  const std::vector<NodeId> moved = find_moved(before, sorted.order);

  PassResult result{graph};
  Body& after = result.graph.step();
  after.order = sorted.order;
  relabel_waits(plan, after);
  record_moves(graph, plan, {sorted, moved}, result.graph);
  set_copy_flags(plan, result.graph);

  const IdSet<NodeId> free_launches = list_free_launches(input, plan);
  if (auto violation = find_order_violation(input.facts, after, free_launches))
    decline(
        graph, violation->after,
        {"illegal-order", "schedule fewer regions (option roots) and report the graph"},
        "the schedule would break an order that must hold: " + print_path(graph, before, {&*violation, 1}));
  std::size_t exchanges = 0;
  for (const EpRegion* region : plan.regions) exchanges += region->count_exchanges();
  result.notes.push_back(fmt::format("scheduled {} with {}", counted(plan.regions.size(), "region"),
                                     counted(exchanges, "token exchange")));
  result.notes.push_back(describe_moves(before, sorted.order, moved));
  if (const std::size_t displaced = count_displaced(input.facts.launches, after, plan); displaced > 0)
    result.notes.push_back(
        fmt::format("{} other collectives changed places within their process group, alike on "
                    "every rank",
                    displaced));
  return result;
}

bool has_eager_notes(const Graph& graph) {
  const Body& step = graph.step();
  return std::ranges::any_of(step.order, [&](NodeId id) {
    return !step.nodes[id].chunk.role && find_eager_notes(*graph.context, step.nodes[id]);
  });
}

[[noreturn]] void decline_without_exchange(const Input& input, const OverlapEpOptions& options) {
  std::string problem = "no chunked region has a labelled token exchange";
  if (input.regions.empty())
    problem = options.roots.empty()
                  ? "the graph has no chunked region"
                  : fmt::format("no module selected by '{}' is chunked", fmt::join(options.roots, ", "));
  const char* const remedy =
      has_eager_notes(input.graph) ? "the graph was chunked in eager mode: run mark-eager-chunks first"
      : has_row_exchange(input.graph)
          ? "chunk an MoE region first (-p chunk,overlap-ep); its token exchanges need "
            "the label EP_token_exchange"
          : "the graph exchanges no tokens: leave overlap-ep out; schedule hides other communication";
  decline(input.graph, {}, {"nothing-to-schedule", remedy}, problem);
}

}  // namespace

PassResult overlap_ep(const Graph& graph, const OverlapEpOptions& options) {
  const Input input = analyze(graph, options);
  const Plan plan = make_plan(input, options);
  if (!plan.regions.empty()) {
    PassResult result = apply(input, plan);
    if (!options.validate_only) return result;
    result.notes.insert(result.notes.begin(), "checked only, the graph is as it was");
    return {graph, std::move(result.notes)};
  }
  if (options.require_exchange) decline_without_exchange(input, options);
  return {graph, {"no token exchange to schedule"}};
}

}  // namespace epweave
