#include "replay/run/call_bounds.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave::replay {
namespace {

// How large the result is, the elements of an operand say.
bool finds_size(OpFamily family) {
  return family == OpFamily::kMaskedRows || family == OpFamily::kRepeatRows || family == OpFamily::kCount ||
         family == OpFamily::kOneHot || family == OpFamily::kIndex;
}

bool is_tensor_of_numbers(const Value& value) {
  return value.is_tensor() && is_inexact(value.tensor().dtype);
}

}  // namespace

CallBounds::CallBounds(const Program& program, const RunOptions& options, Memory& memory,
                       const std::vector<Value>& values)
    : context_(*program.graph.context),
      body_(program.body),
      options_(options),
      values_(values),
      bounds_(options.bounded == nullptr ? nullptr : std::make_unique<ErrorBounds>(program.kernels, memory)) {
}

CallBounds::How CallBounds::begin(NodeId id, const KernelCall& call) {
  if (!is_bounded(options_, id)) return How::kNone;
  How how = How::kExact;
  if (takes_number_in_doubt(body_.nodes[id])) {
    how = How::kInDoubt;
  } else if (needs_bounds(id, call)) {
    how = How::kFollows;
    if (call.op().writes) bounds_->keep_written(call.op(), call.args());
  }
  hand_on_doubt(id, &call);
  return how;
}

void CallBounds::end(NodeId id, How how, const BoundedCall& call) {
  if (how == How::kNone) {
    // The op is bounded for another element, which is a regrouped sum.
    if (bounds_ != nullptr && call.op.family == OpFamily::kElement) bounds_->set_exact(call.result);
  } else if (call.result.is_number()) {
    follow_number(id, call);
  } else if (how == How::kInDoubt) {
    follow_in_doubt(id, call);
  } else if (how == How::kFollows) {
    bounds_->follow(call);
  }
}

// Whether the call adds up what another graph regroups, or takes what may be off. Of exact operands
// it makes what is exact, whatever its rule; what it writes over may have bounds.
bool CallBounds::needs_bounds(NodeId id, const KernelCall& call) const {
  if (options_.bounded->sums.contains(id)) return true;
  const auto has_bound = [&](const Value& arg) { return bounds_->has_any(arg); };
  if (std::ranges::none_of(call.args(), has_bound)) return false;
  if (call.op().writes) return true;
  return std::ranges::any_of(call.args(), [&](const Value& arg) { return bounds_->is_off(arg); });
}

// Numbers have no bounds: what is computed from one that the other graph may not have is not
// bounded. Of an op that reads the type alone that is the size of its operand.
void CallBounds::follow_number(NodeId id, const BoundedCall& call) {
  if (options_.bounded->same.contains(id)) return;
  const Node& node = body_.nodes[id];
  bool is_read = false;  // where it lies: the kernel has a copy of the host's
  for_each_input(context_, node, [&](NodeId input) {
    is_read = is_read || (node.op->reads_types_only ? sizes_in_doubt_.contains(input)
                                                    : bounds_->is_off(values_[input.index()]));
  });
  if (is_read) bounds_->leave_unbounded(call);
  if (is_read || takes_number_in_doubt(node)) numbers_in_doubt_.insert(id);
}

// Computed from a number that the other graph may not have. Where both were seen to have the same
// elements nothing is in doubt; a view of them keeps what is known of the memory.
void CallBounds::follow_in_doubt(NodeId id, const BoundedCall& call) {
  if (!options_.bounded->same.contains(id)) return bounds_->set_call_unknown(call);
  if (call.op.writes) bounds_->set_call_unknown(call);
  if (!call.op.is_view && call.op.family != OpFamily::kElement) bounds_->set_exact(call.result);
}

void CallBounds::hand_on_doubt(NodeId id, const KernelCall* call) {
  if (!is_bounded(options_, id) || options_.bounded->same.contains(id)) return;
  const Node& node = body_.nodes[id];
  if (takes_number_in_doubt(node) || takes_one_of(node, sizes_in_doubt_) ||
      (call != nullptr && finds_size_in_doubt(node, *call)))
    sizes_in_doubt_.insert(id);
}

// All but `nonzero` find them in integers and masks.
bool CallBounds::finds_size_in_doubt(const Node& node, const KernelCall& call) const {
  if (!finds_size(node.op->family)) return false;
  return std::ranges::any_of(call.args(), [&](const Value& arg) {
    return (node.op->family == OpFamily::kMaskedRows || !is_tensor_of_numbers(arg)) && bounds_->is_off(arg);
  });
}

bool CallBounds::takes_one_of(const Node& node, const IdSet<NodeId>& nodes) const {
  bool takes = false;
  for_each_input(context_, node, [&](NodeId input) { takes = takes || nodes.contains(input); });
  return takes;
}

}  // namespace epweave::replay
