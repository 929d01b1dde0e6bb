#include "reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/verify.h"
#include "ops/op.h"

namespace epweave {
namespace {

// ----------------------------------------------------------------------------- leaving things out

bool is_kept_without_users(const Node& node) {
  return node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || node.op->is_effectful ||
         node.op->is_random;
}

// Drops calls that nobody takes and that have no effects.
void drop_dead_calls(Graph& graph) {
  Body& step = graph.step();
  IdSet<NodeId> needed(step.nodes.size());
  std::vector<NodeId> kept;
  for (auto id = step.order.rbegin(); id != step.order.rend(); ++id) {
    const Node& node = step.nodes[*id];
    if (!needed.contains(*id) && !is_kept_without_users(node)) continue;
    for_each_input(*graph.context, node, [&](NodeId input) { needed.insert(input); });
    kept.push_back(*id);
  }
  std::ranges::reverse(kept);
  step.order = std::move(kept);
}

// The values that the step returns, or none where it returns one value that is not a list.
std::vector<Arg> results_of(const Graph& graph) {
  const Body& step = graph.step();
  const Node& output = step.nodes[step.order.back()];
  const auto args = graph.context->args[output.args];
  if (output.kind != NodeKind::kOutput || args.size() != 1 || !args[0].is_list()) return {};
  const auto items = graph.context->args.children(args[0]);
  return {items.begin(), items.end()};
}

void drop_outputs(Graph& graph, const std::vector<std::size_t>& gone) {
  Context& context = *graph.context;
  const std::vector<Arg> results = results_of(graph);
  std::vector<std::uint8_t> is_gone(results.size());
  for (std::size_t i : gone) is_gone[i] = 1;
  std::vector<Arg> kept;
  std::vector<OutputRole> roles;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (is_gone[i] != 0) continue;
    kept.push_back(results[i]);
    if (i < graph.outputs.size()) roles.push_back(graph.outputs[i]);
  }
  Node& output = graph.step().nodes[graph.step().order.back()];
  const Arg list = context.args.add_tree(context.args[output.args][0].kind(), kept);
  output.args = context.args.add({&list, 1});
  graph.outputs = std::move(roles);
  drop_dead_calls(graph);
}

// Names that no node of the step has: "input_0", ..
class FreeNames {
 public:
  explicit FreeNames(const Graph& graph) : graph_(graph) {
    for (const NodeId id : graph.step().order) taken_.insert(graph.step().nodes[id].name);
  }
  StringId take() {
    for (;;) {
      const StringId name = graph_.intern(fmt::format("input_{}", next_++));
      if (taken_.insert(name)) return name;
    }
  }

 private:
  const Graph& graph_;
  IdSet<StringId> taken_;
  std::size_t next_ = 0;
};

// Makes the node an input of the step, with a name of its own: one that says the op that is gone would answer a
// command that looks for the op.
void make_placeholder(Graph& graph, NodeId id, FreeNames& names) {
  Node& node = graph.step().nodes[id];
  node.kind = NodeKind::kPlaceholder;
  node.name = names.take();
  node.target = node.name;
  node.op = nullptr;
  node.args = node.kwargs = ArgRange();
  node.attr = Arg();
  if (!graph.inputs.empty())
    graph.inputs.push_back({.name = node.name, .role = graph.intern("user"), .which = node.name});
}

void cut_nodes(Graph& graph, const std::vector<NodeId>& gone) {
  Body& step = graph.step();
  IdSet<NodeId> is_gone(step.nodes.size()), is_taken(step.nodes.size());
  for (NodeId id : gone) is_gone.insert(id);
  for (NodeId id : step.order)
    if (!is_gone.contains(id))
      for_each_input(*graph.context, step.nodes[id], [&](NodeId input) { is_taken.insert(input); });
  FreeNames names(graph);
  std::vector<NodeId> inputs, rest;
  for (NodeId id : step.order)
    if (step.nodes[id].kind == NodeKind::kPlaceholder) inputs.push_back(id);
  for (NodeId id : step.order) {
    if (is_gone.contains(id)) {
      if (!is_taken.contains(id)) continue;
      make_placeholder(graph, id, names);
      inputs.push_back(id);
    } else if (step.nodes[id].kind != NodeKind::kPlaceholder) {
      rest.push_back(id);
    }
  }
  step.order = std::move(inputs);
  step.order.insert(step.order.end(), rest.begin(), rest.end());
}

// Placeholders among `gone` that nobody takes.
void drop_inputs(Graph& graph, const std::vector<NodeId>& gone) {
  Body& step = graph.step();
  IdSet<NodeId> is_gone(step.nodes.size());
  for (NodeId id : gone) is_gone.insert(id);
  std::size_t position = 0;
  std::vector<InputRole> roles;
  for (NodeId id : step.order) {
    if (step.nodes[id].kind != NodeKind::kPlaceholder) continue;
    if (!is_gone.contains(id) && position < graph.inputs.size()) roles.push_back(graph.inputs[position]);
    ++position;
  }
  graph.inputs = std::move(roles);
  std::erase_if(step.order, [&](NodeId id) { return is_gone.contains(id); });
}

std::vector<NodeId> unused_inputs(const Graph& graph) {
  const Body& step = graph.step();
  IdSet<NodeId> is_taken(step.nodes.size());
  for (NodeId id : step.order)
    for_each_input(*graph.context, step.nodes[id], [&](NodeId input) { is_taken.insert(input); });
  std::vector<NodeId> unused;
  for (NodeId id : step.order)
    if (step.nodes[id].kind == NodeKind::kPlaceholder && !is_taken.contains(id)) unused.push_back(id);
  return unused;
}

template <class Item>
void drop_positions(std::vector<Item>& items, const std::vector<std::size_t>& gone) {
  for (auto at = gone.rbegin(); at != gone.rend(); ++at)
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(*at));
}

void drop_provenance(Graph& graph) {
  graph.passes.clear();
  graph.origins.clear();
  for (Body& body : graph.bodies)
    for (NodeId id : body.order) body.nodes[id].provenance = ProvenanceList();
}

template <class Change>  // void(Node&)
void change_nodes(Graph& graph, const Change& change) {
  for (Body& body : graph.bodies)
    for (NodeId id : body.order) change(body.nodes[id]);
}

// Metadata but for what symbols need.
void drop_metadata(Graph& graph) {
  Context& context = *graph.context;
  change_nodes(graph, [&](Node& node) {
    node.has_custom = false;
    node.seq_nr.reset();
    node.recompute = StringId();
    if (node.extra == nullptr) return;
    NodeExtra kept{.bindings = node.extra->bindings, .chunk_hints = node.extra->chunk_hints};
    node.extra = kept.bindings.empty() && kept.chunk_hints.empty() ? nullptr : context.own(std::move(kept));
  });
}

// ----------------------------------------------------------------------------- the search

class Reducer {
 public:
  Reducer(const Graph& graph, const ReduceHooks& hooks) : best_(graph), hooks_(hooks) {}

  Reduction run() {
    for (bool changed = true; changed && !is_stopped_;) {
      changed = false;
      if (!best_.step().order.empty()) changed |= shrink_outputs();
      changed |= shrink_nodes();
      changed |= shrink_inputs();
      changed |= shrink_tables();
      changed |= shrink_facts();
    }
    return {std::move(best_), tries_, !is_stopped_};
  }

 private:
  bool accept(Graph candidate) {
    if (is_stopped_ || (hooks_.is_stopped && hooks_.is_stopped())) {
      is_stopped_ = true;
      return false;
    }
    std::vector<Violation> violations;
    verify_structure(candidate, violations);
    if (!violations.empty()) return false;
    ++tries_;
    if (!hooks_.holds(candidate)) return false;
    best_ = std::move(candidate);
    if (hooks_.on_smaller) hooks_.on_smaller(best_);
    return true;
  }

  // Tries to leave out runs of the items, from all of them down to single ones, the last ones first.
  template <class Item, class LeaveOut>  // void(Graph&, const std::vector<Item>&)
  bool shrink(std::vector<Item> items, const LeaveOut& leave_out) {
    bool changed = false;
    for (std::size_t size = items.size(); size > 0 && !is_stopped_; size /= 2) {
      for (std::size_t end = items.size(); end > 0 && !is_stopped_;) {
        const std::size_t begin = end > size ? end - size : 0;
        const auto first = items.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = items.begin() + static_cast<std::ptrdiff_t>(end);
        Graph candidate = best_;
        leave_out(candidate, std::vector<Item>(first, last));
        if (accept(std::move(candidate))) {
          items.erase(first, last);
          changed = true;
        }
        end = begin;
      }
    }
    return changed;
  }

  // Positions change with each that goes, so the last go first and the others keep theirs.
  static std::vector<std::size_t> positions(std::size_t n) {
    std::vector<std::size_t> list(n);
    for (std::size_t i = 0; i < n; ++i) list[i] = i;
    return list;
  }

  bool shrink_outputs() {
    const std::size_t before = results_of(best_).size();
    bool changed = false;
    for (std::size_t size = before; size > 0 && !is_stopped_; size /= 2) {
      for (std::size_t end = results_of(best_).size(); end > 0 && !is_stopped_;) {
        const std::size_t begin = end > size ? end - size : 0;
        std::vector<std::size_t> gone;
        for (std::size_t i = begin; i < end; ++i) gone.push_back(i);
        Graph candidate = best_;
        drop_outputs(candidate, gone);
        changed |= accept(std::move(candidate));
        end = begin;
      }
    }
    return changed;
  }

  bool shrink_nodes() {
    Graph without_dead = best_;
    drop_dead_calls(without_dead);
    bool changed =
        without_dead.step().order.size() < best_.step().order.size() && accept(std::move(without_dead));
    std::vector<NodeId> calls;
    for (NodeId id : best_.step().order)
      if (const NodeKind kind = best_.step().nodes[id].kind;
          kind == NodeKind::kCall || kind == NodeKind::kGetAttr)
        calls.push_back(id);
    changed |= shrink(std::move(calls),
                      [](Graph& graph, const std::vector<NodeId>& gone) { cut_nodes(graph, gone); });
    return changed;
  }

  bool shrink_inputs() {
    return shrink(unused_inputs(best_),
                  [](Graph& graph, const std::vector<NodeId>& gone) { drop_inputs(graph, gone); });
  }

  template <class Item>
  bool shrink_table(std::vector<Item> Graph::*table, std::size_t first) {
    std::vector<std::size_t> items = positions((best_.*table).size());
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(std::min(first, items.size())));
    return shrink(std::move(items), [table](Graph& graph, const std::vector<std::size_t>& gone) {
      drop_positions(graph.*table, gone);
    });
  }

  bool shrink_tables() {
    bool changed = false;
    if (!best_.passes.empty() || !best_.origins.empty()) {
      Graph candidate = best_;
      drop_provenance(candidate);
      changed |= accept(std::move(candidate));
    }
    if (!best_.info.is_none()) {
      Graph candidate = best_;
      candidate.info = Arg();
      changed |= accept(std::move(candidate));
    }
    changed |= shrink_table(&Graph::symbols, 0);
    changed |= shrink_table(&Graph::groups, 0);
    changed |= shrink_table(&Graph::bodies, 1);
    return changed;
  }

  // Once: a second time there is nothing to drop.
  bool shrink_facts() {
    if (std::exchange(has_shrunk_facts_, true)) return false;
    using Change = void (*)(Graph&);
    const Change changes[] = {
        [](Graph& graph) { drop_metadata(graph); },
        [](Graph& graph) { change_nodes(graph, [](Node& node) { node.source = StringId(); }); },
        [](Graph& graph) { change_nodes(graph, [](Node& node) { node.chunk = ChunkInfo(); }); },
        [](Graph& graph) { change_nodes(graph, [](Node& node) { node.ep = EpLabels(); }); },
        [](Graph& graph) { change_nodes(graph, [](Node& node) { node.module = StringId(); }); },
    };
    bool changed = false;
    for (const Change change : changes) {
      Graph candidate = best_;
      change(candidate);
      changed |= accept(std::move(candidate));
    }
    return changed;
  }

  Graph best_;
  const ReduceHooks& hooks_;
  std::size_t tries_ = 0;
  bool is_stopped_ = false, has_shrunk_facts_ = false;
};

}  // namespace

Reduction reduce_graph(const Graph& graph, const ReduceHooks& hooks) {
  return Reducer(graph, hooks).run();
}

}  // namespace epweave
