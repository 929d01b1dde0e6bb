#include "pair_reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/users.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "ops/op.h"
#include "passes/dce.h"
#include "testing/paired_nodes.h"

namespace epweave {
namespace {

class PairReducer {
 public:
  PairReducer(GraphPair pair, const std::function<bool(const GraphPair&)>& holds)
      : pair_(std::move(pair)), holds_(holds) {}

  GraphPair run() {
    for (bool is_smaller = true; is_smaller;) {
      is_smaller = drop_outputs();
      is_smaller = drop_unused() || is_smaller;
      is_smaller = cut_wholes() || is_smaller;
    }
    return std::move(pair_);
  }

 private:
  bool try_pair(GraphPair smaller) {
    smaller = {dce(smaller.a), dce(smaller.b)};
    drop_inputs(smaller.a);
    drop_inputs(smaller.b);
    drop_origins(smaller);
    if (!holds_(smaller)) return false;
    pair_ = std::move(smaller);
    return true;
  }

  // Where one graph needs an input that the other does not, the pair is none.
  static void drop_inputs(Graph& graph) {
    const NodeLists users = list_users(*graph.context, graph.step());
    std::vector<InputRole> roles;
    std::vector<NodeId> order;
    std::size_t place = 0;
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      const bool is_input = node.kind == NodeKind::kPlaceholder;
      const bool binds = node.extra != nullptr && !node.extra->bindings.empty();
      const bool is_kept = !is_input || binds || !users[id].empty();
      if (is_kept) order.push_back(id);
      if (is_input && is_kept) roles.push_back(graph.inputs[place]);
      place += is_input;
    }
    graph.step().order = std::move(order);
    graph.inputs = std::move(roles);
  }

  // Of nodes that the first graph has no more.
  static void drop_origins(GraphPair& pair) {
    IdSet<StringId> names;
    for (NodeId id : pair.a.step().order) names.insert(pair.a.step().nodes[id].name);
    std::erase_if(pair.b.origins, [&](const Origin& origin) { return !names.contains(origin.name); });
    Context& context = *pair.b.context;
    for (NodeId id : pair.b.step().order) {
      Node& node = pair.b.step().nodes[id];
      std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
      for (Provenance& record : records) {
        std::vector<StringId> left;
        for (StringId name : record.origins)
          if (names.contains(name)) left.push_back(name);
        if (left.size() != record.origins.size())
          record.origins = context.own(std::span<const StringId>(left));
      }
      node.provenance = context.own(std::span<const Provenance>(records));
    }
  }

  static std::vector<Arg> returned(const Graph& graph) {
    const Node& output = graph.step().nodes[graph.step().order.back()];
    const auto items = graph.context->args.children(graph.context->args[output.args].front());
    return {items.begin(), items.end()};
  }
  static void drop_output(Graph& graph, std::size_t i) {
    Node& output = graph.step().nodes[graph.step().order.back()];
    std::vector<Arg> items = returned(graph);
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
    const ArgKind kind = graph.context->args[output.args].front().kind();
    const Arg tree = graph.context->args.add_tree(kind, items);
    output.args = graph.context->args.add({&tree, 1});
    graph.outputs.erase(graph.outputs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  bool drop_outputs() {
    bool is_smaller = false;
    for (std::size_t i = returned(pair_.a).size(); i-- > 0;) {
      GraphPair smaller = pair_;
      if (returned(smaller.a).size() < 2 || returned(smaller.b).size() <= i) continue;
      drop_output(smaller.a, i);
      drop_output(smaller.b, i);
      is_smaller = try_pair(std::move(smaller)) || is_smaller;
    }
    return is_smaller;
  }

  // With the calls of the rewrite that stand for it.
  bool drop_unused() {
    bool is_smaller = false;
    const std::vector<NodeId> order = pair_.a.step().order;
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      GraphPair smaller = pair_;
      if (!drop_call(smaller, *id)) continue;
      is_smaller = try_pair(std::move(smaller)) || is_smaller;
    }
    return is_smaller;
  }
  static bool drop_call(GraphPair& pair, NodeId id) {
    const std::vector<NodeId>& order = pair.a.step().order;
    if (std::ranges::find(order, id) == order.end()) return false;
    const bool is_unused = pair.a.step().nodes[id].kind == NodeKind::kCall &&
                           list_users(*pair.a.context, pair.a.step())[id].empty();
    if (!is_unused) return false;
    const PairedNodes paired(pair.a, pair.b);
    std::vector<NodeId> calls = paired.computed(id);
    // The last part first: parts may take what others left.
    std::ranges::reverse(calls);
    for (NodeId call : calls) {
      if (!list_users(*pair.b.context, pair.b.step())[call].empty()) return false;
      std::erase(pair.b.step().order, call);
    }
    std::erase(pair.a.step().order, id);
    return true;
  }

  bool cut_wholes() {
    bool is_smaller = false;
    const std::vector<NodeId> order = pair_.a.step().order;
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      GraphPair smaller = pair_;
      if (!cut(smaller, *id)) continue;
      is_smaller = try_pair(std::move(smaller)) || is_smaller;
    }
    return is_smaller;
  }
  static bool cut(GraphPair& pair, NodeId id) {
    const std::vector<NodeId>& order = pair.a.step().order;
    const Node& call = pair.a.step().nodes[id];
    const TensorType* type = tensor_of(*pair.a.context, call.type);
    const bool can_be_input = std::ranges::find(order, id) != order.end() && call.kind == NodeKind::kCall &&
                              type != nullptr && is_floating(type->dtype) &&
                              (call.extra == nullptr || call.extra->bindings.empty());
    if (!can_be_input) return false;
    const PairedNodes paired(pair.a, pair.b);
    if (!paired.is_kept(id) || !paired.parts(id).empty()) return false;
    make_input(pair.b, paired.whole(id), call.name);
    make_input(pair.a, id, call.name);
    return true;
  }
  static void make_input(Graph& graph, NodeId id, StringId name) {
    Node& node = graph.step().nodes[id];
    node.kind = NodeKind::kPlaceholder;
    node.target = node.name;
    node.op = nullptr;
    node.args = node.kwargs = {};
    for (Origin& origin : graph.origins)
      if (origin.name == name) origin.target = name;
    std::vector<NodeId>& order = graph.step().order;
    std::erase(order, id);
    const auto first_call = std::ranges::find_if(
        order, [&](NodeId other) { return graph.step().nodes[other].kind != NodeKind::kPlaceholder; });
    order.insert(first_call, id);
    graph.inputs.push_back({.name = node.name, .role = graph.intern("parameter"), .fqn = name});
  }

  GraphPair pair_;
  const std::function<bool(const GraphPair&)>& holds_;
};

}  // namespace

GraphPair reduce_pair(GraphPair pair, const std::function<bool(const GraphPair&)>& holds) {
  return PairReducer(std::move(pair), holds).run();
}

void save_pair(const GraphPair& pair, const std::string& folder, const std::string& name) {
  write_bytes(fmt::format("{}/{}.a.txt", folder, name), print_text(pair.a));
  write_bytes(fmt::format("{}/{}.b.txt", folder, name), print_text(pair.b));
  fmt::print("  {} and {} nodes in {}/{}.[ab].txt\n", pair.a.step().order.size(), pair.b.step().order.size(),
             folder, name);
}

}  // namespace epweave
