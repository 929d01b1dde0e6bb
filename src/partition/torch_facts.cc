#include "partition/torch_facts.h"

#include <algorithm>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/done_again.h"
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
      marks_(graph, joint),
      once_(find_run_once(graph, joint, marks_)),
      traits_(context_),
      extents_(graph),
      flops_(graph, extents_),
      state_(find_state(graph)),
      sizes_(body_.nodes.size(), -1),
      distance_(body_.nodes.size(), kFar),
      place_(body_.nodes.size()) {
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

bool TorchFacts::must_recompute(NodeId id) const {
  return marks_.is_recomputed(id) && holds_with_call(context_, body_, id, [&](NodeId at) {
           return !must_save(at) && !is_done_once(at) && !reads_early(at) && !has_effect(at) &&
                  !binds_symbol(node(at));
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

}  // namespace epweave
