#include "partition/torch_facts.h"

#include <algorithm>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// A symbol has one number: what computes it runs once.
bool binds_symbol(const Node& node) {
  return node.extra != nullptr && !node.extra->bindings.empty();
}

}  // namespace

TorchFacts::TorchFacts(const Graph& graph, const Joint& joint)
    : graph_(graph),
      context_(*graph.context),
      body_(graph.step()),
      joint_(joint),
      tags_(graph),
      traits_(context_),
      extents_(graph),
      flops_(graph, extents_),
      state_(find_state(graph)),
      region_outputs_(find_region_outputs(graph, joint)),
      must_save_(body_.nodes.size()),
      done_once_(body_.nodes.size()),
      runs_once_(body_.nodes.size()),
      sizes_(body_.nodes.size(), -1),
      distance_(body_.nodes.size(), kFar),
      place_(body_.nodes.size()) {
  save_collectives();
  find_writes();
  find_calls_done_once();
  find_distances();
}

// ------------------------------------------------------------------------- values

bool TorchFacts::is_element(NodeId id) const {
  return has_family(node(id), OpFamily::kElement);
}

bool TorchFacts::is_device(NodeId id) const {
  return node(id).type && kind_of(id) == TypeKind::kValue &&
         context_.types[node(id).type].value.is(ArgKind::kDevice);
}

bool TorchFacts::is_real_number(NodeId id) const {
  return node(id).type && kind_of(id) == TypeKind::kScalar &&
         context_.text(context_.types[node(id).type].py_type) == "SymFloat";
}

std::int64_t TorchFacts::count_flops(NodeId id) {
  const auto cost = has(id, kCountsFlops) ? flops_.cost_of(id) : std::nullopt;
  return cost ? std::max<std::int64_t>(cost->flops, 1) : 1;
}

bool TorchFacts::shows_input(NodeId id) const {
  for (NodeId shown = id; shown; shown = shown_operand(context_, body_, shown))
    if (is_input(shown)) return true;
  return false;
}

bool TorchFacts::is_fusible(NodeId producer, NodeId user) {
  if (has_family(node(user), OpFamily::kJoin)) return true;
  return has(producer, kIsFusible) && has(user, kIsFusible);
}

bool TorchFacts::is_reduction(NodeId id) {
  std::int64_t taken = 0;
  for (Arg arg : context_.args[node(id).args])
    if (arg.is_node()) taken += size_of(arg.as_node());
  return size_of(id) * 4 < taken;
}

bool TorchFacts::is_tagged_saved(NodeId id) const {
  return node(id).recompute == tags_.must_save || region_outputs_.contains(id);
}

bool TorchFacts::is_tagged(NodeId id) const {
  return holds_with_call(
      id, [&](NodeId at) { return tags_.is_recomputed(node(at)) && !region_outputs_.contains(at); });
}

bool TorchFacts::must_recompute(NodeId id) const {
  return is_tagged(id) && holds_with_call(id, [&](NodeId at) {
           return !must_save_.contains(at) && !done_once_.contains(at) && !reads_early_.contains(at) &&
                  !has_effect(at) && !binds_symbol(node(at));
         });
}

// An exchange that backward must not do once more (over symmetric memory).
bool TorchFacts::has_effect(NodeId id) const {
  return node(id).op != nullptr && node(id).op->is_effectful && !is_wait(node(id));
}

// ------------------------------------------------------------------------- sizes and distances

std::int64_t TorchFacts::bytes_of(TypeId type) {
  if (!type) return 0;
  const Type& t = context_.types[type];
  if (t.kind == TypeKind::kTensor)
    return times(extents_.elements(t.tensor), info(t.tensor.dtype).bytes).value_or(4096);
  if (t.kind == TypeKind::kScalar) return 1;
  std::int64_t sum = 0;
  for (TypeId element : t.elements)
    if (tensor_of(context_, element) != nullptr) sum += bytes_of(element);
  return sum;
}

std::int64_t TorchFacts::size_of(NodeId id) {
  std::int64_t& size = sizes_[id];
  if (size < 0) size = bytes_of(node(id).type);
  return size;
}

void TorchFacts::find_distances() {
  std::uint32_t count = 0;
  for (NodeId id : body_.order)
    if (joint_.forward(id)) place_[id] = count++;
  for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
    if (is_output(*id)) continue;
    if (!joint_.forward(*id)) {
      distance_[*id] = 0;
      continue;
    }
    for (NodeId user : joint_.users[*id]) distance_[*id] = std::min(distance_[*id], distance_[user] + 1);
  }
}

void TorchFacts::save_collectives() {
  for (NodeId id : body_.order) {
    if (!is_call(id) || !context_.text(node(id).target).starts_with("_c10d_functional.")) continue;
    if (!is_tagged(id)) save_leaves(id);
  }
}

void TorchFacts::save_leaves(NodeId id) {
  bool has_elements = false;
  for (NodeId user : joint_.users[id])
    if (is_element(user)) {
      has_elements = true;
      save_leaves(user);
    }
  if (has_elements || !node(id).type) return;
  if (kind_of(id) != TypeKind::kTuple && kind_of(id) != TypeKind::kList) must_save_.insert(id);
}

// What reads storage that is written behind it would read something else in backward. PyTorch
// cuts graphs without writes in place, where there is no such call.
void TorchFacts::find_writes() {
  const Effects effects(graph_, body_);
  done_once_ = find_uses_of_freed(effects, joint_);
  find_done_once(effects);
  find_required();
  reads_early_ = find_reads_before_writes(effects, joint_);
  IdSet<NodeId> written(body_.nodes.size());  // storage
  for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
    for (const StorageAccess& access : effects.accesses_of(*id))
      if (!access.writes && written.contains(access.storage)) reads_overwritten_.insert(*id);
    if (is_wait(node(*id))) continue;
    for (const StorageAccess& access : effects.accesses_of(*id))
      if (access.writes) written.insert(access.storage);
  }
}

// Storage that backward may not find as forward left it, were all of it done again. Backward does
// again what it takes: a call that reads the storage must take, as that operand, what the newest
// write in front of it made, and no write of forward may follow what only reads.
IdSet<NodeId> TorchFacts::find_read_by_name(const Effects& effects) const {
  IdSet<NodeId> found(body_.nodes.size()), read(body_.nodes.size());  // storage
  SideTable<NodeId, NodeId> newest;                                   // write of a storage, so far
  SideTable<NodeId, NodeId> taken;  // by a value: the newest write of its storage that it comes from
  for (NodeId id : body_.order) {
    if (!is_wait(node(id)))
      for (const StorageAccess& access : effects.accesses_of(id)) {
        for (NodeId input : joint_.inputs[id])
          if (effects.storage_of(input) == access.storage && taken[input] != newest[access.storage])
            found.insert(access.storage);
        if (!access.writes) read.insert(access.storage);
        if (!access.writes || joint_.backward(id)) continue;
        if (read.contains(access.storage)) found.insert(access.storage);
        newest.at(access.storage) = id;
      }
    taken.at(id) = find_taken(effects, id, newest[effects.storage_of(id)], taken);
  }
  return found;
}

// The newest write of the value's storage, if the value is made by it or of a value that is.
NodeId TorchFacts::find_taken(const Effects& effects, NodeId id, NodeId newest,
                              const SideTable<NodeId, NodeId>& taken) const {
  if (id == newest) return id;
  const auto is_of_it = [&](NodeId input) {
    const bool is_same = effects.storage_of(input) == effects.storage_of(id);
    return input == newest || (is_same && taken[input] == newest);
  };
  return std::ranges::any_of(joint_.inputs[id], is_of_it) ? newest : NodeId();
}

// What makes storage is done again with all that forward writes into it, if all are tagged so, or
// none of them is.
void TorchFacts::find_done_once(const Effects& effects) {
  const IdSet<NodeId> written = find_written_in_forward(effects, joint_);
  IdSet<NodeId> kept = find_read_by_name(effects);  // storage
  const auto for_each_part = [&](const auto& visit) {
    for (NodeId id : body_.order) {
      if (written.contains(id)) visit(id, id);
      if (joint_.backward(id) || is_wait(node(id))) continue;
      for (const StorageAccess& access : effects.accesses_of(id))
        if (access.writes) visit(id, access.storage);
    }
  };
  for_each_part([&](NodeId id, NodeId storage) {
    const bool is_taken = !joint_.users[id].empty();
    if (!is_taken || !is_tagged(id) || must_save_.contains(id)) kept.insert(storage);
  });
  for_each_part([&](NodeId id, NodeId storage) {
    if (kept.contains(storage)) done_once_.insert(id);
  });
}

// What is said to be forward's (`required_half`), with elements and waits of it.
void TorchFacts::find_required() {
  const auto is_free = [&](NodeId id) { return required_half(context_, node(id)) != RequiredHalf::kForward; };
  for (NodeId id : body_.order)
    if (!holds_with_call(id, is_free)) done_once_.insert(id);
}

void TorchFacts::find_calls_done_once() {
  for (NodeId id : body_.order) {
    if (!is_call(id)) continue;
    const bool runs_twice = holds_with_call(id, [&](NodeId at) {
      return can_run_twice(graph_, node(at)) && !done_once_.contains(at) && !reads_early_.contains(at) &&
             !reads_overwritten_.contains(at);
    });
    if (!runs_twice) runs_once_.insert(id);
  }
}

}  // namespace epweave
