#include "passes/extra_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "ops/bind.h"

namespace epweave {

const ProcessGroup& find_group(const Graph& graph, std::string_view pass, const Node& user, StringId name) {
  const auto decline = [&](std::string_view problem, const char* remedy) {
    throw PassError(fmt::format("{}.group", pass),
                    fmt::format("process group {} is {}", graph.text(name), problem), site_of(graph, user),
                    remedy);
  };
  const ProcessGroup* found = nullptr;
  for (const ProcessGroup& group : graph.groups) {
    if (group.name != name) continue;
    if (found != nullptr && found->ranks != group.ranks)
      decline("listed with different ranks", "list each process group once");
    if (found == nullptr) found = &group;
  }
  if (found == nullptr) decline("not in the graph's table", "export the graph with its process groups");
  return *found;
}

StringId provide_extra_group(Graph& graph, const ProcessGroup& source, const ExtraGroup& extra) {
  const StringId description = graph.intern(extra.description);
  for (const ProcessGroup& group : graph.groups)
    if (group.split_from == source.name && group.description == description) return group.name;
  const std::string base = fmt::format("{}_{}", graph.text(source.name), extra.description);
  auto is_taken = [&](StringId name) {
    return std::any_of(graph.groups.begin(), graph.groups.end(),
                       [&](const ProcessGroup& g) { return g.name == name; });
  };
  StringId name = graph.intern(base);
  for (int i = 2; is_taken(name); ++i) name = graph.intern(fmt::format("{}_{}", base, i));
  ProcessGroup made;
  made.name = name;
  made.ranks = source.ranks;
  made.description = description;
  if (!extra.priority.empty()) made.priority = graph.intern(extra.priority);
  made.split_from = source.name;
  made.backend = source.backend;
  graph.groups.push_back(std::move(made));
  return name;
}

Arg named_group(const Graph& graph, Arg group) {
  if (!group.is_node()) return group;
  const TypeId type = graph.step().nodes[group.as_node()].type;
  if (!type || graph.context->types[type].kind != TypeKind::kValue) return group;
  const Arg recorded = graph.context->types[type].value;
  return recorded.is(ArgKind::kProcessGroup) ? Arg::text(recorded.as_name()) : group;
}

void set_group(Context& context, Node& launch, StringId name) {
  const std::size_t param = group_position(*launch.op);
  const Arg group = arg_of(context, launch, param);
  set_arg(context, launch, param, Arg::named(group.is_node() ? ArgKind::kText : group.kind(), name));
}

}  // namespace epweave
