#include "passes/specialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "analysis/devices_on_rank.h"
#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/computed_slices.h"
#include "passes/extra_group.h"
#include "passes/rank_constants.h"
#include "passes/rank_devices.h"
#include "passes/rank_groups.h"
#include "passes/record.h"
#include "passes/replace_symbols.h"
#include "passes/short_shards.h"

namespace epweave {
namespace {

class BodySpecializer {
 public:
  BodySpecializer(Graph& graph, const RankGroups& groups, RankChange change)
      : graph_(graph), context_(*graph.context), groups_(groups), change_(change) {
    pass_ = graph.intern("specialize");
    reason_ = graph.intern(fmt::format("rank {}", change.to));
  }

  // Everything but coordinates, whose numbers go to `numbers`.
  void run(Body& body, SymbolNumbers& numbers) {
    const RankConstants constants(graph_, body);
    folded_ = SideTable<NodeId, std::optional<Arg>>();
    for (const auto [id, row] : walk(context_, body)) {
      Node& node = body.nodes[id];
      const MeshCall call = mesh_call_of(node);
      const Node before = node;
      rename_group(node);
      node.args = arguments(node, node.args);
      node.kwargs = arguments(node, node.kwargs);
      node.type = recorded(node);
      if (call == MeshCall::kGroup) folded_.at(id) = look_up(body, node);
      if (call == MeshCall::kDevice) folded_.at(id) = recorded_device(node);
      if (call == MeshCall::kCoordinate) add_coordinate(body, node, constants, numbers);
      const bool is_changed =
          before.args != node.args || before.kwargs != node.kwargs || before.type != node.type;
      if (is_changed && &body == &graph_.step() && call == MeshCall::kNone)
        record_specialized(context_, node, pass_, reason_);
    }
  }

  // Drops lookups, coordinates and constants of ranks that nothing reads any more.
  void drop_unread(Body& body) const {
    const RankConstants constants(graph_, body);
    IdSet<NodeId> read(body.nodes.size());
    std::vector<NodeId> kept;
    for (const auto [id, node] : walk_back(context_, body)) {
      const bool served = mesh_call_of(node) != MeshCall::kNone || constants.contains(id);
      if (served && !read.contains(id)) continue;
      for_each_input(context_, node, [&](NodeId input) { read.insert(input); });
      kept.push_back(id);
    }
    std::ranges::reverse(kept);
    body.order = std::move(kept);
  }

 private:
  ArgRange arguments(const Node& node, ArgRange range) {
    return map_meshes(node, context_.args.map(range, [&](Arg arg) { return leaf(node, arg); }));
  }

  Arg leaf(const Node& node, Arg arg) const {
    if (arg.is_node()) return folded_[arg.as_node()].value_or(arg);
    if (arg.is(ArgKind::kProcessGroup))
      return Arg::named(ArgKind::kProcessGroup, name_of(node, arg.as_name()));
    return arg;
  }

  // Mesh constants among arguments; those within lists stand for no rank's part of the program.
  ArgRange map_meshes(const Node& node, ArgRange range) {
    std::vector<Arg> args;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (args.empty() && !arg.is(ArgKind::kMesh)) continue;
      if (args.empty()) args.assign(context_.args[range].begin(), context_.args[range].end());
      if (arg.is(ArgKind::kMesh)) args[i] = mesh_here(node, arg);
    }
    return args.empty() ? range : context_.args.add(args);
  }

  // Collectives name their group by a text.
  void rename_group(Node& node) {
    const auto position = node.op != nullptr ? node.op->find_param("group_name") : std::nullopt;
    if (!position) return;
    const Arg* group = find_arg(context_, node, *position, "group_name");
    if (group == nullptr || !group->is(ArgKind::kText)) return;
    const StringId before = group->as_name(), name = name_of(node, before);
    if (name != before) set_group(context_, node, name);
  }

  StringId name_of(const Node& node, StringId group) const {
    if (const auto name = groups_.find(group)) return *name;
    if (!groups_.is_listed(group))
      throw PassError("specialize.group",
                      fmt::format("process group {} is not in the graph's table", graph_.text(group)),
                      site_of(graph_, node), "export the graph with its process groups");
    throw PassError(
        "specialize.group",
        fmt::format("the members of process group {} on rank {} do not follow from those on rank {}",
                    graph_.text(group), change_.to, change_.from),
        site_of(graph_, node),
        "make the graph of traces of more ranks (epweave generalize), which list their groups");
  }

  Arg mesh_here(const Node& node, Arg mesh) {
    const auto value = read_mesh(context_, mesh);
    const auto moved = value ? mesh_through(*value, change_) : std::nullopt;
    if (!moved)
      throw PassError("specialize.mesh",
                      fmt::format("the mesh through rank {} does not follow from that through rank {}: its "
                                  "ranks are not evenly spaced, or do not hold rank {}",
                                  change_.to, change_.from, change_.from),
                      site_of(graph_, node), "export the graph with the meshes of its own rank");
    return moved->ranks == value->ranks ? mesh : write_mesh(context_, *moved);
  }

  TypeId recorded(const Node& node) {
    if (!node.type || context_.types[node.type].kind != TypeKind::kValue) return node.type;
    Type type = context_.types[node.type];
    if (type.value.is(ArgKind::kMesh)) {
      const Arg mesh = mesh_here(node, type.value);
      if (mesh == type.value) return node.type;
      type.value = mesh;
    } else if (type.value.is(ArgKind::kProcessGroup)) {
      type.value = Arg::named(ArgKind::kProcessGroup, name_of(node, type.value.as_name()));
    } else {
      return node.type;
    }
    return context_.types.intern(std::move(type));
  }

  // The name of a group that is looked up: as recorded, else by the members that the mesh gives.
  Arg look_up(const Body& body, const Node& node) {
    if (node.type && context_.types[node.type].kind == TypeKind::kValue &&
        context_.types[node.type].value.is(ArgKind::kProcessGroup))
      return Arg::text(context_.types[node.type].value.as_name());
    const Arg mesh_arg = arg_of(context_, node, 0), dim = arg_of(context_, node, 1);
    const auto mesh = mesh_arg.is_node() ? recorded_mesh(context_, body.nodes[mesh_arg.as_node()])
                                         : read_mesh(context_, mesh_arg);
    if (mesh && dim.is_int())
      if (const auto members = members_in(*mesh, dim.as_int()))
        for (const ProcessGroup& row : groups_.rows())
          if (row.ranks == *members) return Arg::text(row.name);
    throw PassError(
        "specialize.group",
        fmt::format("the group that is looked up on rank {} is not in the graph's table", change_.to),
        site_of(graph_, node), "export the graph with its process groups");
  }

  std::optional<std::vector<Rank>> members_in(const MeshValue& mesh, std::int64_t dim) const {
    const auto strides = strides_of(mesh);
    if (dim < 0) dim += static_cast<std::int64_t>(mesh.shape.size());
    if (!strides || dim < 0 || static_cast<std::size_t>(dim) >= mesh.shape.size()) return std::nullopt;
    const std::uint32_t extent = mesh.shape[static_cast<std::size_t>(dim)];
    const GroupRule rule{std::max((*strides)[static_cast<std::size_t>(dim)], 1U), extent};
    return rule.members(change_.to);
  }

  Arg recorded_device(const Node& node) const {
    const bool is_known = node.type && context_.types[node.type].kind == TypeKind::kValue &&
                          context_.types[node.type].value.is(ArgKind::kDevice);
    if (is_known) return context_.types[node.type].value;
    throw PassError("specialize.device", "the device that is looked up is not recorded",
                    site_of(graph_, node), "export the graph with recorded values");
  }

  void add_coordinate(const Body& body, const Node& node, const RankConstants& constants,
                      SymbolNumbers& numbers) const {
    const auto decline = [&](const std::string& problem) {
      throw PassError(
          "specialize.coordinate", problem, site_of(graph_, node),
          "trace the graph in torchtitan's compile-on-one-rank mode, or generalize per-rank traces");
    };
    if (!node.type || context_.types[node.type].kind != TypeKind::kScalar)
      decline("no symbol is recorded for the coordinate");
    const std::vector<StringId> symbols = context_.exprs.symbols(context_.types[node.type].expr);
    const Arg of = arg_of(context_, node, 0), dim = arg_of(context_, node, 1);
    std::optional<std::int64_t> place;
    if (of.is_node() && dim.is_int()) place = find_place(body, of.as_node(), dim.as_int(), constants);
    if (!place)
      decline(fmt::format(
          "the coordinate of rank {} is not known: its mesh is no constant that holds the rank", change_.to));
    if (symbols.empty()) {
      if (context_.exprs.constant(context_.types[node.type].expr) != *place)
        decline("the coordinate is recorded as another number");
      return;
    }
    numbers.at(symbols.front()) = *place;
  }

  std::optional<std::int64_t> find_place(const Body& body, NodeId of, std::int64_t dim,
                                         const RankConstants& constants) const {
    std::vector<std::int64_t> shape, ranks;
    if (const auto mesh = recorded_mesh(context_, body.nodes[of])) {
      shape.assign(mesh->shape.begin(), mesh->shape.end());
      ranks.assign(mesh->ranks.begin(), mesh->ranks.end());
    } else if (auto elements = constants.elements(of)) {
      for (ExprId size : tensor_of(context_, body.nodes[of].type)->sizes)
        shape.push_back(*context_.exprs.constant(size));
      ranks = std::move(*elements);
    }
    if (dim < 0) dim += static_cast<std::int64_t>(shape.size());
    const auto at = std::ranges::find(ranks, static_cast<std::int64_t>(change_.to));
    if (at == ranks.end() || dim < 0 || dim >= static_cast<std::int64_t>(shape.size())) return std::nullopt;
    std::int64_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < shape.size(); ++d) inner *= shape[d];
    return (at - ranks.begin()) / inner % shape[static_cast<std::size_t>(dim)];
  }

  Graph& graph_;
  Context& context_;
  const RankGroups& groups_;
  RankChange change_;
  SideTable<NodeId, std::optional<Arg>> folded_;
  StringId pass_, reason_;
};

// Symbols of coordinates that a pass has dropped: of a coordinate's range, and bound by no node.
void drop_unbound_coordinates(Graph& graph, const World& world) {
  IdSet<StringId> bound;
  for (const Body& body : graph.bodies)
    for (const auto [id, node] : walk_extras(*graph.context, body))
      if (node.extra != nullptr)
        for (const Binding& binding : node.extra->bindings) bound.insert(binding.symbol);
  std::erase_if(graph.symbols, [&](const Symbol& symbol) {
    if (!symbol.unbacked.value_or(false) || !symbol.lower || !symbol.upper || bound.contains(symbol.name))
      return false;
    const auto lower = graph.context->exprs.constant(*symbol.lower),
               upper = graph.context->exprs.constant(*symbol.upper);
    return lower == 0 && upper && *upper >= 0 && world.size % (*upper + 1) == 0;
  });
}

// Numbers of the file's rank that the graph has where it must compute the rank's own.
void require_numbers_of(const Graph& graph, RankChange change) {
  if (change.from == change.to) return;
  for (const RankLiteral& literal : find_rank_literals(graph, change.from).proved) {
    if (!literal.value.is_int() || literal.values_at(change.to) == std::set{literal.value.as_int()}) continue;
    throw PassError(
        "specialize.baked",
        fmt::format("{} is rank {}'s; on rank {} it must be {} = {}", literal.value.as_int(), change.from,
                    change.to, print_expression(graph, literal), print_values(literal, change.to)),
        site_of(graph, graph.step().nodes[literal.node]),
        "replace such numbers first: epweave generalize G --repair -o OUT");
  }
}

// Which argument of an op without a row in the op table is a group's name, nobody knows.
void require_known_groups(const Graph& graph, const RankGroups& groups, RankChange change) {
  for (const auto [id, node] : walk(*graph.context, graph.step()))
    for (StringId group : list_guessed_groups(graph, node))
      if (groups.find(group) != group)
        throw PassError("specialize.group",
                        fmt::format("{} takes process group {} by name, which is another on rank {}, and is "
                                    "not in the op table",
                                    graph.text(node.target), graph.text(group), change.to),
                        site_of(graph, node), "trace the graph on that rank");
}

// The rank's names of devices, also of the one on which the tracer says that the step runs. False:
// they are not recorded.
bool put_devices(Graph& graph, RankChange change) {
  if (find_entry(*graph.context, graph.info, kRankDevicesKey) == nullptr) return true;
  const auto names = devices_on_rank(graph, change.to);
  if (!names) return false;
  rename_devices(
      graph, *names,
      {.pass = graph.intern("specialize"), .reason = graph.intern(fmt::format("rank {}", change.to))});
  const Arg* device = find_entry(*graph.context, graph.info, "device");
  if (device == nullptr || !device->is(ArgKind::kText)) return true;
  if (const auto found = names->find(device->as_name()); found != names->end())
    set_info(graph, "device", Arg::text(found->second));
  return true;
}

// The info says one rank, and nothing of the others.
void put_rank(Graph& graph, Rank rank) {
  set_info(graph, "rank", Arg::integer(rank));
  set_info(graph, kRankGroupsKey, std::nullopt);
  set_info(graph, kRankDevicesKey, std::nullopt);
  set_info(graph, kRankAgnosticKey, std::nullopt);
  set_info(graph, kFingerprintKey, std::nullopt);  // of the graph for all ranks
  if (find_entry(*graph.context, graph.info, kOneRankKey) != nullptr)
    set_info(graph, kOneRankKey, Arg::boolean(false));
}

// Groups, meshes and coordinates; then what the coordinates' numbers make of the rest.
void specialize_bodies(Graph& graph, const RankGroups& groups, RankChange change) {
  BodySpecializer specializer(graph, groups, change);
  SymbolNumbers numbers;
  for (Body& body : graph.bodies) specializer.run(body, numbers);
  if (numbers.size() != 0) {
    std::vector<std::vector<NodeId>> slices;
    for (const Body& body : graph.bodies) slices.push_back(find_computed_slices(*graph.context, body));
    replace_symbols(graph, numbers,
                    {.pass = "specialize",
                     .reason = fmt::format("rank {}", change.to),
                     .remedy = "trace the graph so that it holds for every rank",
                     .fold_all = false});
    for (std::size_t i = 0; i < graph.bodies.size(); ++i) take_elements(graph, graph.bodies[i], slices[i]);
  }
  for (Body& body : graph.bodies) specializer.drop_unread(body);
}

void require_rank(const World& world, std::int64_t rank) {
  if (rank >= 0 && rank < static_cast<std::int64_t>(world.size)) return;
  throw PassError("specialize.rank", fmt::format("there is no rank {} in a world of {}", rank, world.size),
                  {}, fmt::format("name a rank from 0 to {}", world.size - 1));
}

// Of a graph for one rank.
void require_own_rank(RankChange change) {
  if (change.from == change.to) return;
  throw PassError("specialize.one-rank",
                  fmt::format("the graph was traced for rank {} alone; numbers of that rank may stand in it",
                              change.from),
                  {},
                  "make one graph for all ranks first: epweave generalize, of this graph with --repair, or "
                  "of the traces of several ranks");
}

}  // namespace

PassResult specialize(const Graph& graph, const SpecializeOptions& options) {
  const World world = read_world(graph);
  require_rank(world, options.rank);
  const RankChange change{world.file_rank, static_cast<Rank>(options.rank)};
  if (!is_rank_agnostic(graph)) {
    require_own_rank(change);
    return {graph, {fmt::format("the graph is rank {}'s already", change.to)}};
  }
  PassResult result{graph};
  Graph& made = result.graph;
  const RankGroups groups(graph, world, change.to);
  if (options.baked == BakedNumbers::kRefuse) {
    require_numbers_of(graph, change);
    take_shards_of(made, {change, "specialize", fmt::format("rank {}", change.to)});
    require_known_groups(graph, groups, change);
  }
  specialize_bodies(made, groups, change);
  made.groups = groups.rows();
  drop_unbound_coordinates(made, world);
  if (!put_devices(made, change))
    result.notes.push_back(fmt::format("what rank {} calls its device is not recorded: it has rank {}'s name",
                                       change.to, change.from));
  put_rank(made, change.to);
  if (!groups.numbered().empty())
    result.notes.push_back(
        fmt::format("process groups {} are named by torch's numbering: their names on rank {} "
                    "are not recorded",
                    fmt::join(groups.numbered(), ", "), change.to));
  return result;
}

}  // namespace epweave
