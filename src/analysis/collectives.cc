#include "analysis/collectives.h"

#include <map>
#include <vector>

#include "analysis/looked_up_group.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/by_op.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Gives calls without effects the same number when they compute the same value from the same
// values.
class GroupNumbering {
 public:
  GroupNumbering(const Context& context, const Body& body) : context_(context), body_(body) {}

  NodeId find_first(NodeId id) {
    std::vector<NodeId> stack{id};  // the way to a group may be long
    while (!stack.empty()) {
      const NodeId top = stack.back();
      const std::size_t size = stack.size();
      if (!first_[top]) push_unnumbered_inputs(top, stack);
      if (stack.size() > size) continue;
      stack.pop_back();
      if (!first_[top]) number(top);
    }
    return first_[id];
  }

 private:
  using Key = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

  void push_unnumbered_inputs(NodeId id, std::vector<NodeId>& stack) const {
    const Node& node = body_.nodes[id];
    if (node.kind != NodeKind::kCall) return;
    for_each_input(context_, node, [&](NodeId input) {
      if (!first_[input]) stack.push_back(input);
    });
  }

  // A node whose inputs have numbers.
  void number(NodeId id) {
    const Node& node = body_.nodes[id];
    NodeId first = id;
    if (node.kind == NodeKind::kCall) {
      Key key{{static_cast<std::uint64_t>(node.kind), node.target.index()}};
      if (const auto group = looked_up_group(context_, body_, node)) {
        key.emplace_back(group->name.index(), std::uint64_t{group->stride} << 32 | group->extent);
      } else {
        append(key, node.args);
        append(key, node.kwargs);
      }
      first = by_key_.emplace(std::move(key), id).first->second;
    }
    first_.at(id) = first;
  }

  void append(Key& key, ArgRange range) {
    key.emplace_back(~0ULL, range.count);
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (arg.is_tree()) {
        key.emplace_back(static_cast<std::uint64_t>(arg.kind()), ~0ULL);
        append(key, arg.children());
      } else {
        const std::uint64_t bits = arg.is_node() ? first_[arg.as_node()].index() : arg.bits();
        key.emplace_back(static_cast<std::uint64_t>(arg.kind()), bits);
      }
    }
  }

  const Context& context_;
  const Body& body_;
  SideTable<NodeId, NodeId> first_;
  std::map<Key, NodeId> by_key_;
};

}  // namespace

bool is_launch(const Node& node) {
  return node.op != nullptr && node.op->cost == CostClass::kCollective;
}
bool is_wait(const Node& node) {
  return node.op != nullptr && node.op->cost == CostClass::kWait;
}

bool waits_for_copies(const Node& wait) {
  return is_wait(wait) && wait.op->find_param("keepalive").has_value();
}
NodeId find_freed(const Context& context, const Node& node) {
  const Arg* freed = waits_for_copies(node) ? find_arg(context, node, 1, "keepalive") : nullptr;
  return freed != nullptr && freed->is_node() ? freed->as_node() : NodeId();
}
bool completes(const Node& wait, const Node& launch) {
  if (!is_wait(wait) || launch.op == nullptr) return false;
  return waits_for_copies(wait) ? launch.op->family == OpFamily::kTransfer : is_launch(launch);
}

bool is_synchronous(const Node& node) {
  static const std::vector<bool> takes_group =
      list_by_op([](const OpInfo& op) { return op.find_param("group_name").has_value(); });
  return node.op != nullptr && takes_group[node.op->index] && !is_launch(node);
}

std::size_t group_position(const OpInfo& op) {
  const auto position = op.find_param("group_name");
  EPWEAVE_CHECK(position.has_value());
  return *position;
}

void LaunchFinder::add(NodeId id, const Node& node) {
  if (!is_launch(node) && (of_ == Of::kLaunches || !is_synchronous(node))) return;
  const Arg* group = find_arg(context_, node, group_position(*node.op), "group_name");
  found_.push_back({id, group != nullptr ? *group : Arg()});
}

std::vector<Launch> LaunchFinder::take() {
  GroupNumbering numbering(context_, body_);
  for (Launch& launch : found_)
    if (launch.group.is_node()) launch.group = Arg::node(numbering.find_first(launch.group.as_node()));
  return std::move(found_);
}

namespace {

std::vector<Launch> find_launches(const Context& context, const Body& body, LaunchFinder::Of of) {
  LaunchFinder finder(context, body, of);
  for (const auto [id, node] : walk(body)) finder.add(id, node);
  return finder.take();
}

}  // namespace

std::vector<Launch> find_launches(const Context& context, const Body& body) {
  return find_launches(context, body, LaunchFinder::Of::kLaunches);
}

std::vector<Launch> find_all_launches(const Context& context, const Body& body) {
  return find_launches(context, body, LaunchFinder::Of::kAll);
}

NodeId find_waited_launch(const Context& context, const Body& body, NodeId wait) {
  if (!is_wait(body.nodes[wait])) return {};
  NodeId at = wait;
  for (std::size_t steps = 0; steps < body.nodes.size(); ++steps) {
    const Node& node = body.nodes[at];
    if (is_launch(node)) return completes(body.nodes[wait], node) ? at : NodeId();
    // Views and elements of tuples.
    const bool hands_on = node.op != nullptr && (node.op->cost == CostClass::kFree || is_wait(node));
    const Arg from = hands_on ? arg_of(context, node, 0) : Arg::none();
    if (!from.is_node()) return {};
    at = from.as_node();
  }
  return {};
}

NodeId find_described_launch(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr || !node.op->reads_types_only) return {};
  Arg from = arg_of(context, node, 0);
  for (std::size_t steps = 0; from.is_node() && steps < body.nodes.size(); ++steps) {
    const Node& value = body.nodes[from.as_node()];
    if (is_launch(value)) return from.as_node();
    if (value.op == nullptr || value.op->cost != CostClass::kFree) return {};
    from = arg_of(context, value, 0);
  }
  return {};
}

std::string_view name_of_group(const Context& context, const Body& body, Arg group) {
  if (group.is_node()) return context.text(body.nodes[group.as_node()].name);
  if (group.is(ArgKind::kText) || group.is(ArgKind::kProcessGroup)) return context.text(group.as_name());
  return "?";
}

}  // namespace epweave
