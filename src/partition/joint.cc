#include "partition/joint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/random_draws.h"
#include "analysis/returned_values.h"
#include "analysis/seeds.h"
#include "analysis/world.h"
#include "base/word_table.h"
#include "ir/call_words.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/traffic.h"

namespace epweave {
namespace {

// Forward's, whoever reads it. What nothing needs at all, as a tagged call, `dce` dropped before.
bool has_effect(const Graph& graph, const Node& node) {
  if (node.kind == NodeKind::kPlaceholder) return true;
  if (node.kind != NodeKind::kCall) return false;
  if (required_half(*graph.context, node) == RequiredHalf::kForward) return true;
  return node.op == nullptr || node.op->writes || node.op->is_effectful || draws_random(graph, node);
}

void refuse_required(const Graph& graph, const Joint& joint, NodeId id) {
  const Body& body = graph.step();
  const auto input = std::ranges::find_if(joint.inputs[id], [&](NodeId of) { return joint.backward(of); });
  const std::string what =
      input != joint.inputs[id].end() ? fmt::format("%{}", graph.text(body.nodes[*input].name)) : "storage";
  throw PassError("partition.tag",
                  fmt::format("it must be in forward (partitioner_tag), and reads {} that only backward {}",
                              what, input != joint.inputs[id].end() ? "has" : "writes"),
                  site_of(graph, body.nodes[id]), "take the tag away, or tag the call must_be_in_backward");
}

// What reads storage that backward wrote follows from the seeds, too (a buffer for gradients that a
// chunked loss fills).
void find_backward(const Graph& graph, Joint& joint) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  IdSet<NodeId> written(body.nodes.size());  // storage, by backward
  joint.seeds = find_seeds(graph, joint.inputs, joint.users);
  for (NodeId id : joint.seeds) joint.is_seed[id.index()] = 1;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (node.kind == NodeKind::kOutput) continue;
    const RequiredHalf half = required_half(*graph.context, node);
    const bool writes = node.is_backward() && node.op != nullptr && node.op->writes;
    joint.is_backward[id.index()] =
        joint.seed(id) || half == RequiredHalf::kBackward || (writes && half == RequiredHalf::kAny) ||
        std::ranges::any_of(joint.inputs[id], [&](NodeId input) { return joint.backward(input); }) ||
        std::ranges::any_of(effects.accesses_of(id),
                            [&](const StorageAccess& access) { return written.contains(access.storage); });
    if (joint.backward(id) && half == RequiredHalf::kForward) refuse_required(graph, joint, id);
    if (!joint.backward(id) || is_wait(node)) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) written.insert(access.storage);
  }
}

struct LeftWait {
  NodeId wait, launch;
};

// Waits that forward leaves to backward: of launches that stand there, with all their waits, and of
// which backward takes each result. A launch with a wait in forward would be made twice.
std::vector<LeftWait> find_left_waits(const Graph& graph, const IdSet<NodeId>& in_backward) {
  const Body& body = graph.step();
  IdSet<NodeId> kept(body.nodes.size());
  std::vector<LeftWait> waits;
  for (const auto [id, node] : walk(body)) {
    if (!is_wait(node)) continue;
    const NodeId launch = find_waited_launch(*graph.context, body, id);
    if (!launch) continue;
    waits.push_back({id, launch});
    if (!node.is_backward() || !body.nodes[launch].is_backward() || !in_backward.contains(id))
      kept.insert(launch);
  }
  std::erase_if(waits, [&](const LeftWait& left) { return kept.contains(left.launch); });
  return waits;
}

// What backward makes if forward does not hand it over.
IdSet<NodeId> find_in_backward(const Graph& graph, const Joint& joint) {
  const Body& body = graph.step();
  IdSet<NodeId> found(body.nodes.size());
  for (std::uint32_t position : joint.backward_outputs)
    if (const NodeId id = joint.outputs[position]) found.insert(id);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    if (body.nodes[*id].kind == NodeKind::kOutput || joint.backward(*id)) continue;
    if (std::ranges::any_of(joint.users[*id],
                            [&](NodeId user) { return joint.backward(user) || found.contains(user); }))
      found.insert(*id);
  }
  return found;
}

// What a gradient of a loss is as large as, is forward's, though the step may not return it.
void find_forward(const Graph& graph, Waits waits, Joint& joint) {
  const Body& body = graph.step();
  for (NodeId seed : joint.seeds)
    for (NodeId input : joint.inputs[seed])
      if (!joint.backward(input)) joint.is_forward[input.index()] = 1;
  for (std::uint32_t position : joint.forward_outputs)
    if (const NodeId id = joint.outputs[position]) joint.is_forward[id.index()] = 1;
  std::vector<LeftWait> left_waits;
  if (waits == Waits::kOfForward) left_waits = find_left_waits(graph, find_in_backward(graph, joint));
  IdSet<NodeId> left(body.nodes.size());
  for (const LeftWait& wait : left_waits) left.insert(wait.wait);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (node.kind == NodeKind::kOutput || joint.backward(*id)) continue;
    const bool is_kept = has_effect(graph, node) && !left.contains(*id);
    const bool is_needed =
        is_kept || std::ranges::any_of(joint.users[*id], [&](NodeId user) { return joint.forward(user); });
    if (is_needed) joint.is_forward[id->index()] = 1;
  }
  // What forward launches, as it needs a size of the result, it waits for.
  for (const auto& [wait, launch] : left_waits)
    if (joint.forward(launch))
      for_each_behind_launch(*graph.context, body, wait, launch,
                             [&](NodeId at) { joint.is_forward[at.index()] = 1; });
}

void divide_outputs(const Graph& graph, Joint& joint) {
  const StringId grad = graph.intern("grad");
  joint.outputs = list_outputs(graph);
  for (std::uint32_t i = 0; i < joint.outputs.size(); ++i) {
    const bool is_gradient = i < graph.outputs.size() && graph.outputs[i].role == grad;
    const bool is_backward = is_gradient || (joint.outputs[i] && joint.backward(joint.outputs[i]));
    (is_backward ? joint.backward_outputs : joint.forward_outputs).push_back(i);
  }
}

// The loss is forward's.
void refuse_loss_of_backward(const Graph& graph, const Joint& joint) {
  const Body& body = graph.step();
  std::vector<NodeId> required(body.nodes.size());  // in backward: the first that it follows from
  for (NodeId id : body.order) {
    if (required_half(*graph.context, body.nodes[id]) == RequiredHalf::kBackward) required[id.index()] = id;
    for (NodeId input : joint.inputs[id])
      if (!required[id.index()]) required[id.index()] = required[input.index()];
  }
  for (std::uint32_t i : joint.backward_outputs) {
    const NodeId id = joint.outputs[i];
    if (!id || !required[id.index()] || i >= graph.outputs.size()) continue;
    if (graph.text(graph.outputs[i].role) != "loss") continue;
    const Node& node = body.nodes[required[id.index()]];
    throw PassError(
        "partition.tag",
        fmt::format("it must be in backward (partitioner_tag), and output {}, the loss, needs it", i),
        site_of(graph, node), "take the tag away, or tag the call must_be_in_forward");
  }
}

bool is_tangent(const Joint& joint, const Body& body, NodeId id) {
  return joint.seed(id) && body.nodes[id].kind == NodeKind::kPlaceholder;
}

// An output that is said to be forward's must not need a gradient that only backward is given.
void refuse_read_tangents(const Graph& graph, const Joint& joint) {
  const Body& body = graph.step();
  std::vector<NodeId> tangent_behind(body.nodes.size());  // the first, by node
  for (NodeId id : body.order) {
    if (is_tangent(joint, body, id)) tangent_behind[id.index()] = id;
    for (NodeId input : joint.inputs[id])
      if (!tangent_behind[id.index()]) tangent_behind[id.index()] = tangent_behind[input.index()];
  }
  for (std::uint32_t i = 0; i < joint.outputs.size() && i < graph.outputs.size(); ++i) {
    const NodeId id = joint.outputs[i];
    const std::string_view role = graph.text(graph.outputs[i].role);
    if (!id || role.empty() || role == "grad" || role == "other" || !tangent_behind[id.index()]) continue;
    throw PassError(
        "partition.tangent-read",
        fmt::format("output {} is forward's, of role '{}', and needs %{}, which only backward is given", i,
                    role, graph.text(body.nodes[tangent_behind[id.index()]].name)),
        site_of(graph, body.nodes[id]), "give the output role `grad`, or the input another than `tangent`");
  }
}

// What forward writes, it must have.
void refuse_written_tangents(const Graph& graph, const Joint& joint) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  IdSet<NodeId> tangents(body.nodes.size());
  for (NodeId id : joint.seeds)
    if (is_tangent(joint, body, id)) tangents.insert(effects.storage_of(id));
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (node.kind != NodeKind::kCall || node.is_backward() || is_wait(node)) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes && tangents.contains(access.storage))
        throw PassError("partition.tangent-written",
                        fmt::format("a call of forward writes %{}, which only backward is given",
                                    graph.text(body.nodes[access.storage].name)),
                        site_of(graph, node), "write a copy of it, or mark the call as backward's");
  }
}

void refuse_half(const Graph& graph) {
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) return;
    if (position >= graph.inputs.size() || graph.text(graph.inputs[position++].role) != "saved") continue;
    throw PassError("partition.backward",
                    "the graph is the backward half of a step: this input is what forward saved",
                    site_of(graph, node), "give the joint graph of forward, loss and backward");
  }
}

// What backward's outputs need. A seed is given, whatever it is computed from.
IdSet<NodeId> find_needed_by_backward(const Body& body, const Joint& joint) {
  IdSet<NodeId> needed(body.nodes.size());
  for (std::uint32_t position : joint.backward_outputs)
    if (const NodeId id = joint.outputs[position]) needed.insert(id);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id)
    if (needed.contains(*id) && !joint.seed(*id))
      for (NodeId input : joint.inputs[*id]) needed.insert(input);
  return needed;
}

// Of what the caller gets: two of them stay two.
IdSet<NodeId> find_returned_storages(const Body& body, const Joint& joint, const Effects& effects) {
  IdSet<NodeId> storages(body.nodes.size());
  for (NodeId id : joint.outputs)
    if (id) storages.insert(effects.storage_of(id));
  return storages;
}

// Whether the call gives the same each time that it is made of the same.
bool has_one_result(const Graph& graph, const Node& node) {
  const bool binds = node.extra != nullptr && !node.extra->bindings.empty();
  return !has_effect(graph, node) && node.op->family != OpFamily::kRandom && !leaves_unset(*node.op) &&
         !binds;
}

}  // namespace

RequiredHalf required_half(const Context& context, const Node& node) {
  if (node.kind != NodeKind::kCall || node.extra == nullptr) return RequiredHalf::kAny;
  const Arg* entry = find_entry(context, node.extra->meta, "partitioner_tag");
  if (entry == nullptr || !entry->is(ArgKind::kText)) return RequiredHalf::kAny;
  const std::string_view tag = context.text(entry->as_name());
  if (tag == "must_be_in_forward") return RequiredHalf::kForward;
  return tag == "must_be_in_backward" ? RequiredHalf::kBackward : RequiredHalf::kAny;
}

Joint read_joint(const Graph& graph, Waits waits) {
  refuse_half(graph);
  const Body& body = graph.step();
  Joint joint;
  joint.inputs = list_inputs(*graph.context, body);
  joint.users = invert(joint.inputs, body.order);
  joint.positions = find_positions(body, body.order);
  joint.is_seed.resize(body.nodes.size());
  joint.is_backward.resize(body.nodes.size());
  joint.is_forward.resize(body.nodes.size());
  find_backward(graph, joint);
  if (joint.seeds.empty())
    throw PassError(
        "partition.backward",
        "the graph has no backward: no placeholder is a tangent, and no gradient of a loss begins in it", {},
        "give the joint graph of forward, loss and backward; of a stage of a pipeline, epweave partition and "
        "verify --fwd are told which inputs are gradients of its outputs: --tangents NAMES");
  divide_outputs(graph, joint);
  refuse_loss_of_backward(graph, joint);
  if (std::ranges::any_of(joint.seeds, [&](NodeId id) { return is_tangent(joint, body, id); })) {
    refuse_read_tangents(graph, joint);
    refuse_written_tangents(graph, joint);
  }
  find_forward(graph, waits, joint);
  joint.symbol_needs = find_symbol_needs(graph, joint.inputs);
  return joint;
}

IdSet<NodeId> find_state(const Graph& graph) {
  IdSet<NodeId> state(graph.step().nodes.size());
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    if (graph.step().nodes[id].kind != NodeKind::kPlaceholder) continue;
    if (is_state(graph, position++)) state.insert(id);
  }
  return state;
}

bool is_state(const Graph& graph, std::size_t input) {
  if (input >= graph.inputs.size()) return false;
  const std::string_view role = graph.text(graph.inputs[input].role);
  return role == "parameter" || role == "buffer";
}

Graph merge_equal_calls(const Graph& graph) {
  Graph result = graph;
  Context& context = *result.context;
  Body& body = result.step();
  const Joint joint = read_joint(graph);
  const Effects effects(result, body);
  const IdSet<NodeId> needed = find_needed_by_backward(body, joint);
  const IdSet<NodeId> returned = find_returned_storages(body, joint, effects);
  SideTable<NodeId, NodeId> same;  // of a call that is left out, the one in its place
  WordTable keys;
  std::vector<NodeId> first;  // of each key
  std::map<NodeId, std::vector<NodeId>> merged;
  const auto of_node = [&](NodeId id) { keys.push(tagged_word(ArgKind::kNode, id.index())); };
  std::uint64_t writes = 0;
  for (NodeId id : body.order) {
    Node& node = body.nodes[id];
    const auto redirect = [&](Arg arg) {
      return arg.is_node() && same[arg.as_node()] ? Arg::node(same[arg.as_node()]) : arg;
    };
    map_arguments(context, node, redirect);
    if (node.kind != NodeKind::kCall || node.op == nullptr) continue;
    writes += node.op->writes;
    const NodeId storage = effects.storage_of(id);
    if (returned.contains(storage) || effects.is_written(storage) || !has_one_result(result, node)) continue;
    keys.push(writes);
    keys.push(needed.contains(id) ? 1 : 0);
    keys.push(static_cast<std::uint64_t>(required_half(context, node)));
    push_call_words(keys, context.args, node.target.index(), node, of_node);
    const auto [key, is_new] = keys.intern();
    if (is_new) {
      first.push_back(id);
      continue;
    }
    same.at(id) = first[key];
    merged[first[key]].push_back(id);
  }
  const StringId pass = graph.intern("partition");
  for (const auto& [kept, others] : merged) {
    std::vector<StringId> origins = {body.nodes[kept].name};
    for (NodeId other : others) origins.push_back(body.nodes[other].name);
    append_provenance(context, body.nodes[kept],
                      {.pass = pass, .role = ProvenanceRole::kMerged, .origins = context.own(origins)});
  }
  std::erase_if(body.order, [&](NodeId id) { return static_cast<bool>(same[id]); });
  return result;
}

}  // namespace epweave
