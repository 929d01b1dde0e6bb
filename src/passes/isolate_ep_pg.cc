#include "passes/isolate_ep_pg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "ir/op.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr std::string_view kDescription = "ep_extra";

bool is_ep_exchange(const Node& node) {
  static const OpInfo* const all_to_all = find_op("_c10d_functional.all_to_all_single.default");
  const EpLabels& ep = node.ep;
  return node.op == all_to_all &&
         (ep.ep || ep.token_exchange || ep.token_count_exchange || ep.token_count_sync);
}

// What is launched on one group.
struct GroupUse {
  Arg group;
  std::vector<NodeId> exchanges;
  NodeId other;  // the first launch that is no token exchange
};

// In order of their first launch.
std::vector<GroupUse> list_group_uses(const Graph& graph) {
  std::vector<GroupUse> uses;
  std::map<std::pair<ArgKind, std::uint64_t>, std::size_t> index;
  const Body& body = graph.step();
  for (const Launch& launch : find_launches(*graph.context, body)) {
    const auto [at, is_new] = index.try_emplace({launch.group.kind(), launch.group.bits()}, uses.size());
    if (is_new) uses.push_back({launch.group, {}, {}});
    GroupUse& use = uses[at->second];
    if (is_ep_exchange(body.nodes[launch.node])) {
      use.exchanges.push_back(launch.node);
    } else if (!use.other) {
      use.other = launch.node;
    }
  }
  return uses;
}

[[noreturn]] void decline(const Graph& graph, const GroupUse& use, const std::string& problem,
                          std::string remedy) {
  throw PassError("isolate-ep-pg.group", problem, site_of(graph, graph.step().nodes[use.exchanges.front()]),
                  std::move(remedy));
}

const ProcessGroup& find_group(const Graph& graph, const GroupUse& use) {
  const StringId name = use.group.as_name();
  const ProcessGroup* found = nullptr;
  for (const ProcessGroup& group : graph.groups) {
    if (group.name != name) continue;
    if (found != nullptr && found->ranks != group.ranks)
      decline(graph, use,
              fmt::format("process group {} is listed with different ranks (G-1)", graph.text(name)),
              "list each process group once");
    if (found == nullptr) found = &group;
  }
  if (found == nullptr)
    decline(graph, use, fmt::format("process group {} is not in the graph's table (G-1)", graph.text(name)),
            "export the graph with its process groups");
  return *found;
}

// The extra group split from `source`, made if there is none yet.
StringId provide_extra_group(Graph& graph, const ProcessGroup source) {
  const StringId description = graph.intern(kDescription);
  for (const ProcessGroup& group : graph.groups)
    if (group.split_from == source.name && group.description == description) return group.name;
  const std::string base = fmt::format("{}_{}", graph.text(source.name), kDescription);
  auto is_taken = [&](StringId name) {
    return std::any_of(graph.groups.begin(), graph.groups.end(),
                       [&](const ProcessGroup& g) { return g.name == name; });
  };
  StringId name = graph.intern(base);
  for (int i = 2; is_taken(name); ++i) name = graph.intern(fmt::format("{}_{}", base, i));
  ProcessGroup extra;
  extra.name = name;
  extra.ranks = source.ranks;
  extra.description = description;
  extra.priority = graph.intern("high");
  extra.split_from = source.name;
  extra.backend = source.backend;
  graph.groups.push_back(std::move(extra));
  return name;
}

void set_group(Context& context, Node& node, StringId name) {
  const std::size_t position = group_position(*node.op);
  const bool is_positional = position < node.args.count;
  ArgRange& range = is_positional ? node.args : node.kwargs;
  const auto present = context.args[range];
  std::vector<Arg> args(present.begin(), present.end());
  for (std::size_t i = is_positional ? position : 0; i < args.size(); ++i) {
    Arg& arg = is_positional ? args[i] : args[i + 1];
    const bool is_group = is_positional || context.text(args[i].as_name()) == "group_name";
    if (is_group) {
      arg = Arg::named(arg.kind(), name);
      break;
    }
    ++i;  // to the next name
  }
  range = context.args.add(args);
}

}  // namespace

PassResult isolate_ep_pg(const Graph& graph) {
  PassResult result{graph};
  const StringId pass = graph.intern("isolate-ep-pg");
  bool are_looked_up = false;
  for (const GroupUse& use : list_group_uses(graph)) {
    if (use.exchanges.empty()) continue;
    are_looked_up |= use.group.is_node();
    if (!use.other) continue;
    const std::string_view source = name_of_group(*graph.context, graph.step(), use.group);
    if (!use.group.is(ArgKind::kText) && !use.group.is(ArgKind::kProcessGroup))
      decline(
          graph, use,
          fmt::format(
              "token exchanges share the process group that {} looks up with {}; a group that is looked up "
              "at run time cannot be split here",
              source, graph.text(graph.step().nodes[use.other].name)),
          "leave isolate-ep-pg out, or trace the graph for one rank");
    const StringId extra = provide_extra_group(result.graph, find_group(graph, use));
    const StringId reason = graph.intern(fmt::format("process group {} -> {}", source, graph.text(extra)));
    for (NodeId id : use.exchanges) {
      Node& node = result.graph.step().nodes[id];
      set_group(*graph.context, node, extra);
      record_specialized(*graph.context, node, pass, reason);
    }
    result.notes.push_back(fmt::format("{} exchanges moved from process group {}, which {} uses too, to {}",
                                       use.exchanges.size(), source,
                                       graph.text(graph.step().nodes[use.other].name), graph.text(extra)));
  }
  if (are_looked_up && result.notes.empty())
    result.notes.push_back(
        "the exchanges' process group is looked up at run time, in a mesh axis that no other collective "
        "names: left as "
        "it is");
  return result;
}

}  // namespace epweave
