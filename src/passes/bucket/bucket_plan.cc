#include "passes/bucket/bucket_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "analysis/collectives.h"
#include "ops/op.h"

namespace epweave {
namespace {

// torchtitan's names of the parts of a block.
constexpr std::string_view kExperts = "moe.routed_experts.inner_experts";
constexpr std::array<std::string_view, 5> kBesideExperts = {"attention_norm", "attention", "ffn_norm",
                                                            "moe.router", "moe.shared_experts"};
constexpr std::string_view kLoss = "loss";

bool is_within(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

// "layers.3" of "layers.3.moe.router", or empty.
std::string_view block_of(std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == path.npos) return {};
  const std::size_t end = std::min(path.find('.', dot + 1), path.size());
  const std::string_view number = path.substr(dot + 1, end - dot - 1);
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
  return is_number ? path.substr(0, end) : std::string_view();
}

class Planner {
 public:
  Planner(const Graph& graph, std::span<const Mergeable> collectives)
      : graph_(graph), collectives_(collectives) {
    for (const Mergeable& m : collectives_)
      modules_.push_back(graph.text(graph.step().nodes[m.launch].module));
    are_experts_apart_ = find_experts_apart();
  }

  std::vector<PlanEntry> run() {
    for (const InputRole& input : graph_.inputs) {
      const std::string_view fqn = graph_.text(input.fqn);
      if (fqn.find('.') != fqn.npos) add(fqn);
    }
    if (computes_head_in_loss()) last_.modules.push_back(graph_.intern(kLoss));
    if (!last_.modules.empty()) plan_.push_back(std::move(last_));
    return std::move(plan_);
  }

 private:
  void add(std::string_view fqn) {
    const std::string_view block = block_of(fqn);
    const StringId name = graph_.intern(block.empty() ? fqn.substr(0, fqn.find('.')) : block);
    if (!known_.insert(name)) return;
    if (!block.empty()) {
      has_blocks_ = true;
      add_block(name);
    } else if (has_blocks_) {
      last_.modules.push_back(name);
    } else {
      plan_.push_back({{name}});
    }
  }

  void add_block(StringId block) {
    const std::string name(graph_.text(block));
    const std::string experts = fmt::format("{}.{}", name, kExperts);
    const bool has_experts = std::ranges::any_of(
        graph_.inputs, [&](const InputRole& input) { return is_within(graph_.text(input.fqn), experts); });
    if (!are_experts_apart_ || !has_experts) {
      plan_.push_back({{block}});
      return;
    }
    PlanEntry& beside = plan_.emplace_back();
    for (std::string_view part : kBesideExperts)
      beside.modules.push_back(graph_.intern(fmt::format("{}.{}", name, part)));
    plan_.push_back({{graph_.intern(experts)}});
  }

  // Whether a collective of experts runs on another group than those of the same kind in the rest
  // of its block.
  bool find_experts_apart() const {
    std::map<std::pair<std::string_view, MergeKind>, Arg> beside;
    for (std::size_t i = 0; i < collectives_.size(); ++i) {
      const std::string_view block = block_of(modules_[i]);
      if (!block.empty() && !is_of_experts(i, block))
        beside.try_emplace({block, collectives_[i].kind}, collectives_[i].group);
    }
    for (std::size_t i = 0; i < collectives_.size(); ++i) {
      const std::string_view block = block_of(modules_[i]);
      if (collectives_[i].kind == MergeKind::kAllReduce || block.empty() || !is_of_experts(i, block))
        continue;
      const auto other = beside.find({block, collectives_[i].kind});
      if (other == beside.end() || !(other->second == collectives_[i].group)) return true;
    }
    return false;
  }

  bool is_of_experts(std::size_t i, std::string_view block) const {
    const std::string_view path = modules_[i];
    return path.size() > block.size() && is_within(path.substr(block.size() + 1), kExperts);
  }

  // Whether the loss computes the head part by part: then the parts' gradients of its weight are
  // reduced one by one, over the ranks that share it, and added up behind.
  bool computes_head_in_loss() const {
    IdSet<NodeId> merged;
    for (const Mergeable& m : collectives_) merged.insert(m.launch);
    return std::ranges::any_of(find_launches(*graph_.context, graph_.step()), [&](const Launch& launch) {
      const Node& node = graph_.step().nodes[launch.node];
      const auto shares_group = [&](const Mergeable& m) { return m.ranks > 0 && m.group == launch.group; };
      return node.op->family == OpFamily::kReduceScatter && !merged.contains(launch.node) &&
             is_behind_blocks(graph_.text(node.module)) && std::ranges::any_of(collectives_, shares_group);
    });
  }

  bool is_behind_blocks(std::string_view path) const {
    const auto holds = [&](StringId module) { return is_within(path, graph_.text(module)); };
    return is_within(path, kLoss) || std::ranges::any_of(last_.modules, holds);
  }

  const Graph& graph_;
  std::span<const Mergeable> collectives_;
  std::vector<std::string_view> modules_;
  bool are_experts_apart_ = false;
  bool has_blocks_ = false;
  IdSet<StringId> known_;
  std::vector<PlanEntry> plan_;
  PlanEntry last_;
};

}  // namespace

std::vector<PlanEntry> plan_blocks(const Graph& graph, std::span<const Mergeable> collectives) {
  return Planner(graph, collectives).run();
}

std::vector<BucketScope> list_scopes(const Graph& graph, std::span<const PlanEntry> plan,
                                     std::span<const Mergeable> collectives) {
  // By module of the plan: scopes forward and backward, and the module's place in its entry.
  struct ScopePlace {
    std::uint32_t scope = ~0U, rank = 0;
  };
  SideTable<StringId, ScopePlace> place_of;
  std::vector<BucketScope> scopes;
  for (const PlanEntry& entry : plan) {
    for (std::uint32_t i = 0; i < entry.modules.size(); ++i)
      place_of.at(entry.modules[i]) = {static_cast<std::uint32_t>(scopes.size()), i};
    for (bool backward : {false, true}) scopes.push_back({&entry, backward, {}});
  }
  std::vector<std::vector<std::pair<std::uint32_t, std::size_t>>> members(scopes.size());
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const Node& node = graph.step().nodes[collectives[i].launch];
    // The module, or the closest above it that the plan names.
    for (std::string_view path = graph.text(node.module); !path.empty();) {
      if (const ScopePlace place = place_of[graph.intern(path)]; place.scope != ~0U) {
        members[place.scope + (node.is_backward() ? 1 : 0)].emplace_back(place.rank, i);
        break;
      }
      const std::size_t dot = path.rfind('.');
      path = path.substr(0, dot == path.npos ? 0 : dot);
    }
  }
  for (std::size_t s = 0; s < scopes.size(); ++s) {
    std::ranges::sort(members[s]);
    for (const auto& [rank, i] : members[s]) scopes[s].collectives.push_back(i);
  }
  return scopes;
}

SideTable<StringId, std::uint32_t> order_modules(const Graph& graph) {
  SideTable<StringId, std::uint32_t> order(~0U);
  std::uint32_t count = 0;
  for (const InputRole& input : graph.inputs) {
    const std::string_view fqn = graph.text(input.fqn);
    const std::size_t dot = fqn.rfind('.');
    if (dot == fqn.npos) continue;
    const StringId module = graph.intern(fqn.substr(0, dot));
    if (order[module] == ~0U) order.at(module) = count++;
  }
  return order;
}

}  // namespace epweave
