#include "passes/generalize/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/devices_on_rank.h"
#include "analysis/rank_view.h"

namespace epweave {
namespace {

// Keys of info that may differ between the ranks of a job.
bool may_differ(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"rank", "device", "trace_seconds", "passes_run", "name"};
  return std::ranges::find(kKeys, key) != std::end(kKeys) || key == kRankGroupsKey ||
         key == kRankDevicesKey || key == kRankAgnosticKey;
}

// What one of them records of the job, and the other does not or otherwise.
std::optional<std::string_view> find_other_info(const Graph& a, const Graph& b) {
  const Context& context = *a.context;
  if (!a.info.is(ArgKind::kDict)) return std::nullopt;
  const auto items = context.args.children(a.info);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!items[i].is(ArgKind::kText) || may_differ(context.text(items[i].as_name()))) continue;
    const Arg* other = find_entry(context, b.info, context.text(items[i].as_name()));
    if (other == nullptr || !context.args.equal(items[i + 1], *other))
      return context.text(items[i].as_name());
  }
  return std::nullopt;
}

void require_same_info(const Graph& a, const Graph& b, Rank rank) {
  auto key = find_other_info(a, b);
  if (!key) key = find_other_info(b, a);
  if (key)
    throw InputError(fmt::format("rank {}'s graph is of another job: its info '{}' differs from rank {}'s",
                                 rank, *key, own_rank(a)));
}
std::string has(const RankJob& job, std::size_t graph, std::string_view what) {
  return fmt::format("rank {}'s graph {}", job.ranks[graph], what);
}

std::string print_role(const Context& context, StringId role, StringId name) {
  return fmt::format("{}{}{}", role ? context.text(role) : "a value", name ? " " : "",
                     name ? context.text(name) : "");
}

// Stages of a pipeline may be one program of other parameters.
std::optional<std::string> find_other_role(const RankJob& job, std::size_t g) {
  const Context& context = job.context();
  const Graph &base = job.graphs[0], &other = job.graphs[g];
  for (std::size_t i = 0; i < base.inputs.size(); ++i) {
    const InputRole &x = base.inputs[i], &y = other.inputs[i];
    if (x.role == y.role && x.fqn == y.fqn && x.which == y.which && context.args.equal(x.more, y.more))
      continue;
    return fmt::format("has {} as input {}, rank {}'s {}{}",
                       print_role(context, y.role, y.fqn ? y.fqn : y.which), i, job.ranks[0],
                       print_role(context, x.role, x.fqn ? x.fqn : x.which),
                       x.fqn == y.fqn && x.which == y.which ? ", of which other facts are recorded" : "");
  }
  for (std::size_t i = 0; i < base.outputs.size(); ++i) {
    const OutputRole &x = base.outputs[i], &y = other.outputs[i];
    if (x.role == y.role && x.fqn == y.fqn) continue;
    return fmt::format("returns {} as output {}, rank {}'s {}", print_role(context, y.role, y.fqn), i,
                       job.ranks[0], print_role(context, x.role, x.fqn));
  }
  return std::nullopt;
}

std::optional<std::string> find_other_symbol(const RankJob& job, std::size_t g) {
  const Context& context = job.context();
  const Graph &base = job.graphs[0], &other = job.graphs[g];
  if (base.symbols.size() != other.symbols.size()) return "has another number of symbols";
  for (std::size_t i = 0; i < base.symbols.size(); ++i) {
    const Symbol &x = base.symbols[i], &y = other.symbols[i];
    if (x.name != y.name)
      return fmt::format("has symbol {} where rank {}'s has {}", context.text(y.name), job.ranks[0],
                         context.text(x.name));
    if (x.lower != y.lower || x.upper != y.upper || x.replaced_by != y.replaced_by)
      return fmt::format("has another range of symbol {} than rank {}'s", context.text(x.name), job.ranks[0]);
  }
  return std::nullopt;
}

std::string print_call(const Context& context, const Node& node) {
  return fmt::format("%{} ({}{}{})", context.text(node.name), context.text(node.target),
                     node.module ? ", " : "", context.text(node.module));
}

std::optional<std::string> find_other_call(const RankJob& job, std::size_t g, std::size_t b) {
  const Context& context = job.context();
  const Body &base = job.graphs[0].bodies[b], &body = job.graphs[g].bodies[b];
  const std::size_t count = std::min(body.order.size(), base.order.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Node &x = base.nodes[base.order[i]], &y = body.nodes[body.order[i]];
    if (x.kind != y.kind || x.target != y.target || x.args.count != y.args.count ||
        x.kwargs.count != y.kwargs.count || x.module != y.module)
      return fmt::format("has {} where rank {}'s has {}", print_call(context, y), job.ranks[0],
                         print_call(context, x));
  }
  if (body.order.size() != base.order.size())
    return fmt::format("has {} nodes where rank {}'s has {}", body.order.size(), job.ranks[0],
                       base.order.size());
  return std::nullopt;
}

std::optional<std::string> find_other_interface(const RankJob& job, std::size_t g) {
  const Graph &base = job.graphs[0], &other = job.graphs[g];
  if (other.bodies.size() != base.bodies.size()) return "has another number of nested graphs";
  if (other.inputs.size() != base.inputs.size() || other.outputs.size() != base.outputs.size())
    return "has another number of inputs or outputs";
  if (auto what = find_other_role(job, g)) return what;
  return find_other_symbol(job, g);
}

}  // namespace

RankJob read_job(const std::vector<Graph>& graphs) {
  RankJob job{.graphs = graphs, .worlds = {}, .ranks = {}};
  for (const Graph& graph : graphs) {
    const World world = read_world(graph);
    if (!job.worlds.empty() && world.size != job.size())
      throw InputError(fmt::format("rank {}'s graph is of a world of {} ranks, rank {}'s of one of {}",
                                   world.file_rank, world.size, job.ranks[0], job.size()));
    if (std::ranges::find(job.ranks, world.file_rank) != job.ranks.end())
      throw InputError(fmt::format("two graphs are of rank {}; give each rank once", world.file_rank));
    require_same_info(graphs[0], graph, world.file_rank);
    job.ranks.push_back(world.file_rank);
    job.worlds.push_back(world);
  }
  return job;
}

std::optional<std::string> find_structure_difference(const RankJob& job) {
  for (std::size_t g = 1; g < job.graphs.size(); ++g)
    if (const auto what = find_other_interface(job, g)) return has(job, g, *what);
  for (std::size_t b = 0; b < job.graphs[0].bodies.size(); ++b)
    for (std::size_t g = 1; g < job.graphs.size(); ++g)
      if (const auto what = find_other_call(job, g, b)) return has(job, g, *what);
  return std::nullopt;
}

}  // namespace epweave
