#include "passes/bucket/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/order.h"
#include "analysis/rank_view.h"
#include "base/memory_text.h"
#include "cost/simulate.h"
#include "passes/bucket/bucket_choice.h"
#include "passes/bucket/bucket_plan.h"
#include "passes/bucket/bucket_writer.h"
#include "passes/bucket/group_coordinates.h"
#include "passes/bucket/independence.h"
#include "passes/bucket/prefetch.h"
#include "passes/coordinates.h"
#include "passes/record.h"

namespace epweave {
namespace {

// In the order in which they are packed: that of the model's parameters, else of the launches.
void sort_members(const Body& body, const SideTable<StringId, std::uint32_t>& module_order,
                  std::vector<const Mergeable*>& members, const IdVector<NodeId, std::uint32_t>& positions) {
  std::ranges::sort(members, {}, [&](const Mergeable* m) {
    return std::pair(module_order[body.nodes[m->launch].module], positions[m->launch]);
  });
}

// What plan=overlap decides by.
struct MergeClock {
  const PriceOptions& prices;
  DecisionModel decision;
  Predicted given;
  std::int64_t budget = 0;
  std::int64_t aim = 0;  // what is chosen within: chosen merges are known to need it only roughly

  const MeasuredCosts* measured() const { return prices.measured ? &prices.measured->costs : nullptr; }
};

MergeClock read_clock(const Graph& graph, const PriceOptions& prices) {
  DecisionModel decision = model_decision(graph, prices);
  const Predicted given = predict(decision.step, given_order(decision.step));
  const std::int64_t budget = std::max(prices.memory.above(given.peak), given.peak);
  return {prices, std::move(decision), given, budget, budget};
}

class Bucketer {
 public:
  // `graph` is equal to `result`'s. Without a clock: by blocks.
  Bucketer(const Graph& graph, PassResult& result, GroupCoordinates coordinates, const MergeClock* clock)
      : result_(result),
        given_(graph),
        clock_(clock),
        graph_(result.graph),
        facts_(find_order_facts(graph, graph.step())),
        users_(invert(facts_.inputs, graph.step().order)),
        positions_(find_positions(graph.step(), graph.step().order)),
        found_(find_mergeables(graph, facts_.inputs, users_, facts_.effects)),
        plan_(plan_blocks(graph, found_.list)),
        module_order_(order_modules(graph)),
        merged_(graph_, facts_.inputs, users_),
        independence_(merged_),
        writer_(merged_, std::move(coordinates), clock == nullptr ? WaitPlace::kFirst : WaitPlace::kLast) {}

  // Returns by how many bytes the result is above the budget; then nothing is merged.
  std::int64_t run() {
    const std::vector<BucketScope> scopes = list_scopes(graph_, plan_, found_.list);
    if (clock_ != nullptr) return run_by_clock(scopes);
    for (const BucketScope& scope : scopes) merge(scope);
    writer_.finish();
    keep_given_order();
    prefetch();
    note();
    return 0;
  }

 private:
  // Of collectives that can share a launch, in the order of the first of each kind.
  void merge(const BucketScope& scope) {
    std::vector<std::vector<const Mergeable*>> kinds, buckets;
    for (std::size_t i : scope.collectives) {
      const Mergeable& m = found_.list[i];
      const auto same =
          std::ranges::find_if(kinds, [&](const auto& kind) { return can_merge(*kind.front(), m); });
      (same != kinds.end() ? *same : kinds.emplace_back()).push_back(&m);
    }
    for (const auto& kind : kinds)
      for (auto& members : independence_.split(kind)) {
        independence_.plan_merge(members);
        buckets.push_back(std::move(members));
      }
    for (auto& members : buckets) {
      sort_members(graph_.step(), module_order_, members, positions_);
      launches_.push_back(writer_.write(members, scope));
      merged_count_[static_cast<std::size_t>(members.front()->kind)] += members.size();
    }
    independence_.forget_plans();
  }

  std::int64_t run_by_clock(std::span<const BucketScope> scopes) {
    const DecisionModel& decision = clock_->decision;
    std::vector<std::vector<std::size_t>> sets;
    if (!decision.other_nodes)
      sets = choose_buckets(given_, decision.step, found_.list, scopes, clock_->aim, clock_->measured());
    for (const std::vector<std::size_t>& set : sets) write_chosen(set);
    writer_.finish();
    keep_given_order();
    if (!sets.empty()) put_in_order(find_order_facts(graph_, graph_.step()), {graph_.step().order, {}});
    if (sets.empty() || !is_better(sets)) {
      result_.graph = given_;
      result_.notes.push_back(
          decision.other_nodes
              ? fmt::format("predicted: {}: nothing is merged by predicted time; plan=blocks merges the same "
                            "on all ranks",
                            *decision.other_nodes)
              : fmt::format("predicted: {}; to merge any of {} collectives makes it no shorter "
                            "within {}, so nothing is merged",
                            describe(clock_->given), found_.list.size(), memory_text(clock_->budget)));
      launches_.clear();
    }
    if (!launches_.empty()) note();
    if (const auto& limit = clock_->prices.memory.bytes; limit && *limit < clock_->given.peak)
      result_.notes.push_back(fmt::format(
          "predicted: the step as given needs {} bytes, above memory={}: that counts in its place, "
          "for merging does not get under it; schedule may",
          clock_->given.peak, *limit));
    result_.notes.push_back(describe_assumptions(clock_->decision, clock_->prices));
    return excess_;
  }

  void write_chosen(const std::vector<std::size_t>& set) {
    std::vector<const Mergeable*> members;
    for (std::size_t i : set) members.push_back(&found_.list[i]);
    sort_members(graph_.step(), module_order_, members, positions_);
    const bool backward = graph_.step().nodes[members.front()->launch].is_backward();
    launches_.push_back(writer_.write(members, BucketScope{nullptr, backward, {}}));
    merged_count_[static_cast<std::size_t>(members.front()->kind)] += members.size();
  }

  // By the simulator itself: shorter, within the budget, and what was hidden still is.
  bool is_better(const std::vector<std::vector<std::size_t>>& sets) {
    const DecisionModel after = model_rewritten(graph_, clock_->prices);
    const Predicted result = predict(after.step, given_order(after.step));
    excess_ = std::max<std::int64_t>(result.peak - clock_->budget, 0);
    if (result.seconds >= clock_->given.seconds || excess_ > 0) return false;
    const IdSet<NodeId> hidden = find_hidden(clock_->decision.step), kept = find_hidden(after.step);
    IdSet<NodeId> merged;
    for (std::size_t i = 0; i < sets.size(); ++i)
      for (std::size_t member : sets[i]) {
        const NodeId launch = found_.list[member].launch;
        merged.insert(launch);
        if (hidden.contains(launch) && !kept.contains(launches_[i].launch)) return false;
      }
    for (Place i = 0; i < clock_->decision.step.size(); ++i) {
      const NodeId id = clock_->decision.step.nodes[i];
      if (hidden.contains(id) && !merged.contains(id) && !kept.contains(id)) return false;
    }
    result_.notes.push_back(fmt::format("predicted: {} -> {}, within {}", describe(clock_->given),
                                        describe(result), memory_text(clock_->budget)));
    return true;
  }

  static IdSet<NodeId> find_hidden(const StepModel& model) {
    Simulator simulator(model);
    simulator.run(given_order(model));
    std::vector<double> exposed;
    simulator.measure(&exposed);
    IdSet<NodeId> hidden;
    const auto collectives = simulator.collectives();
    for (std::size_t i = 0; i < collectives.size(); ++i)
      if (exposed[i] <= 0.01 * model.seconds[collectives[i]]) hidden.insert(model.nodes[collectives[i]]);
    return hidden;
  }

  void prefetch() {
    Body& body = graph_.step();
    const OrderFacts facts = find_order_facts(graph_, body);
    put_in_order(facts, find_prefetch_order(graph_, launches_, list_scoped(), facts.inputs,
                                            invert(facts.inputs, body.order)));
  }

  // What a bucket made wait took along neither what other nodes do to the same storage nor what
  // makes the host wait: they follow.
  void keep_given_order() {
    Body& body = graph_.step();
    sort(body, list_inputs(*graph_.context, body), list_kept(list_order_edges(facts_)));
  }

  // Those between nodes that are still there.
  std::vector<OrderEdge> list_kept(std::vector<OrderEdge> edges) const {
    IdSet<NodeId> is_there(graph_.step().nodes.size());
    for (NodeId id : graph_.step().order) is_there.insert(id);
    std::erase_if(edges, [&](const OrderEdge& edge) {
      return !is_there.contains(edge.before) || !is_there.contains(edge.after);
    });
    return edges;
  }

  // Delays nodes of the body until all edges hold; adds those to `delayed_`.
  void sort(Body& body, const NodeLists& inputs, std::span<const OrderEdge> edges) {
    auto sorted = sort_stably(body, inputs, edges);
    if (const auto* cycle = std::get_if<Cycle>(&sorted)) refuse_order(*cycle);
    StableOrder& legal = std::get<StableOrder>(sorted);
    for (NodeId id : legal.order)
      if (legal.waited_for[id]) delayed_.push_back(id);
    body.order = std::move(legal.order);
  }

  [[noreturn]] void refuse_order(std::span<const OrderEdge> path) const {
    const Body& body = graph_.step();
    throw PassError(
        "bucket.order",
        fmt::format("waiting for a bucket later would move it: {}", print_path(graph_, body, path)),
        site_of(graph_, body.nodes[path.back().after]),
        "leave bucket out, or order what follows the reduction in the model");
  }

  // What was moved in front of what it needs, or would see other storage there, is put behind that.
  void put_in_order(const OrderFacts& facts, PrefetchOrder wanted) {
    Body& body = graph_.step();
    Body after = body;
    after.order = std::move(wanted.order);
    sort(after, facts.inputs, list_order_edges(facts));
    require_legal(facts, after);
    body.order = std::move(after.order);
    delayed_.insert(delayed_.begin(), wanted.moved.begin(), wanted.moved.end());
    record_moves(delayed_);
  }

  void require_legal(const OrderFacts& facts, const Body& after) const {
    IdSet<NodeId> free_launches;
    for (const MergedLaunch& launch : launches_) free_launches.insert(launch.launch);
    if (const auto wrong = find_order_violation(facts, after, free_launches)) refuse_order({&*wrong, 1});
  }

  void record_moves(std::span<const NodeId> by_prefetch) {
    IdSet<NodeId> done;
    const StringId pass = graph_.intern("bucket");
    const auto record = [&](std::span<const NodeId> moved, std::string_view reason) {
      for (NodeId id : moved)
        if (positions_.contains(id) && positions_[id] != kNotExecuted && done.insert(id))
          record_moved(*graph_.context, graph_.step().nodes[id],
                       Provenance{.pass = pass, .reason = graph_.intern(reason)});
    };
    record(merged_.moved(), "behind the bucket whose result it takes");
    record(by_prefetch, "with the wait for a bucket");
  }

  // Nodes of the plan's modules.
  IdSet<NodeId> list_scoped() const {
    IdSet<StringId> planned;
    for (const PlanEntry& entry : plan_)
      for (StringId module : entry.modules) planned.insert(module);
    SideTable<StringId, std::uint8_t> known(2);
    const auto is_planned = [&](StringId module) {
      if (known[module] != 2) return known[module] == 1;
      bool found = false;
      for (std::string_view path = graph_.text(module); !found && !path.empty();) {
        found = planned.contains(graph_.intern(path));
        const std::size_t dot = path.rfind('.');
        path = path.substr(0, dot == path.npos ? 0 : dot);
      }
      known.at(module) = found ? 1 : 0;
      return found;
    };
    const Body& body = graph_.step();
    IdSet<NodeId> scoped(body.nodes.size());
    for (NodeId id : body.order)
      if (body.nodes[id].module && is_planned(body.nodes[id].module)) scoped.insert(id);
    return scoped;
  }

  void note() {
    for (const auto& [kind, name] : {std::pair(MergeKind::kAllGather, "all-gathers"),
                                     std::pair(MergeKind::kReduceScatter, "reduce-scatters"),
                                     std::pair(MergeKind::kAllReduce, "all-reduces")}) {
      const auto of_kind = [wanted = kind](const auto& x) { return x.kind == wanted; };
      const auto launches = std::ranges::count_if(launches_, of_kind);
      if (launches > 0)
        result_.notes.push_back(fmt::format("{} {} in {} buckets",
                                            merged_count_[static_cast<std::size_t>(kind)], name, launches));
    }
    if (launches_.empty()) result_.notes.push_back("there is nothing to merge");
    for (std::string& note : found_.left_out) result_.notes.push_back(std::move(note));
  }

  PassResult& result_;
  const Graph& given_;
  const MergeClock* clock_;
  Graph& graph_;
  OrderFacts facts_;
  NodeLists users_;
  IdVector<NodeId, std::uint32_t> positions_;
  Mergeables found_;
  std::vector<PlanEntry> plan_;
  SideTable<StringId, std::uint32_t> module_order_;
  MergedGraph merged_;
  Independence independence_;
  BucketWriter writer_;
  std::vector<MergedLaunch> launches_;
  std::vector<NodeId> delayed_;
  std::array<std::size_t, 3> merged_count_{};  // by kind
  std::int64_t excess_ = 0;
};

PassResult bucket_as_ordered(const Graph& graph, const BucketOptions& options) {
  PassResult result;
  std::optional<MergeClock> clock;
  const auto run = [&](const Graph& given, const GroupCoordinates& coordinates) {
    if (options.overlap) clock.emplace(read_clock(given, *options.overlap));
    constexpr int kAttempts = 4;
    for (int i = 0; i < kAttempts; ++i) {
      result = {given};
      const std::int64_t excess = Bucketer(given, result, coordinates, clock ? &*clock : nullptr).run();
      if (excess == 0) break;
      clock->aim -= excess + excess / 2;
    }
  };
  if (!is_rank_agnostic(graph)) {
    run(graph, {});
    return result;
  }
  Graph prepared = graph;
  hoist_rank_nodes(prepared);
  const GroupCoordinates coordinates = write_group_coordinates(prepared, MergeScope::kParameters, "bucket");
  run(prepared, coordinates);
  if (result.graph.step().order == prepared.step().order) {  // nothing is merged
    result.graph = graph;
    return result;
  }
  drop_unread_coordinates(result.graph, coordinates);
  return result;
}

}  // namespace

PassResult bucket(const Graph& graph, const BucketOptions& options) {
  PassResult result = bucket_as_ordered(graph, options);
  if (!options.then || result.graph.step().order == graph.step().order) return result;
  const Comparison scheduled = compare_scheduled(graph, result.graph, *options.then);
  if (scheduled.pays) {
    result.notes.push_back(
        fmt::format("predicted behind the schedule that follows: {}", describe(scheduled)));
    return result;
  }
  return {graph,
          {fmt::format("predicted behind the schedule that follows: {}, so nothing is merged",
                       describe(scheduled))}};
}

}  // namespace epweave
