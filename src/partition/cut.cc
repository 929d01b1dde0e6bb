#include "partition/cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/done_again.h"
#include "analysis/element_call.h"
#include "analysis/random_draws.h"
#include "analysis/recompute_tags.h"
#include "analysis/type_symbols.h"
#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_needed(const Graph& graph, const Joint& joint, const Cut& cut, NodeId id) {
  return std::ranges::any_of(joint.users[id], [&](NodeId user) {
    if (graph.step().nodes[user].kind == NodeKind::kOutput)
      return std::ranges::any_of(joint.backward_outputs,
                                 [&](std::uint32_t position) { return joint.outputs[position] == id; });
    return !joint.seed(user) && (joint.backward(user) || cut.recomputes(user));
  });
}

bool is_float(const Context& context, const Type& type) {
  return type.kind == TypeKind::kScalar ? context.text(type.py_type) == "SymFloat"
                                        : type.value.is(ArgKind::kReal);
}

// Symbols that inputs of backward bring with their types, and those that it computes.
IdSet<StringId> find_bound_symbols(const Graph& graph, const Joint& joint, const Cut& cut) {
  const Body& body = graph.step();
  TypeSymbols symbols(*graph.context);
  IdSet<StringId> bound;
  for (const std::vector<NodeId>* inputs : {&cut.saved, &joint.seeds})
    for (NodeId id : *inputs) {
      if (body.nodes[id].type)
        for (StringId symbol : symbols.of(body.nodes[id].type)) bound.insert(symbol);
      if (body.nodes[id].extra != nullptr)
        for (const Binding& binding : body.nodes[id].extra->bindings) bound.insert(binding.symbol);
    }
  for (NodeId id : body.order)
    if ((joint.backward(id) || cut.recomputes(id)) && body.nodes[id].extra != nullptr)
      for (const Binding& binding : body.nodes[id].extra->bindings) bound.insert(binding.symbol);
  return bound;
}

// The launch of backward whose result, or a view of it, the number is a size of; or none.
NodeId find_sized_launch(const Graph& graph, const Joint& joint, NodeId id) {
  const NodeId launch = find_described_launch(*graph.context, graph.step(), graph.step().nodes[id]);
  return launch && !joint.forward(launch) ? launch : NodeId();
}

// Numbers that follow from such sizes by arithmetic of the host alone.
IdSet<NodeId> find_computed_sizes(const Graph& graph, const Joint& joint) {
  const Context& context = *graph.context;
  const Body& body = graph.step();
  IdSet<NodeId> sizes(body.nodes.size()), computed(body.nodes.size());
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (joint.forward(id) || !is_number(context, node)) continue;
    const auto inputs = joint.inputs[id];
    if (find_sized_launch(graph, joint, id)) {
      sizes.insert(id);
    } else if (can_run_twice(graph, node) &&
               std::ranges::all_of(inputs, [&](NodeId in) { return is_number(context, body.nodes[in]); }) &&
               std::ranges::any_of(inputs, [&](NodeId in) { return sizes.contains(in); })) {
      sizes.insert(id);
      computed.insert(id);
    }
  }
  return computed;
}

// A launch that backward does gives its sizes there: for a size that is saved, forward would launch
// it, too, and never wait.
//
//   %sent = all_to_all_single(..)  bwd        computed again, with its wait
//   %n = sym_size(%sent, 0)        bwd        too
void size_where_launched(const Graph& graph, const Joint& joint, Cut& cut) {
  const Body& body = graph.step();
  bool is_moved = false;
  for (NodeId id : cut.saved) {
    const NodeId launch = find_sized_launch(graph, joint, id);
    if (!launch || !cut.recomputes(launch)) continue;
    for_each_behind_launch(*graph.context, body, id, launch,
                           [&](NodeId at) { cut.recomputed[at.index()] = 1; });
    is_moved = true;
  }
  if (is_moved) std::erase_if(cut.saved, [&](NodeId id) { return cut.recomputes(id); });
}

// Of a node's other metadata; or none.
Arg find_meta(const Context& context, const Node& node, std::string_view key) {
  const Arg* entry = node.extra != nullptr ? find_entry(context, node.extra->meta, key) : nullptr;
  return entry != nullptr ? *entry : Arg::none();
}

// A value that is saved for a symbol must be one that can be.
void require_binder(const Graph& graph, const SymbolNeed& need) {
  const Node& binder = graph.step().nodes[need.binder];
  if (binder.kind == NodeKind::kPlaceholder || can_save(graph, binder)) return;
  throw PassError(
      "partition.cut",
      fmt::format("backward mentions {}, which only this call computes: its value is no tensor or "
                  "number, so that it cannot be saved",
                  graph.text(need.symbol)),
      site_of(graph, binder), "read the number off the value with aten.sym_size.int in forward");
}

// Backward has what binds the symbols that its calls mention.
void save_binders(const Graph& graph, const Joint& joint, Cut& cut) {
  const auto is_in_backward = [&](const SymbolNeed& need) {
    return joint.backward(need.node) || cut.recomputes(need.node);
  };
  if (std::ranges::none_of(joint.symbol_needs, is_in_backward)) return;
  IdSet<StringId> bound = find_bound_symbols(graph, joint, cut);
  TypeSymbols symbols(*graph.context);
  bool is_added = false;
  for (const SymbolNeed& need : joint.symbol_needs) {
    if (!is_in_backward(need) || !bound.insert(need.symbol) || joint.backward(need.binder)) continue;
    require_binder(graph, need);
    cut.saved.push_back(need.binder);
    for (StringId symbol : symbols.of(graph.step().nodes[need.binder].type)) bound.insert(symbol);
    is_added = true;
  }
  if (is_added) std::ranges::sort(cut.saved, {}, [&](NodeId id) { return joint.positions[id]; });
}

// What backward alone needs, and is marked as its own or tagged by nothing: it is made where it is
// needed. Numbers are saved, so that they keep no tensor alive, but those that are read off such a
// value: forward would make it for them alone.
IdSet<NodeId> find_left_to_backward(const Graph& graph, const Joint& joint) {
  const Context& context = *graph.context;
  const Body& body = graph.step();
  const auto is_left = [&](NodeId id) {
    return !body.nodes[id].recompute && !joint.forward(id) && !is_number(context, body.nodes[id]);
  };
  IdSet<NodeId> left(body.nodes.size());
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (joint.forward(id)) continue;
    bool is_read_off = false;
    if (is_number(context, node) && !node.recompute &&
        (node.extra == nullptr || node.extra->bindings.empty()))
      for_each_input(context, node, [&](NodeId input) {
        is_read_off |= body.nodes[input].kind == NodeKind::kCall && left.contains(input);
      });
    if (node.is_backward() || is_read_off || holds_with_call(context, body, id, is_left)) left.insert(id);
  }
  return left;
}

}  // namespace

bool can_save(const Graph& graph, const Node& node) {
  const Context& context = *graph.context;
  if (!node.type || node.kind == NodeKind::kGetAttr) return false;
  if (!is_number(context, node)) return context.types[node.type].kind == TypeKind::kTensor;
  return !is_float(context, context.types[node.type]) || !can_run_twice(graph, node);
}

bool is_number(const Context& context, const Node& node) {
  if (!node.type) return false;
  const Type& type = context.types[node.type];
  if (type.kind != TypeKind::kValue) return type.kind == TypeKind::kScalar;
  return type.value.is_int() || type.value.is(ArgKind::kBool) || type.value.is(ArgKind::kReal);
}

bool is_looked_up(const Context& context, const Node& node) {
  return node.type && context.types[node.type].kind == TypeKind::kValue && !is_number(context, node);
}

void refuse_random(const Graph& graph, NodeId id) {
  throw PassError("partition.random",
                  "it draws random numbers and is tagged to be computed again: backward would draw others",
                  site_of(graph, graph.step().nodes[id]),
                  "tag it MUST_SAVE; memory-policy{policy=full} does so");
}

bool can_run_twice(const Graph& graph, const Node& node) {
  if (node.kind == NodeKind::kGetAttr) return true;
  if (node.kind != NodeKind::kCall || node.op == nullptr || draws_random(graph, node) || node.op->writes)
    return false;
  if (node.extra != nullptr && !node.extra->bindings.empty()) return false;
  if (required_half(*graph.context, node) == RequiredHalf::kForward) return false;
  return !node.op->is_effectful || is_wait(node);
}

IdSet<NodeId> find_written_in_forward(const Effects& effects, const Joint& joint) {
  const Body& body = effects.body();
  IdSet<NodeId> written(body.nodes.size());
  for (NodeId id : body.order) {
    if (joint.backward(id) || is_wait(body.nodes[id])) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) written.insert(access.storage);
  }
  return written;
}

IdSet<NodeId> find_reads_before_writes(const Effects& effects, const Joint& joint) {
  const Body& body = effects.body();
  IdSet<NodeId> written(body.nodes.size()), early(body.nodes.size());
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    for (const StorageAccess& access : effects.accesses_of(*id))
      if (!access.writes && written.contains(access.storage)) early.insert(*id);
    if (joint.backward(*id) || is_wait(body.nodes[*id])) continue;
    for (const StorageAccess& access : effects.accesses_of(*id))
      if (access.writes) written.insert(access.storage);
  }
  return early;
}

IdSet<NodeId> find_uses_of_freed(const Effects& effects, const Joint& joint) {
  const Body& body = effects.body();
  IdSet<NodeId> freed(body.nodes.size()), uses(body.nodes.size());
  bool frees = false;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const NodeId copied = joint.backward(id) ? NodeId() : find_freed(effects.context(), node);
    if (!copied) continue;
    freed.insert(effects.storage_of(copied));
    frees = true;
  }
  if (!frees) return uses;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const bool is_element = has_family(node, OpFamily::kElement);
    for (NodeId input : joint.inputs[id])
      if (freed.contains(effects.storage_of(input)) || (is_element && uses.contains(input))) uses.insert(id);
  }
  return uses;
}

bool try_cut(const Graph& graph, const Joint& joint, const Choose& choose, Cut& cut, NodeId& problem) {
  const Body& body = graph.step();
  cut.saved.clear();
  cut.recomputed.assign(body.nodes.size(), 0);
  const IdSet<NodeId> computed_sizes = find_computed_sizes(graph, joint);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (node.kind == NodeKind::kOutput || joint.backward(*id) || !is_needed(graph, joint, cut, *id)) continue;
    if (node.kind == NodeKind::kPlaceholder) {
      cut.saved.push_back(*id);
      continue;
    }
    ValueChoice choice = choose(*id);
    // Sizes stay where their launch does.
    choice.is_recomputed |= computed_sizes.contains(*id);
    if (find_sized_launch(graph, joint, *id)) choice.is_recomputed = false;
    if (choice.can_save && !(choice.is_recomputed && choice.can_recompute)) {
      cut.saved.push_back(*id);
    } else if (choice.can_recompute) {
      cut.recomputed[id->index()] = 1;
    } else {
      problem = *id;
      return false;
    }
  }
  std::ranges::reverse(cut.saved);
  size_where_launched(graph, joint, cut);
  save_binders(graph, joint, cut);
  return true;
}

Cut make_cut(const Graph& graph, const Joint& joint, const Choose& choose) {
  Cut cut;
  NodeId problem;
  if (try_cut(graph, joint, choose, cut, problem)) return cut;
  throw PassError("partition.cut",
                  "backward needs it; it can neither be saved, as it is no tensor and no number, nor "
                  "computed again, as it "
                  "does more than compute its value",
                  site_of(graph, graph.step().nodes[problem]),
                  "save what is computed from it: tag that MUST_SAVE");
}

IdSet<NodeId> find_region_outputs(const Graph& graph, const Joint& joint) {
  const RecomputeTags tags(graph);
  const Context& context = *graph.context;
  const Body& body = graph.step();
  constexpr std::string_view region = "ac_graph_id", hook = "has_backward_hook";
  const auto is_recomputed = [&](NodeId id) { return tags.is_recomputed(body.nodes[id]); };
  IdSet<NodeId> outputs(body.nodes.size());
  for (NodeId id : body.order) {
    if (!is_recomputed(id)) continue;
    const Arg own = find_meta(context, body.nodes[id], region);
    const bool is_handed_on = own.is_int() && std::ranges::any_of(joint.users[id], [&](NodeId user) {
                                const Arg other = find_meta(context, body.nodes[user], region);
                                return is_recomputed(user) && other.is_int() && other.as_int() > own.as_int();
                              });
    const bool is_hooked = find_meta(context, body.nodes[id], hook) == Arg::boolean(true) &&
                           std::ranges::none_of(joint.users[id], is_recomputed);
    if (is_handed_on || is_hooked || outputs.contains(call_of(*graph.context, body, id))) outputs.insert(id);
  }
  return outputs;
}

Cut cut_by_tags(const Graph& graph, const Joint& joint) {
  const RecomputeTags tags(graph);
  const Body& body = graph.step();
  for (NodeId id : body.order)
    if (const Node& node = body.nodes[id]; tags.is_recomputed(node) && draws_random(graph, node))
      refuse_random(graph, id);
  const Effects effects(graph, body);
  const IdSet<NodeId> written = find_written_in_forward(effects, joint);
  const IdSet<NodeId> early = find_reads_before_writes(effects, joint);
  const IdSet<NodeId> of_freed = find_uses_of_freed(effects, joint);
  const IdSet<NodeId> region_outputs = find_region_outputs(graph, joint);
  const auto is_tagged = [&](NodeId id) {
    return tags.is_recomputed(body.nodes[id]) && !region_outputs.contains(id);
  };
  const auto can_recompute = [&](NodeId id) {
    return can_run_twice(graph, body.nodes[id]) && !written.contains(id) && !of_freed.contains(id) &&
           !early.contains(id);
  };
  const IdSet<NodeId> of_backward = find_left_to_backward(graph, joint);
  return make_cut(graph, joint, [&](NodeId id) {
    const Node& node = body.nodes[id];
    // A size of a launch is saved, also against its tag: else a launch of forward would be, or be
    // done again, without its wait. Where backward launches, `try_cut` has the size there, too.
    const NodeId launch = find_described_launch(*graph.context, body, node);
    const bool is_of_backward = of_backward.contains(id) && !launch;
    const bool is_recomputed = holds_with_call(*graph.context, body, id, is_tagged) && !launch;
    return ValueChoice{.is_recomputed = is_of_backward || is_recomputed,
                       .can_save = can_save(graph, node),
                       .can_recompute = holds_with_call(*graph.context, body, id, can_recompute)};
  });
}

}  // namespace epweave
