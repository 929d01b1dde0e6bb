#include "reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "analysis/random_draws.h"
#include "analysis/verify.h"
#include "ops/op.h"

namespace epweave {
namespace {

// ----------------------------------------------------------------------------- leaving things out

bool is_kept_without_users(const Graph& graph, const Node& node) {
  return node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || node.op->is_effectful ||
         draws_random(graph, node);
}

// Drops calls that nobody takes and that have no effects.
void drop_dead_calls(Graph& graph) {
  Body& step = graph.step();
  IdSet<NodeId> needed(step.nodes.size());
  std::vector<NodeId> kept;
  for (auto id = step.order.rbegin(); id != step.order.rend(); ++id) {
    const Node& node = step.nodes[*id];
    if (!needed.contains(*id) && !is_kept_without_users(graph, node)) continue;
    for_each_input(*graph.context, node, [&](NodeId input) { needed.insert(input); });
    kept.push_back(*id);
  }
  std::ranges::reverse(kept);
  step.order = std::move(kept);
}

// Things in a row, those from `begin` to before `end`.
struct Run {
  std::size_t begin = 0, end = 0;
};

template <class Item>
std::vector<Item> items_of(const std::vector<Item>& items, Run run) {
  return {items.begin() + static_cast<std::ptrdiff_t>(run.begin),
          items.begin() + static_cast<std::ptrdiff_t>(run.end)};
}
template <class Item>
void erase_run(std::vector<Item>& items, Run run) {
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(run.begin),
              items.begin() + static_cast<std::ptrdiff_t>(run.end));
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

void drop_outputs(Graph& graph, Run gone) {
  Context& context = *graph.context;
  std::vector<Arg> results = results_of(graph);
  erase_run(results, gone);
  erase_run(graph.outputs,
            {std::min(gone.begin, graph.outputs.size()), std::min(gone.end, graph.outputs.size())});
  Node& output = graph.step().nodes[graph.step().order.back()];
  const Arg list = context.args.add_tree(context.args[output.args][0].kind(), results);
  output.args = context.args.add({&list, 1});
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

// Makes the node an input of the step, with a name of its own: one that says the op that is gone
// would answer a command that looks for the op.
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

// The runs of n things that are tried: all of them, halves, down to single ones, of each size the
// last ones first.
class Runs {
 public:
  explicit Runs(std::size_t n) : size_(n), end_(n) {}

  bool has_next() const { return size_ > 1 || (size_ == 1 && end_ > 0); }
  // `n`: how many things there are now; those behind the last run's begin may have gone.
  Run take(std::size_t n) {
    if (end_ == 0) {
      size_ /= 2;
      end_ = n;
    }
    const Run run{end_ > size_ ? end_ - size_ : 0, end_};
    end_ = run.begin;
    return run;
  }

 private:
  std::size_t size_, end_;
};

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
    std::vector<Graph> one;
    if (is_sound(candidate)) one.push_back(std::move(candidate));
    return accept_first(one).has_value();
  }

  static bool is_sound(const Graph& candidate) {
    std::vector<Violation> violations;
    verify_structure(candidate, violations);
    return violations.empty();
  }

  // The first of the candidates that has the property is the best from now on.
  std::optional<std::size_t> accept_first(std::vector<Graph>& candidates) {
    if (candidates.empty()) return std::nullopt;
    if (is_stopped_ || (hooks_.is_stopped && hooks_.is_stopped())) {
      is_stopped_ = true;
      return std::nullopt;
    }
    const std::optional<std::size_t> found = find_first(candidates);
    tries_ += found ? *found + 1 : candidates.size();
    if (!found) return std::nullopt;
    best_ = std::move(candidates[*found]);
    if (hooks_.on_smaller) hooks_.on_smaller(best_);
    return found;
  }

  std::optional<std::size_t> find_first(const std::vector<Graph>& candidates) const {
    if (hooks_.find_first) return hooks_.find_first(candidates);
    const auto found = std::ranges::find_if(candidates, hooks_.holds);
    if (found == candidates.end()) return std::nullopt;
    return static_cast<std::size_t>(found - candidates.begin());
  }

  // Tries to leave out runs of n things; `on_gone` hears which went, by their places then.
  template <class LeaveOut, class OnGone>  // void(Graph&, Run), void(Run)
  bool shrink(std::size_t n, const LeaveOut& leave_out, const OnGone& on_gone) {
    struct Next {
      Run run;
      Runs rest;
    };
    bool changed = false;
    Runs runs(n);
    while (n > 0 && runs.has_next() && !is_stopped_) {
      std::vector<Graph> candidates;
      std::vector<Next> tried;
      while (runs.has_next() && candidates.size() < hooks_.width) {
        const Run run = runs.take(n);
        Graph candidate = best_;
        leave_out(candidate, run);
        if (!is_sound(candidate)) continue;
        candidates.push_back(std::move(candidate));
        tried.push_back({run, runs});
      }
      const std::optional<std::size_t> found = accept_first(candidates);
      if (!found) continue;
      runs = tried[*found].rest;
      n -= tried[*found].run.end - tried[*found].run.begin;
      on_gone(tried[*found].run);
      changed = true;
    }
    return changed;
  }
  template <class Item, class LeaveOut>  // void(Graph&, const std::vector<Item>&)
  bool shrink(std::vector<Item> items, const LeaveOut& leave_out) {
    return shrink(
        items.size(), [&](Graph& graph, Run run) { leave_out(graph, items_of(items, run)); },
        [&](Run run) { erase_run(items, run); });
  }

  bool shrink_outputs() {
    return shrink(results_of(best_).size(), drop_outputs, [](Run) {});
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
    const std::size_t all = (best_.*table).size();
    return shrink(
        all - std::min(first, all),
        [&](Graph& graph, Run run) {
          erase_run(graph.*table, {run.begin + first, run.end + first});
        },
        [](Run) {});
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
