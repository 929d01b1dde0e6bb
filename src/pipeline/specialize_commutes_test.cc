// A pass on the graph for all ranks and then specialize gives the graph that specialize and then
// the pass give, node by node: for every pass and preset of the registry, with each choice of each
// option.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "analysis/rank_view.h"
#include "io/file.h"
#include "passes/generalize.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

Graph read_repaired(const char* name) {
  const Graph graph = read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
  Generalization made = generalize({graph}, Repair::kYes);
  REQUIRE(made.graph);
  return *made.graph;
}

// What a pass needs in front of it to have something to do.
std::string preparation_of(std::string_view pass) {
  if (pass == "overlap-ep") return "dce,canonicalize,dedup-unshard,chunk,isolate-ep-pg,dce,";
  if (pass == "recompute") return "dce,canonicalize,dedup-unshard,memory-policy,";
  if (pass == "cpu-offload")
    return "dce,canonicalize,dedup-unshard,memory-policy{policy=sac-and-offload},recompute,";
  if (pass == "dce" || pass == "canonicalize" || pass == "dedup-unshard") return "";
  return "dce,canonicalize,dedup-unshard,";
}

// What a choice of an option cannot be without.
std::string_view option_beside(std::string_view pass, std::string_view option, std::string_view choice) {
  if (choice == "budget") return ",recompute-ms=1000";
  return pass == "bucket" && option == "unpriced" ? ",plan=overlap" : "";
}

// "chunk", "chunk{dim=seq}", ..: the defaults, and each other choice of one option.
std::vector<std::string> list_calls(std::string_view name, const std::vector<OptionSpec>& options) {
  std::vector<std::string> calls = {std::string(name)};
  for (const OptionSpec& option : options) {
    if (option.kind != OptionKind::kChoice || option.name == "effort") continue;  // how long it searches
    for (std::string_view choice : option.choices)
      if (choice != option.fallback)
        calls.push_back(fmt::format("{}{{{}={}{}}}", name, option.name, choice,
                                    option_beside(name, option.name, choice)));
  }
  return calls;
}

struct Outcome {
  std::optional<Graph> graph;
  std::string refusal;
};

Outcome run(const Graph& graph, const std::vector<Pipeline>& pipelines) {
  Graph made = graph;
  try {
    for (const Pipeline& pipeline : pipelines)
      made = run_pipeline(made, pipeline, {.verify = VerifyPolicy::kOff});
  } catch (const PassError& error) {
    return {{}, error.id()};
  }
  return {std::move(made), ""};
}

// The first node that is not the same, names of nodes aside; none: all are.
std::string find_difference(const Graph& a, const Graph& b) {
  const Context& context = *a.context;
  const Body &x = a.step(), &y = b.step();
  SideTable<NodeId, NodeId> in_a;
  for (std::size_t i = 0; i < std::min(x.order.size(), y.order.size()); ++i) {
    const Node &m = x.nodes[x.order[i]], &n = y.nodes[y.order[i]];
    in_a.at(y.order[i]) = x.order[i];
    const auto follow = [&](Arg arg) { return arg.is_node() ? Arg::node(in_a[arg.as_node()]) : arg; };
    const auto same = [&](ArgRange p, ArgRange q) {
      const ArgRange mapped = a.context->args.map(q, follow);
      return std::ranges::equal(context.args[p], context.args[mapped],
                                [&](Arg r, Arg s) { return context.args.equal(r, s); });
    };
    const bool is_same = m.kind == n.kind && m.type == n.type && m.module == n.module &&
                         m.recompute == n.recompute && same(m.args, n.args) && same(m.kwargs, n.kwargs) &&
                         (m.kind != NodeKind::kCall || m.target == n.target);
    if (!is_same)
      return fmt::format("node {}: %{} = {} and %{} = {}", i, a.text(m.name), a.text(m.target),
                         b.text(n.name), b.text(n.target));
  }
  if (x.order.size() != y.order.size()) return fmt::format("{} and {} nodes", x.order.size(), y.order.size());
  return "";
}

std::vector<std::pair<std::string_view, std::vector<Rank>>> list_groups(const Graph& graph) {
  std::vector<std::pair<std::string_view, std::vector<Rank>>> groups;
  for (const ProcessGroup& group : graph.groups) groups.emplace_back(graph.text(group.name), group.ranks);
  std::ranges::sort(groups);
  return groups;
}

// Whether the pipeline ran; then both ways gave the same.
bool commutes(const Graph& graph, const Pipeline& pipeline) {
  const Pipeline specialize = parse_pipeline("specialize{rank=3}");
  const Outcome later = run(graph, {pipeline, specialize}), first = run(graph, {specialize, pipeline});
  INFO(print_pipeline(pipeline));
  CHECK(later.refusal == first.refusal);
  if (!later.graph || !first.graph) return false;
  CHECK(find_difference(*later.graph, *first.graph) == "");
  CHECK(list_groups(*later.graph) == list_groups(*first.graph));
  return true;
}

TEST_CASE("a pass commutes with specialize", "[slow]") {
  const std::vector<Graph> graphs = {read_repaired("dsv3_debug_ep2_coor.0_traced"),
                                     read_repaired("llama3_debug_fsdp2_tp2_coor.0_traced")};
  std::map<std::string, bool> ran;  // by name
  for (const Graph& graph : graphs) {
    for (const PassInfo& pass : registry().passes) {
      // A fused call takes its group by name, which a graph for all ranks looks up: async-tp leaves
      // those alone, with a note that says to specialize first.
      if (pass.name == "specialize" || pass.name == "async-tp") continue;
      for (const std::string& call : list_calls(pass.name, pass.options))
        ran[std::string(pass.name)] |= commutes(graph, parse_pipeline(preparation_of(pass.name) + call));
    }
    for (const PresetInfo& preset : registry().presets)
      for (const std::string& call : list_calls(preset.name, preset.options))
        ran[std::string(preset.name)] |= commutes(graph, expand_preset(call));
  }
  for (const auto& [name, has_run] : ran) {
    INFO(name);
    CHECK(has_run);
  }
}

}  // namespace
}  // namespace epweave
