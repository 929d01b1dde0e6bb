#include "compare/ranks/rank_axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/devices_on_rank.h"
#include "analysis/global_meshes.h"
#include "analysis/placeholders.h"
#include "analysis/rank_view.h"
#include "analysis/returned_values.h"
#include "analysis/unshard.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "compare/ranks/modules_alike.h"
#include "compare/ranks/rank_groups.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Of the family's gradient; none: it says nothing of the group.
std::optional<OpFamily> family_of_gradient(OpFamily family) {
  if (family == OpFamily::kAllGather) return OpFamily::kReduceScatter;
  if (family == OpFamily::kReduceScatter) return OpFamily::kAllGather;
  if (family == OpFamily::kAllToAll) return OpFamily::kAllToAll;
  return std::nullopt;
}

std::string print_axes(const std::vector<std::string>& axes, const std::vector<std::uint32_t>& shape) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : " x ", axes[i], shape[i]);
  return text;
}

// A mesh's axes with their extents, and its ranks, row-major.
struct MeshLayout {
  std::vector<std::string> axes;
  std::vector<std::uint32_t> shape, ranks;

  bool operator==(const MeshLayout&) const = default;
  std::string print() const {
    return fmt::format("{} with ranks {}", print_axes(axes, shape), print_members(ranks));
  }
};

class AxisCheck {
 public:
  explicit AxisCheck(const Graph& graph)
      : graph_(graph), context_(*graph.context), body_(graph.step()), world_(read_world(graph)) {
    for (Mesh& mesh : read_global_meshes(graph))
      if (mesh.size() != world_.size) partial_meshes_.push_back(std::move(mesh));
  }

  std::vector<RankViolation> find() {
    check_world();
    check_meshes();
    check_devices();
    for (const ProcessGroup& group : graph_.groups) check_group(group);
    check_listed_groups();
    check_gradients();
    check_reductions();
    return std::move(found_);
  }

 private:
  void add(std::string_view node, std::string message) {
    RankViolation made{.invariant = "ranks-axis", .message = std::move(message), .ranks = {world_.file_rank}};
    made.nodes = {std::string(node)};
    found_.push_back(std::move(made));
  }

  // ------------------------------------------------------------------------ meshes

  // Some of the job's meshes have all ranks, or the graph names ranks that none of them has.
  void check_world() {
    const Arg* meshes = find_entry(context_, graph_.info, "global_meshes");
    const std::int64_t size = recorded_world_size(graph_);
    const bool has_meshes = meshes != nullptr && meshes->is(ArgKind::kDict) && meshes->children().count != 0;
    if (!has_meshes || !world_.meshes.empty() || size == 0) return;
    if (!partial_meshes_.empty() &&
        names_ranks_from(std::ranges::max(partial_meshes_, {}, &Mesh::size).size()))
      return;
    add("", fmt::format("no mesh of the job (global_meshes) has all {} ranks (world_size)", size));
  }
  bool names_ranks_from(std::uint32_t first) const {
    const auto is_beyond = [&](Rank rank) { return rank >= first && rank < world_.size; };
    return is_beyond(world_.file_rank) || std::ranges::any_of(graph_.groups, [&](const ProcessGroup& group) {
             return std::ranges::any_of(group.ranks, is_beyond);
           });
  }

  void check_meshes() {
    std::map<TypeId, std::optional<std::string>> problems;  // many inputs have one mesh
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (!node.type || context_.types[node.type].kind != TypeKind::kValue) continue;
      const auto [known, is_new] = problems.try_emplace(node.type);
      if (is_new)
        if (const auto mesh = recorded_mesh(context_, node)) known->second = find_problem(*mesh);
      if (known->second) add(graph_.text(node.name), *known->second);
    }
  }
  std::optional<std::string> find_problem(const MeshValue& mesh) const {
    MeshLayout layout{{}, mesh.shape, mesh.ranks};
    for (StringId axis : mesh.axes) layout.axes.emplace_back(graph_.text(axis));
    std::optional<MeshLayout> wanted;
    for (const Mesh& of_job : world_.meshes) {
      const auto own = layout_in(of_job, layout.axes);
      if (own == layout) return std::nullopt;
      if (own && !wanted) wanted = own;
    }
    if (!wanted || is_of_partial_mesh(layout.axes, layout.shape)) return std::nullopt;
    return fmt::format("the mesh is {}; the job's (global_meshes) is {}", layout.print(), wanted->print());
  }
  // The mesh of these axes through the file's rank. None: the job's has not all of them.
  std::optional<MeshLayout> layout_in(const Mesh& mesh, const std::vector<std::string>& axes) const {
    MeshLayout layout{{}, {}, {world_.file_rank}};
    for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
      if (std::ranges::find(axes, mesh.axes[axis]) == axes.end()) continue;
      layout.axes.push_back(mesh.axes[axis]);
      layout.shape.push_back(mesh.shape[axis]);
      std::vector<Rank> ranks;
      for (Rank rank : layout.ranks)
        for (Rank member : members_along(mesh, axis, rank)) ranks.push_back(member);
      layout.ranks = std::move(ranks);
    }
    return layout.axes.size() == axes.size() ? std::optional(std::move(layout)) : std::nullopt;
  }

  // Of a mesh of some ranks nothing says which these are.
  bool is_of_partial_mesh(const std::vector<std::string>& axes,
                          const std::vector<std::uint32_t>& shape) const {
    return std::ranges::any_of(partial_meshes_, [&](const Mesh& mesh) {
      std::size_t found = 0;  // of them, in the mesh's order
      for (std::size_t axis = 0; axis < mesh.axes.size() && found < axes.size(); ++axis)
        if (mesh.axes[axis] == axes[found] && mesh.shape[axis] == shape[found]) ++found;
      return found == axes.size();
    });
  }

  // A shard is on a device of its mesh. (Where all are kept on the host, no mesh is of that.)
  void check_devices() {
    std::map<std::pair<StringId, StringId>, std::string> kinds;  // of tensors, by role and name
    std::vector<const InputRole*> of_meshes;
    std::map<std::string, std::size_t> count;
    const std::map<StringId, NodeId> placeholders = list_placeholders(graph_);
    const auto type_of = [&](const InputRole& input) {
      const auto at = placeholders.find(input.name);
      return at != placeholders.end() ? body_.nodes[at->second].type : TypeId();
    };
    for (const InputRole& input : graph_.inputs) {
      const TypeId type = type_of(input);
      if (!input.fqn || !type) continue;
      if (const TensorType* tensor = tensor_of(context_, type))
        kinds.emplace(std::pair(input.role, input.fqn), kind_of(tensor->device));
      if (const auto mesh = read_mesh(context_, context_.types[type].value)) {
        of_meshes.push_back(&input);
        ++count[kind_of(mesh->device)];
      }
    }
    for (const InputRole* input : of_meshes) {
      const auto shard = kinds.find({input->role, input->fqn});
      const std::string own = kind_of(read_mesh(context_, context_.types[type_of(*input)].value)->device);
      if (shard == kinds.end() || shard->second == own || 2 * count[shard->second] <= of_meshes.size())
        continue;
      add(graph_.text(input->name),
          fmt::format("the mesh is one of {}, and the shard is on {}, as {} of {} meshes are", own,
                      shard->second, count[shard->second], of_meshes.size()));
    }
  }
  std::string kind_of(StringId device) const { return std::string(device_kind(graph_.text(device))); }

  // ------------------------------------------------------------------------ groups

  // Each name is of an axis of these ranks; the others together, or all, are of a mesh of them.
  void check_group(const ProcessGroup& group) {
    if (!group.axes || std::ranges::find(group.ranks, world_.file_rank) == group.ranks.end()) return;
    std::vector<std::string> all, others;
    for (StringId axis : *group.axes) {
      all.emplace_back(graph_.text(axis));
      if (!has_layout({all.back()}, group.ranks)) others.push_back(all.back());
    }
    if (has_layout(all, group.ranks) || has_layout(others, group.ranks)) return;
    for (const std::string& axis : others) {
      if (is_of_partial_mesh({axis}, {static_cast<std::uint32_t>(group.ranks.size())})) continue;
      if (const std::optional<MeshLayout> wanted = first_layout({axis}))
        return add("", fmt::format("group {} has ranks {}; along axis {}, rank {}'s are {} (global_meshes)",
                                   graph_.text(group.name), print_members(group.ranks), axis,
                                   world_.file_rank, print_members(wanted->ranks)));
    }
  }
  std::optional<MeshLayout> first_layout(const std::vector<std::string>& axes) const {
    for (const Mesh& mesh : world_.meshes)
      if (auto layout = layout_in(mesh, axes)) return layout;
    return std::nullopt;
  }
  bool has_layout(const std::vector<std::string>& axes, const std::vector<Rank>& ranks) const {
    return std::ranges::any_of(world_.meshes, [&](const Mesh& mesh) {
      const auto layout = layout_in(mesh, axes);
      return layout && layout->ranks == ranks;
    });
  }

  // What a group is on other ranks: those of one axis have no rank in common.
  void check_listed_groups() {
    const Arg* listed = find_entry(context_, graph_.info, kRankGroupsKey);
    if (listed == nullptr || !listed->is(ArgKind::kDict)) return;
    for (const ProcessGroup& group : graph_.groups) {
      const auto rule = find_group_rule(group.ranks, world_.size);
      const Arg* others = find_entry(context_, *listed, graph_.text(group.name));
      if (!rule || others == nullptr || !others->is_list()) continue;
      for (Arg other : context_.args.children(*others)) check_listed_group(group, *rule, other);
    }
  }
  void check_listed_group(const ProcessGroup& group, const GroupRule& rule, Arg other) {
    if (!other.is_list() || other.children().count != 2) return;
    const Arg name = context_.args.children(other)[0], members = context_.args.children(other)[1];
    if (!name.is(ArgKind::kText) || !members.is_list()) return;
    std::vector<Rank> ranks;
    for (Arg member : context_.args.children(members)) {
      if (!member.is_int() || member.as_int() < 0 || member.as_int() >= world_.size) return;
      ranks.push_back(static_cast<Rank>(member.as_int()));
    }
    if (ranks.empty() || (rule.members(ranks[0]) == ranks && ranks != group.ranks)) return;
    add("", fmt::format("group {} has ranks {}; group {}, listed for other ranks (rank_groups), has {}",
                        graph_.text(group.name), print_members(group.ranks), context_.text(name.as_name()),
                        print_members(ranks)));
  }

  // --------------------------------------------------------------------- gradients

  struct Exchange {
    NodeId node;
    const ProcessGroup* group;
  };
  struct OfCall {
    std::vector<Exchange> forward, backward;  // of one family, and of its gradient's
  };

  void check_gradients() {
    check_calls();
    check_parameters();
  }

  void check_calls() {
    std::map<std::pair<std::int64_t, OpFamily>, OfCall> calls;
    for (const Launch& launch : find_launches(context_, body_)) {
      const Node& node = body_.nodes[launch.node];
      const auto gradient = node.op != nullptr ? family_of_gradient(node.op->family) : std::nullopt;
      const ProcessGroup* group = graph_.find_group(recorded_group(context_, body_, launch.group));
      if (!gradient || !node.seq_nr || group == nullptr) continue;
      OfCall& call = calls[{*node.seq_nr, node.is_backward() ? *gradient : node.op->family}];
      add_exchange({launch.node, group}, node.is_backward() ? call.backward : call.forward);
    }
    for (const auto& [key, call] : calls) check_call(call);
  }
  void check_call(const OfCall& call) {
    const Exchange* forward = find_alone(call.forward, call.backward);
    const Exchange* backward = find_alone(call.backward, call.forward);
    if (forward == nullptr || backward == nullptr || !said_.insert({forward->node, backward->node}).second)
      return;
    add(graph_.text(body_.nodes[forward->node].name),
        fmt::format("runs on group {} {}, and %{}, which gives its gradient, on group {} {}",
                    graph_.text(forward->group->name), print_members(forward->group->ranks),
                    graph_.text(body_.nodes[backward->node].name), graph_.text(backward->group->name),
                    print_members(backward->group->ranks)));
  }
  // One of each group: a call may have many.
  static void add_exchange(const Exchange& exchange, std::vector<Exchange>& to) {
    if (std::ranges::none_of(to, [&](const Exchange& known) { return known.group == exchange.group; }))
      to.push_back(exchange);
  }
  // The first with ranks that none of the others has.
  static const Exchange* find_alone(const std::vector<Exchange>& exchanges,
                                    const std::vector<Exchange>& others) {
    for (const Exchange& exchange : exchanges) {
      const bool has_equal = std::ranges::any_of(
          others, [&](const Exchange& other) { return other.group->ranks == exchange.group->ranks; });
      if (has_equal || is_spanned(exchange, others)) continue;
      const bool is_part = std::ranges::any_of(others, [&](const Exchange& other) {
        return holds(other, exchange) && is_spanned(other, exchanges);
      });
      if (!is_part) return others.empty() ? nullptr : &exchange;
    }
    return nullptr;
  }
  // DTensor exchanges along several axes at once where a mesh has them as one.
  static bool is_spanned(const Exchange& whole, const std::vector<Exchange>& parts) {
    std::size_t size = 1;
    for (const Exchange& part : parts)
      if (holds(whole, part)) size *= part.group->ranks.size();
    return size > 1 && size == whole.group->ranks.size();
  }
  static bool holds(const Exchange& whole, const Exchange& part) {
    return std::ranges::all_of(part.group->ranks, [&](Rank rank) {
      return std::ranges::find(whole.group->ranks, rank) != whole.group->ranks.end();
    });
  }

  // Nothing says of one all-reduce on which group it is to run. Calls of one line of code, in
  // modules alike, run theirs on one group: one that does not, where most others do, is named.
  void check_reductions() {
    using Call = std::pair<StringId, std::int64_t>;  // its module and number
    std::map<std::string, std::map<Call, std::vector<Exchange>>> lines;
    for (const Launch& launch : find_launches(context_, body_)) {
      const Node& node = body_.nodes[launch.node];
      const ProcessGroup* group = graph_.find_group(recorded_group(context_, body_, launch.group));
      if (!has_family(node, OpFamily::kAllReduce) || group == nullptr || !node.source || !node.seq_nr)
        continue;
      const std::string line =
          fmt::format("{} {} {}", node.is_backward(), name_of_modules_alike(graph_.text(node.module)),
                      graph_.text(node.source));
      lines[line][{node.module, *node.seq_nr}].push_back({launch.node, group});
    }
    for (const auto& [line, calls] : lines) check_calls_alike(calls);
  }
  template <class Calls>
  void check_calls_alike(const Calls& calls) {
    using Groups = std::vector<std::vector<Rank>>;  // of one call, in order
    std::map<Groups, std::size_t> counts;
    const auto groups_of = [](const std::vector<Exchange>& launches) {
      Groups groups;
      for (const Exchange& launch : launches) groups.push_back(launch.group->ranks);
      return groups;
    };
    for (const auto& entry : calls) ++counts[groups_of(entry.second)];
    const auto& usual = *std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    if (calls.size() < 3 || 2 * usual.second <= calls.size()) return;
    for (const auto& entry : calls) {
      if (entry.second.size() != usual.first.size()) continue;
      for (std::size_t i = 0; i < usual.first.size(); ++i)
        if (const Exchange& launch = entry.second[i]; launch.group->ranks != usual.first[i])
          add(graph_.text(body_.nodes[launch.node].name),
              fmt::format("runs on group {} {}; in {} of {} calls alike the same line of code runs on {}",
                          graph_.text(launch.group->name), print_members(launch.group->ranks), usual.second,
                          calls.size(), print_members(usual.first[i])));
    }
  }

  // Each chain of a parameter's gathers, and the reductions that give its gradient.
  void check_parameters() {
    std::map<StringId, std::vector<Exchange>> reductions;  // by parameter
    const std::vector<NodeId> outputs = list_outputs(graph_);
    const StringId role = graph_.intern("grad");
    for (std::size_t i = 0; i < std::min(outputs.size(), graph_.outputs.size()); ++i)
      if (graph_.outputs[i].role == role && graph_.outputs[i].fqn && outputs[i])
        add_exchange(find_reduction(outputs[i]), OpFamily::kReduceScatter, reductions[graph_.outputs[i].fqn]);
    std::map<NodeId, StringId> parameters;  // by input
    const std::map<StringId, NodeId> placeholders = list_placeholders(graph_);
    for (const InputRole& input : graph_.inputs)
      if (const auto at = placeholders.find(input.name); at != placeholders.end())
        parameters.emplace(at->second, input.fqn);
    const NodeLists inputs = list_inputs(context_, body_), users = invert(inputs, body_.order);
    for (const UnshardChain& chain : find_unshard_chains(body_, inputs, users)) {
      const auto backward = reductions.find(parameters[chain.input]);
      if (backward == reductions.end()) continue;
      OfCall call{{}, backward->second};
      for (NodeId id : list_chain(body_, inputs, chain)) add_exchange(id, OpFamily::kAllGather, call.forward);
      check_call(call);
    }
  }
  void add_exchange(NodeId id, OpFamily family, std::vector<Exchange>& to) const {
    if (!id || !has_family(body_.nodes[id], family)) return;
    const auto position = body_.nodes[id].op->find_param("group_name");
    const Arg named = position ? arg_of(context_, body_.nodes[id], *position) : Arg::none();
    if (const ProcessGroup* group = graph_.find_group(recorded_group(context_, body_, named)))
      add_exchange({id, group}, to);
  }
  // The last reduce-scatter on the way to a gradient, behind what changes no place of it, and sums
  // over replicas. None where it is a piece of something else, as of a bucket.
  NodeId find_reduction(NodeId gradient) const {
    for (NodeId id = gradient; id && body_.nodes[id].kind == NodeKind::kCall;) {
      const Node& node = body_.nodes[id];
      if (has_family(node, OpFamily::kReduceScatter)) return id;
      const bool hands_on = node.op != nullptr && (is_wait(node) || keeps_numbers(node.op->family) ||
                                                   node.op->family == OpFamily::kAllReduce);
      const Arg from = hands_on ? arg_of(context_, node, 0) : Arg::none();
      id = from.is_node() ? from.as_node() : NodeId();
    }
    return {};
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const World world_;
  std::vector<Mesh> partial_meshes_;  // of the job: of some ranks
  std::set<std::pair<NodeId, NodeId>> said_;
  std::vector<RankViolation> found_;
};

}  // namespace

std::vector<RankViolation> find_wrong_axes(const Graph& graph) {
  return AxisCheck(graph).find();
}

}  // namespace epweave
