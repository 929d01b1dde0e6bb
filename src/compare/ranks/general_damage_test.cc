// A graph for all ranks with one wrong fact: found in that graph alone, under the name of what is
// wrong, at its node.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "analysis/users.h"
#include "analysis/verify.h"
#include "compare/ranks/bucket_slots.h"
#include "compare/ranks/rank_axes.h"
#include "compare/ranks/rank_baked.h"
#include "compare/ranks/rank_program.h"
#include "compare/ranks/rank_slices.h"
#include "compare/ranks/verify_ranks.h"
#include "compare/set_arg_test.h"
#include "io/file.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/generalize/generalize.h"
#include "passes/specialize.h"

namespace epweave::general_damage {  // other tests name their kinds of damage alike
namespace {

// What is to be said of it: an invariant, and what the line names.
struct Finding {
  std::string invariant, place;
};
// Makes one fact wrong. None: the graph has no such fact.
using Damage = std::function<std::optional<Finding>(Graph& graph)>;

std::string name_of(const Graph& graph, NodeId id) {
  return fmt::format("%{}", graph.text(graph.step().nodes[id].name));
}

NodeId find_call(const Graph& graph, const std::function<bool(NodeId, const Node&)>& is_wanted) {
  for (NodeId id : graph.step().order)
    if (is_wanted(id, graph.step().nodes[id])) return id;
  return {};
}

// --------------------------------------------------------------------------- numbers

Damage literal(const std::function<std::int64_t(const RankLiteral&, const World&)>& wrong) {
  return [=](Graph& graph) -> std::optional<Finding> {
    const auto found = find_rank_literals(graph, own_rank(graph)).proved;
    if (found.empty()) return std::nullopt;
    set_arg(graph, found[0].node, found[0].argument, Arg::integer(wrong(found[0], read_world(graph))));
    return Finding{"ranks-baked", name_of(graph, found[0].node)};
  };
}

// Of the first number that is a multiple of a coordinate: changes the product, or the coordinate.
Damage computed(const std::function<void(Graph&, NodeId product, NodeId coordinate)>& change) {
  return [=](Graph& graph) -> std::optional<Finding> {
    for (const RankLiteral& found : find_rank_literals(graph, own_rank(graph)).proved) {
      if (!found.value.is_node()) continue;
      const NodeId product = found.value.as_node();
      const Arg of = arg_of(*graph.context, graph.step().nodes[product], 0);
      if (!of.is_node() || mesh_call_of(graph.step().nodes[of.as_node()]) != MeshCall::kCoordinate) continue;
      const std::string place = name_of(graph, found.node);
      change(graph, product, of.as_node());
      return Finding{"ranks-baked", place};
    }
    return std::nullopt;
  };
}
Damage factor(const std::function<std::int64_t(std::int64_t)>& wrong) {
  return computed([=](Graph& graph, NodeId product, NodeId) {
    const Arg now = arg_of(*graph.context, graph.step().nodes[product], 1);
    set_arg(graph, product, 1, Arg::integer(wrong(now.as_int())));
    Facts facts(graph);
    for (NodeId id : graph.step().order) {
      Node& node = graph.step().nodes[id];
      if (!node.type || graph.context->types[node.type].kind != TypeKind::kScalar || !has_type_rule(node))
        continue;
      if (const TypeId type = infer_type(facts, graph, graph.step(), node)) node.type = type;
    }
  });
}

// ---------------------------------------------------------------------------- groups

// Changes the first call of the family that has a group.
Damage on_group(OpFamily family, const std::string& invariant,
                const std::function<std::optional<Arg>(const Graph&, NodeId, const ProcessGroup&)>& other) {
  return [=](Graph& graph) -> std::optional<Finding> {
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      const TensorType* made = tensor_of(*graph.context, node.type);
      const bool has_gradient = made != nullptr && is_floating(made->dtype);
      if (!has_family(node, family) || !has_gradient) continue;
      const auto position = node.op->find_param("group_name");
      const Arg named = position ? arg_of(*graph.context, node, *position) : Arg::none();
      const ProcessGroup* row = graph.find_group(recorded_group(*graph.context, graph.step(), named));
      const auto wrong = row != nullptr ? other(graph, id, *row) : std::nullopt;
      if (!wrong) continue;
      set_arg(graph, id, *position, *wrong);
      return Finding{invariant, name_of(graph, id)};
    }
    return std::nullopt;
  };
}
// Of as many ranks: as the graph names its groups, by a name or by a lookup that stands before.
std::optional<Arg> group_of_other_axis(const Graph& graph, NodeId id, const ProcessGroup& row) {
  const auto is_other = [&](const ProcessGroup* group) {
    return group != nullptr && group->ranks.size() == row.ranks.size() && group->ranks != row.ranks;
  };
  bool has_lookups = false;
  for (NodeId other : graph.step().order) {
    if (other == id) break;
    if (mesh_call_of(graph.step().nodes[other]) != MeshCall::kGroup) continue;
    has_lookups = true;
    if (is_other(graph.find_group(recorded_group(*graph.context, graph.step(), Arg::node(other)))))
      return Arg::node(other);
  }
  for (const ProcessGroup& group : graph.groups)
    if (!has_lookups && is_other(&group)) return Arg::text(group.name);
  return std::nullopt;
}
std::optional<Arg> unknown_group(const Graph& graph, NodeId, const ProcessGroup&) {
  return Arg::text(graph.intern("no such group"));
}
std::optional<Arg> smaller_group(const Graph& graph, NodeId, const ProcessGroup& row) {
  for (const ProcessGroup& group : graph.groups)
    if (group.ranks.size() < row.ranks.size()) return Arg::text(group.name);
  return std::nullopt;
}

// Of a line of code of several calls, as its other calls show on which group it is to run.
std::optional<Arg> group_of_other_calls(const Graph& graph, NodeId id, const ProcessGroup& row) {
  const Node& wrong = graph.step().nodes[id];
  const auto calls = std::ranges::count_if(graph.step().order, [&](NodeId other) {
    const Node& node = graph.step().nodes[other];
    return node.target == wrong.target && node.source == wrong.source && node.module == wrong.module;
  });
  return wrong.source && calls >= 3 ? group_of_other_axis(graph, id, row) : std::nullopt;
}

// A row of several ranks, but not all, whose axes are named, beside another.
Damage group_row(const std::function<void(ProcessGroup& row, const ProcessGroup& other)>& change) {
  return [=](Graph& graph) -> std::optional<Finding> {
    const std::size_t size = read_world(graph).size;
    for (ProcessGroup& row : graph.groups)
      for (const ProcessGroup& other : graph.groups) {
        if (!row.axes || !other.axes || row.ranks == other.ranks) continue;
        if (row.ranks.size() < 2 || row.ranks.size() == size || other.ranks.size() != row.ranks.size())
          continue;
        const auto known = [&](const ProcessGroup& group) {
          const auto meshes = read_world(graph).meshes;
          return std::ranges::any_of(meshes, [&](const Mesh& mesh) {
            return std::ranges::find(mesh.axes, graph.text(group.axes->front())) != mesh.axes.end();
          });
        };
        if (!known(row) || !known(other)) continue;
        const Finding finding{"ranks-axis", fmt::format("group {}", graph.text(row.name))};
        change(row, other);
        return finding;
      }
    return std::nullopt;
  };
}

// ---------------------------------------------------------------------------- meshes

// The first input whose mesh this changes.
Damage mesh(const std::function<void(MeshValue&)>& change) {
  return [=](Graph& graph) -> std::optional<Finding> {
    for (NodeId id : graph.step().order) {
      Node& node = graph.step().nodes[id];
      const auto before = recorded_mesh(*graph.context, node);
      if (!before || node.kind != NodeKind::kPlaceholder) continue;
      MeshValue after = *before;
      change(after);
      const Arg value = write_mesh(*graph.context, after);
      if (graph.context->args.equal(value, write_mesh(*graph.context, *before))) continue;
      node.type = graph.context->types.intern({.kind = TypeKind::kValue, .value = value});
      return Finding{"ranks-axis", name_of(graph, id)};
    }
    return std::nullopt;
  };
}

std::optional<Finding> mesh_of_host(Graph& graph) {
  const StringId host = graph.intern("cpu");
  return mesh([host](MeshValue& m) { m.device = host; })(graph);
}

Damage look_up(MeshCall call, const std::string& invariant,
               const std::function<std::optional<Arg>(const Graph&, const MeshValue&, Arg)>& other) {
  return [=](Graph& graph) -> std::optional<Finding> {
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (mesh_call_of(node) != call) continue;
      const Arg from = arg_of(*graph.context, node, 0);
      const auto mesh = recorded_mesh(*graph.context, graph.step().nodes[from.as_node()]);
      const auto wrong = mesh ? other(graph, *mesh, arg_of(*graph.context, node, 1)) : std::nullopt;
      if (!wrong) continue;
      set_arg(graph, id, 1, *wrong);
      return Finding{invariant, name_of(graph, id)};
    }
    return std::nullopt;
  };
}

// ---------------------------------------------------------------------------- pieces

bool is_rank_slice(const Graph& graph, const Node& node) {
  return node.extra != nullptr && find_entry(*graph.context, node.extra->meta, kElementOfKey) != nullptr;
}
std::optional<Finding> bound_by_numbers(Graph& graph) {
  const NodeId id = find_call(graph, [&](NodeId, const Node& node) { return is_rank_slice(graph, node); });
  if (!id) return std::nullopt;
  const auto dim = static_cast<std::size_t>(arg_of(*graph.context, graph.step().nodes[id], 1).as_int());
  const TensorType* piece = tensor_of(*graph.context, graph.step().nodes[id].type);
  set_arg(graph, id, 2, Arg::integer(0));
  set_arg(graph, id, 3, Arg::integer(*graph.context->exprs.constant(piece->sizes[dim])));
  return Finding{"ranks-baked", name_of(graph, id)};
}
// Readers take the piece that stands beside, as rank 0's own trace has them do.
std::optional<Finding> rank_0s_piece(Graph& graph) {
  const NodeId id = find_call(graph, [&](NodeId, const Node& node) { return is_rank_slice(graph, node); });
  if (!id) return std::nullopt;
  const auto& order = graph.step().order;
  const NodeId piece = *(std::ranges::find(order, id) - 1);
  for (NodeId reader : order)
    map_arguments(*graph.context, graph.step().nodes[reader],
                  [&](Arg arg) { return arg.is_node() && arg.as_node() == id ? Arg::node(piece) : arg; });
  std::erase(graph.step().order, id);
  return Finding{"ranks-baked", name_of(graph, piece)};
}

Damage number(OpFamily family, std::string_view param, std::int64_t by, const std::string& invariant) {
  return [=](Graph& graph) -> std::optional<Finding> {
    const NodeId id = find_call(graph, [&](NodeId, const Node& node) { return has_family(node, family); });
    const auto position = id ? graph.step().nodes[id].op->find_param(param) : std::nullopt;
    if (!position) return std::nullopt;
    const Arg now = arg_of(*graph.context, graph.step().nodes[id], *position);
    set_arg(graph, id, *position, Arg::integer(now.as_int() + by));
    return Finding{invariant, name_of(graph, id)};
  };
}

Damage info(std::string_view key, Arg value, const Finding& finding) {
  return [=](Graph& graph) -> std::optional<Finding> {
    set_info(graph, key, value);
    return finding;
  };
}

std::optional<Finding> listed_group(Graph& graph) {
  Context& context = *graph.context;
  const Arg* listed = find_entry(context, graph.info, kRankGroupsKey);
  if (listed == nullptr) return std::nullopt;
  for (const ProcessGroup& group : graph.groups) {
    const Arg* others = find_entry(context, *listed, graph.text(group.name));
    if (others == nullptr || group.ranks.size() != 2) continue;
    const Arg name = context.args.children(context.args.children(*others)[0])[0];
    const Arg ranks[] = {Arg::integer(group.ranks[0] + 1), Arg::integer(group.ranks[0] + 3)};
    const bool is_right = group.ranks[1] - group.ranks[0] == 2;
    const Arg wrong[] = {Arg::integer(2), Arg::integer(3)};
    const Arg entry[] = {name, context.args.add_tree(ArgKind::kList, is_right ? wrong : ranks)};
    const Arg entries[] = {context.args.add_tree(ArgKind::kList, entry)};
    const Arg all[] = {Arg::text(group.name), context.args.add_tree(ArgKind::kList, entries)};
    set_info(graph, kRankGroupsKey, context.args.add_tree(ArgKind::kDict, all));
    return Finding{"ranks-axis", fmt::format("group {}", graph.text(group.name))};
  }
  return std::nullopt;
}

std::optional<Finding> other_lookup(Graph& graph) {
  NodeId first;
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    if (mesh_call_of(node) != MeshCall::kGroup) continue;
    if (!first) first = id;
    if (node.type == graph.step().nodes[first].type) continue;
    node.type = graph.step().nodes[first].type;
    return Finding{"mesh-group", name_of(graph, id)};
  }
  return std::nullopt;
}

std::optional<Finding> other_device(Graph& graph) {
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    const auto present = graph.context->args[node.kwargs];
    std::vector<Arg> kwargs(present.begin(), present.end());
    const auto at = std::ranges::find_if(kwargs, [&](Arg arg) { return arg.is(ArgKind::kDevice); });
    if (at == kwargs.end()) continue;
    *at = Arg::named(ArgKind::kDevice, graph.intern("cuda:7"));
    node.kwargs = graph.context->args.add(kwargs);
    return Finding{"type", name_of(graph, id)};
  }
  return std::nullopt;
}

const std::vector<std::pair<std::string, Damage>>& damages() {
  static const std::vector<std::pair<std::string, Damage>> kAll = {
      {"rank 0's number", literal([](const RankLiteral& l, const World&) { return l.at(0); })},
      {"the last rank's number",
       literal([](const RankLiteral& l, const World& w) { return l.at(w.size - 1); })},
      {"a number of no rank", literal([](const RankLiteral& l, const World&) { return l.at(0) + 1; })},
      {"factor off by one", factor([](std::int64_t f) { return f + 1; })},
      {"twice the factor", factor([](std::int64_t f) { return 2 * f; })},
      {"half the factor", factor([](std::int64_t f) { return f / 2; })},
      {"coordinate of the other axis", computed([](Graph& graph, NodeId, NodeId coordinate) {
         const Arg dim = arg_of(*graph.context, graph.step().nodes[coordinate], 1);
         set_arg(graph, coordinate, 1, Arg::integer(dim.as_int() == 0 ? 1 : 0));
       })},
      {"gather on the other axis's group", on_group(OpFamily::kAllGather, "ranks-axis", group_of_other_axis)},
      {"reduction on the other axis's group",
       on_group(OpFamily::kReduceScatter, "ranks-axis", group_of_other_axis)},
      {"exchange on the other axis's group",
       on_group(OpFamily::kAllToAll, "ranks-axis", group_of_other_axis)},
      {"sum on the other axis's group", on_group(OpFamily::kAllReduce, "ranks-axis", group_of_other_calls)},
      {"gather on an unknown group", on_group(OpFamily::kAllGather, "groups", unknown_group)},
      {"gather on a smaller group", on_group(OpFamily::kAllGather, "collectives", smaller_group)},
      {"size of the group off by one", number(OpFamily::kAllGather, "group_size", 1, "collectives")},
      {"shares of the reduction off by one",
       number(OpFamily::kReduceScatter, "group_size", 1, "collectives")},
      {"group row that names another axis",
       group_row([](ProcessGroup& row, const ProcessGroup& other) { row.axes = other.axes; })},
      {"group row with another axis's ranks",
       group_row([](ProcessGroup& row, const ProcessGroup& other) { row.ranks = other.ranks; })},
      {"another axis's ranks listed for other ranks", listed_group},
      {"mesh with its axes exchanged", mesh([](MeshValue& m) { std::ranges::reverse(m.axes); })},
      {"mesh transposed", mesh([](MeshValue& m) {
         std::ranges::reverse(m.axes);
         std::ranges::reverse(m.shape);
       })},
      {"mesh with its ranks transposed", mesh([](MeshValue& m) {
         if (m.shape.size() != 2) return;
         const MeshValue before = m;
         for (std::uint32_t i = 0; i < m.shape[0]; ++i)
           for (std::uint32_t j = 0; j < m.shape[1]; ++j)
             m.ranks[i * m.shape[1] + j] = before.ranks[(i * m.shape[1] + j) % m.shape[0] * m.shape[1] +
                                                        (i * m.shape[1] + j) / m.shape[0]];
       })},
      {"mesh through another rank", mesh([](MeshValue& m) {
         for (std::uint32_t& rank : m.ranks) rank += 1;
       })},
      {"mesh with its ranks in another order", mesh([](MeshValue& m) { std::ranges::reverse(m.ranks); })},
      {"mesh of other extents", mesh([](MeshValue& m) {
         if (m.shape.size() != 2 || m.shape[0] == 1) return;
         m.shape = {m.shape[0] * m.shape[1], 1};
       })},
      {"mesh of the host", mesh_of_host},
      {"group looked up that is another's", other_lookup},
      {"submesh of the other axis",
       look_up(MeshCall::kSubmesh, "type",
               [](const Graph& graph, const MeshValue& m, Arg axes) -> std::optional<Arg> {
                 if (m.shape.size() != 2 || !axes.is_list() || axes.children().count != 1)
                   return std::nullopt;
                 const Arg other[] = {Arg::integer(1 - graph.context->args.children(axes)[0].as_int())};
                 return graph.context->args.add_tree(ArgKind::kList, other);
               })},
      {"a piece by rank 0's numbers", bound_by_numbers},
      {"rank 0's piece", rank_0s_piece},
      {"another device", other_device},
      {"another number of ranks", info("world_size", Arg::integer(64), {"ranks-axis", "64 ranks"})},
      {"another rank", info("rank", Arg::integer(1), {"groups", "%"})},
  };
  return kAll;
}

// All that is said of the graph alone: verify, and verify --ranks.
std::string judge(const Graph& graph) {
  std::string said;
  for (const Violation& v : verify_graph(graph))
    said += fmt::format("{}: %{}: {}\n", v.invariant, v.site.node, v.message);
  const auto add = [&](const std::vector<RankViolation>& found) {
    for (const RankViolation& v : found)
      said += fmt::format("{}: {}{}{} {}\n", v.invariant, v.nodes.front().empty() ? "" : "%", v.nodes.front(),
                          v.nodes.front().empty() ? "" : ":", v.message);
  };
  add(find_wrong_axes(graph));
  add(find_baked(graph, find_rank_literals(graph, own_rank(graph)), own_rank(graph)));
  add(find_baked_slices(graph));
  if (!find_wrong_axes(graph).empty()) return said;
  if (said.find("groups: ") != std::string::npos) return said;  // no rank's graph can be made
  std::vector<RankProgram> programs;
  for (Rank rank = 0; rank < read_world(graph).size; ++rank) {
    const Graph own = specialize(graph, {.rank = rank, .baked = BakedNumbers::kKeep}).graph;
    add(find_foreign(own, find_rank_literals(own, rank), rank));
    add(find_foreign_slots(own, rank));
    programs.push_back(list_rank_program(own));
    programs.back().rank = rank;
  }
  add(verify_ranks(programs).violations);
  return said;
}

Graph read_general(const std::string& name) {
  const Graph read = read_graph(fmt::format("{}/testdata/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
  Generalization made = generalize({read}, Repair::kYes);
  REQUIRE(made.graph);
  return *made.graph;
}

// "%ge" but not "%ge_1".
bool names(const std::string& line, const std::string& place) {
  for (std::size_t at = line.find(place); at != std::string::npos; at = line.find(place, at + 1)) {
    const std::size_t end = at + place.size();
    const bool goes_on =
        end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_');
    if (!goes_on || place.back() == '%') return true;
  }
  return false;
}

bool has_line(const std::string& said, const Finding& wanted) {
  for (std::size_t begin = 0; begin < said.size();) {
    const std::size_t end = said.find('\n', begin);
    const std::string line = said.substr(begin, end - begin);
    if (line.starts_with(wanted.invariant + ":") && names(line, wanted.place)) return true;
    begin = end + 1;
  }
  return false;
}

TEST_CASE("a wrong fact of a graph for all ranks is named") {
  std::map<std::string, std::size_t> tried;
  for (const char* name :
       {"graphs/llama3_debug_fsdp2_tp2_coor.0_traced", "graphs/dsv3_debug_ep2_coor.0_traced",
        "general/dsv3_debug_fsdp2_tp2_ep4_L2", "general/qwen3_moe_fsdp2_tp2_ep2_L2"}) {
    const Graph general = read_general(name);
    CHECK(judge(general) == "");
    for (const auto& [what, damage] : damages()) {
      Graph graph = general;
      const auto wanted = damage(graph);
      if (!wanted) continue;
      ++tried[what];
      const std::string said = judge(graph);
      INFO(name << ": " << what << ": " << wanted->invariant << " at " << wanted->place
                << "\nsaid: " << said.substr(0, 600));
      CHECK(has_line(said, *wanted));
    }
  }
  for (const auto& [what, damage] : damages()) {
    INFO(what);
    CHECK(tried[what] > 0);
  }
}

}  // namespace
}  // namespace epweave::general_damage
