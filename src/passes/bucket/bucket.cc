#include "passes/bucket/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/order.h"
#include "analysis/rank_view.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "passes/bucket/bucket_plan.h"
#include "passes/bucket/bucket_writer.h"
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

class Bucketer {
 public:
  // `graph` is equal to `result`'s.
  Bucketer(const Graph& graph, PassResult& result, GroupCoordinates coordinates)
      : result_(result),
        graph_(result.graph),
        facts_(find_order_facts(*graph.context, graph.step())),
        users_(invert(facts_.inputs, graph.step().order)),
        positions_(find_positions(graph.step(), graph.step().order)),
        found_(find_mergeables(graph, facts_.inputs, users_, facts_.effects)),
        plan_(plan_blocks(graph, found_.list)),
        module_order_(order_modules(graph)),
        merged_(graph_, facts_.inputs, users_),
        independence_(merged_),
        writer_(merged_, std::move(coordinates)) {}

  void run() {
    for (const BucketScope& scope : list_scopes(graph_, plan_, found_.list)) merge(scope);
    writer_.finish();
    prefetch();
    note();
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

  // What was moved in front of what it needs, or would see other storage there, is put behind that.
  void prefetch() {
    Body& body = graph_.step();
    const OrderFacts facts = find_order_facts(*graph_.context, body);
    PrefetchOrder wanted =
        find_prefetch_order(graph_, launches_, list_scoped(), facts.inputs, invert(facts.inputs, body.order));
    Body after = body;
    after.order = std::move(wanted.order);
    auto sorted = sort_stably(after, facts.inputs, facts.effects.order_edges());
    if (const auto* cycle = std::get_if<Cycle>(&sorted))
      throw CheckError("bucket: the order contradicts itself: " + print_path(graph_, body, *cycle));
    const StableOrder& legal = std::get<StableOrder>(sorted);
    for (NodeId id : legal.order)
      if (legal.waited_for[id]) wanted.moved.push_back(id);
    after.order = legal.order;
    require_legal(facts, after);
    body.order = std::move(after.order);
    record_moves(wanted.moved);
  }

  void require_legal(const OrderFacts& facts, const Body& after) const {
    IdSet<NodeId> free_launches;
    for (const MergedLaunch& launch : launches_) free_launches.insert(launch.launch);
    const auto wrong = find_order_violation(facts, after, free_launches);
    if (!wrong) return;
    throw PassError("bucket.order",
                    fmt::format("waiting for a bucket later would move it: {}",
                                print_path(graph_, graph_.step(), std::array{*wrong})),
                    site_of(graph_, graph_.step().nodes[wrong->after]),
                    "leave bucket out, or order what follows the reduction in the model");
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
  std::array<std::size_t, 3> merged_count_{};  // by kind
};

}  // namespace

namespace {

// Coordinates of the ranks in the groups on which gathers can be merged.
GroupCoordinates write_coordinates(Graph& graph) {
  const OrderFacts facts = find_order_facts(*graph.context, graph.step());
  const NodeLists users = invert(facts.inputs, graph.step().order);
  CoordinateWriter writer(graph, read_world(graph).size, "bucket");
  GroupCoordinates made;
  for (const Mergeable& m : find_mergeables(graph, facts.inputs, users, facts.effects).list)
    if (m.axis && m.axis->extent > 1)
      made.emplace(std::pair(m.axis->stride, m.axis->extent), writer.coordinate(m.axis_name, *m.axis));
  writer.place();
  return made;
}

// What was written for gathers that stay as they are.
void drop_unread(Graph& graph, const GroupCoordinates& coordinates) {
  Body& step = graph.step();
  IdSet<NodeId> unread(step.nodes.size());
  for (const auto& [axis, id] : coordinates) unread.insert(id);
  for (const auto [id, node] : walk(*graph.context, step))
    for_each_input(*graph.context, node, [&](NodeId input) { unread.erase(input); });
  for (const auto& [axis, id] : coordinates)
    if (unread.contains(id)) {
      const NodeId ranks = arg_of(*graph.context, step.nodes[id], 0).as_node();
      std::erase_if(step.order, [&](NodeId at) { return at == id || at == ranks; });
      for (const Binding& binding : step.nodes[id].extra->bindings)
        std::erase_if(graph.symbols, [&](const Symbol& symbol) { return symbol.name == binding.symbol; });
    }
}

}  // namespace

PassResult bucket(const Graph& graph) {
  PassResult result{graph};
  if (!is_rank_agnostic(graph)) {
    Bucketer(graph, result, {}).run();
    return result;
  }
  hoist_rank_nodes(result.graph);
  const GroupCoordinates coordinates = write_coordinates(result.graph);
  const Graph prepared = result.graph;
  Bucketer(prepared, result, coordinates).run();
  drop_unread(result.graph, coordinates);
  return result;
}

}  // namespace epweave
