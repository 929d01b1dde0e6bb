// One rank's graph with one wrong fact among those of its job: generalize and ranks-baked name it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "compare/ranks/rank_baked.h"
#include "compare/set_arg_test.h"
#include "io/file.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "passes/generalize/generalize.h"
#include "passes/specialize.h"

namespace epweave {
namespace {

constexpr Rank kDamaged = 1;

struct Job {
  std::vector<Graph> ranks;
};

// Ranks of one graph, in one context.
Job make_job(const char* name) {
  const Graph traced = read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
  const Generalization general = generalize({traced}, Repair::kYes);
  REQUIRE(general.graph);
  Job job;
  for (Rank rank = 0; rank < read_world(traced).size; ++rank)
    job.ranks.push_back(specialize(*general.graph, {.rank = rank}).graph);
  return job;
}

// Makes one fact wrong. Returns what is to be said of it; none: the graph has no such fact.
using Damage = std::function<std::optional<std::string>(Graph& graph, const Job& job)>;

// As messages of a node begin: "%ge" but not "%ge_1".
std::string name_of(const Graph& graph, NodeId id) {
  return fmt::format("%{}:", graph.text(graph.step().nodes[id].name));
}

// The first node of the kind, or none.
NodeId find_node(const Graph& graph, const std::function<bool(const Node&)>& is_wanted) {
  for (NodeId id : graph.step().order)
    if (is_wanted(graph.step().nodes[id])) return id;
  return {};
}

Damage literal(const std::function<std::int64_t(const RankLiteral&)>& wrong) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    for (const RankLiteral& found : find_rank_literals(graph, kDamaged).proved) {
      if (!found.value.is_int() || wrong(found) == found.value.as_int()) continue;
      set_arg(graph, found.node, found.argument, Arg::integer(wrong(found)));
      return name_of(graph, found.node);
    }
    return std::nullopt;
  };
}

// On the first collective of the family.
Damage group(OpFamily family, const std::function<std::optional<StringId>(const Graph&, StringId)>& other) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (node.op == nullptr || node.op->family != family) continue;
      const auto position = node.op->find_param("group_name");
      const Arg* named = position ? find_arg(*graph.context, node, *position, "group_name") : nullptr;
      if (named == nullptr || !named->is(ArgKind::kText)) continue;
      const auto wrong = other(graph, named->as_name());
      if (!wrong) continue;
      set_arg(graph, id, *position, Arg::text(*wrong));
      return name_of(graph, id);
    }
    return std::nullopt;
  };
}

std::optional<StringId> other_axis(const Graph& graph, StringId name) {
  const auto row = std::ranges::find(graph.groups, name, &ProcessGroup::name);
  for (const ProcessGroup& other : graph.groups)
    if (row != graph.groups.end() && other.ranks != row->ranks && other.ranks.size() > 1) return other.name;
  return std::nullopt;
}

std::optional<StringId> unknown_group(const Graph& graph, StringId) {
  return graph.intern("no such group");
}

// The mesh of the first input whose mesh this changes.
Damage mesh(const std::function<void(MeshValue&, const Job&)>& change) {
  return [=](Graph& graph, const Job& job) -> std::optional<std::string> {
    for (NodeId id : graph.step().order) {
      Node& node = graph.step().nodes[id];
      const auto before = recorded_mesh(*graph.context, node);
      if (!before || node.kind != NodeKind::kPlaceholder) continue;
      MeshValue after = *before;
      change(after, job);
      const Arg value = write_mesh(*graph.context, after);
      if (graph.context->args.equal(value, write_mesh(*graph.context, *before))) continue;
      node.type = graph.context->types.intern({.kind = TypeKind::kValue, .value = value});
      return name_of(graph, id);
    }
    return std::nullopt;
  };
}

// A whole number argument of the first call of the family that has one there.
Damage number(OpFamily family, std::string_view param, std::int64_t by) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      const auto position =
          node.op != nullptr && node.op->family == family ? node.op->find_param(param) : std::nullopt;
      if (!position || *position >= node.args.count) continue;
      const Arg value = graph.context->args[node.args][*position];
      if (!value.is_int()) continue;
      set_arg(graph, id, *position, Arg::integer(value.as_int() + by));
      return name_of(graph, id);
    }
    return std::nullopt;
  };
}

Damage keyword(ArgKind kind, std::string_view wrong) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    for (NodeId id : graph.step().order) {
      Node& node = graph.step().nodes[id];
      const auto present = graph.context->args[node.kwargs];
      std::vector<Arg> kwargs(present.begin(), present.end());
      const auto at = std::ranges::find_if(kwargs, [&](Arg arg) { return arg.is(kind); });
      if (at == kwargs.end()) continue;
      *at = Arg::named(kind, graph.intern(wrong));
      node.kwargs = graph.context->args.add(kwargs);
      return name_of(graph, id);
    }
    return std::nullopt;
  };
}

Damage edit(OpFamily family, const std::function<void(Graph&, NodeId)>& change) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    const NodeId id =
        find_node(graph, [&](const Node& node) { return node.op != nullptr && node.op->family == family; });
    if (!id) return std::nullopt;
    const std::string said = fmt::format("where rank 0's has %{} ", graph.text(graph.step().nodes[id].name));
    change(graph, id);
    return said;
  };
}

Damage info(std::string_view key, Arg value, std::string said) {
  return [=](Graph& graph, const Job&) -> std::optional<std::string> {
    set_info(graph, key, value);
    return said;
  };
}

const std::vector<std::pair<std::string, Damage>>& damages() {
  static const std::vector<std::pair<std::string, Damage>> kAll = {
      {"offset off by one", literal([](const RankLiteral& l) { return l.value.as_int() + 1; })},
      {"rank 0's offset", literal([](const RankLiteral& l) { return l.at(0); })},
      {"twice the offset", literal([](const RankLiteral& l) { return 2 * l.value.as_int(); })},
      {"offset of another place", literal([](const RankLiteral& l) { return l.value.as_int() + l.scale; })},
      {"no offset", literal([](const RankLiteral&) { return 0; })},
      {"gather on the other axis's group", group(OpFamily::kAllGather, other_axis)},
      {"reduction on the other axis's group", group(OpFamily::kReduceScatter, other_axis)},
      {"gather on an unknown group", group(OpFamily::kAllGather, unknown_group)},
      {"exchange on the other axis's group", group(OpFamily::kAllToAll, other_axis)},
      {"mesh transposed", mesh([](MeshValue& m, const Job&) {
         std::ranges::reverse(m.shape);
         std::ranges::reverse(m.axes);
       })},
      {"mesh through another rank", mesh([](MeshValue& m, const Job&) {
         for (std::uint32_t& rank : m.ranks) rank += 1;
       })},
      {"mesh with its ranks in another order",
       mesh([](MeshValue& m, const Job&) { std::ranges::reverse(m.ranks); })},
      {"axis of another name",
       mesh([](MeshValue& m, const Job& job) { m.axes.front() = job.ranks.front().intern("other"); })},
      {"size of the group off by one", number(OpFamily::kAllGather, "group_size", 1)},
      {"shares of the reduction off by one", number(OpFamily::kReduceScatter, "group_size", 1)},
      {"another element", number(OpFamily::kElement, "index", 1)},
      {"another device", keyword(ArgKind::kDevice, "cuda:7")},
      {"another dtype", keyword(ArgKind::kDType, "torch.float64")},
      {"a node that the others do not have",
       edit(OpFamily::kWait, [](Graph& graph, NodeId id) { std::erase(graph.step().order, id); })},
      {"another number of ranks", info("world_size", Arg::integer(64), "of a world of 64 ranks")},
      {"another number of parameters",
       info("num_static_inputs", Arg::integer(7), "its info 'num_static_inputs' differs")},
      {"another seed", info("seed", Arg::integer(7), "its info 'seed' differs")},
  };
  return kAll;
}

// Who names the wrong fact: nodes of the generalization, or the message of who refuses it.
std::string find(const std::vector<Graph>& graphs) {
  std::string said;
  const Graph& damaged = graphs[kDamaged];
  for (const RankViolation& v : find_foreign(damaged, find_rank_literals(damaged, kDamaged), kDamaged))
    said += fmt::format("%{}: {}\n", v.nodes.front(), v.invariant);
  try {
    const Generalization made = generalize(graphs, Repair::kNo);
    for (const Unexplained& u : made.unexplained) said += fmt::format("%{}: {}\n", u.site.node, u.why);
    if (made.structure) said += *made.structure + "\n";
    if (!made.graph) return said;
    return "";
  } catch (const InputError& error) {
    return said + error.what();
  } catch (const UsageError& error) {
    return said + error.what();
  } catch (const PassError& error) {
    return said + "%" + error.site().node + ": " + error.problem();
  }
}

TEST_CASE("a wrong fact of one rank is named") {
  std::map<std::string, std::size_t> tried;
  for (const char* name : {"llama3_debug_fsdp2_tp2_coor.0_traced", "dsv3_debug_ep2_coor.0_traced",
                           "dsv3_debug_fsdp2_tp2_ep4.0_traced"}) {
    const Job job = make_job(name);
    REQUIRE(generalize(job.ranks, Repair::kNo).graph);
    for (const auto& [what, damage] : damages()) {
      std::vector<Graph> graphs = job.ranks;
      const auto where = damage(graphs[kDamaged], job);
      if (!where) continue;
      ++tried[what];
      INFO(name << ": " << what << " at " << *where);
      CHECK_THAT(find(graphs), Catch::Contains(*where));
    }
  }
  for (const auto& [what, damage] : damages()) {
    INFO(what);
    CHECK(tried[what] > 0);
  }
}

}  // namespace
}  // namespace epweave
