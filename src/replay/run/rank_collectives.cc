#include "replay/run/rank_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "replay/collectives/collective_call.h"
#include "replay/run/host_exchange.h"

namespace epweave::replay {

Value RankCollectives::launch(const Step& step, const Node& node, const BoundCall& bound, Known numbers) {
  const std::vector<Tensor> operands = list_operands(bound);
  auto pending = std::make_shared<Pending>();
  pending->node = step.node;
  pending->stream = step.stream;
  pending->is_bounded = is_bounded(options_, step.node);
  pending->numbers = numbers;
  List results;
  for (const Tensor& operand : operands) {
    Pending::Part& part = pending->parts.emplace_back();
    part.operand = operand;
    launch_part(node, bound, *pending);
    results.items.push_back(part.result);
  }
  if (setup_.local == nullptr) start_exchange(*pending);
  for (Pending::Part& part : pending->parts) {
    part.operand = {};
    pending_.insert_or_assign(part.result.storage.get(), pending);
  }
  return bound.args[0].is<List>() ? Value(std::move(results)) : std::move(results.items[0]);
}

MeasuredNode RankCollectives::describe(const OpInfo& op, const BoundCall& bound) const {
  MeasuredNode sent{{}, 0, setup_.transport.member_count(setup_.rank, group_of(op, bound))};
  for (const Tensor& operand : list_operands(bound)) {
    sent.operands += (sent.operands.empty() ? "" : ", ") + describe_operand(operand);
    sent.bytes += static_cast<std::uint64_t>(operand.numel()) * operand.element_bytes();
  }
  return sent;
}

std::shared_ptr<Storage> RankCollectives::copy_operand(const Tensor& operand) {
  auto copy = setup_.memory.allocate(static_cast<std::size_t>(operand.numel()) * operand.element_bytes());
  gather_elements(operand, copy->data());
  return copy;
}

void RankCollectives::launch_part(const Node& node, const BoundCall& bound, Pending& pending) {
  Pending::Part& launched = pending.parts.back();
  const Tensor& operand = launched.operand;
  const std::string& group = group_of(*node.op, bound);
  const std::size_t members = setup_.transport.member_count(setup_.rank, group);
  Contribution part = read_contribution(*node.op, bound, operand, members);
  part.what = fmt::format("%{} = {}", graph_.text(node.name), node.op->target);
  part.is_graphs = options_.types == RecordedTypes::kMustHold && is_known_from_graph(graph_, node);
  const Extents sizes = result_sizes(part, members);
  const Value* out = find_argument(*node.op, bound, "out");
  const bool in_place = node.op->writes && out == nullptr;
  launched.result = out != nullptr ? out->tensor()
                    : in_place     ? operand
                                   : make_tensor(setup_.memory, operand.dtype, sizes);
  if (launched.result.sizes != sizes) throw KernelError("`out` does not have the size of the result");
  pending.is_sum = part.reduction == "sum" || part.reduction == "avg";
  if (pending.is_bounded) hand_over_bounds(operand, members, pending, part);
  if (setup_.device != nullptr)
    setup_.device->post(operand, pending.stream, part);
  else if (setup_.local != nullptr)
    part.data = copy_operand(operand);
  launched.ticket = setup_.transport.post(setup_.rank, group, std::move(part));
}

void RankCollectives::hand_over_bounds(const Tensor& operand, std::size_t members, Pending& pending,
                                       Contribution& part) {
  const Tensor bound = pending.numbers == Known::kYes
                           ? bounds_->bound_operand(operand, pending.is_sum ? members : 0)
                           : bounds_->unbounded(operand.sizes);
  part.bound = hand_over(bound, pending.stream);
  if (setup_.local == nullptr) return;
  Pending::Part& launched = pending.parts.back();
  launched.bound = make_tensor(setup_.memory, DType::kFloat32, launched.result.sizes);
  if (!has_ideals(operand.dtype)) return;
  part.ideal = hand_over(bounds_->ideals().find(operand), pending.stream);
  launched.ideal = make_tensor(setup_.memory, DType::kFloat64, launched.result.sizes);
}

std::shared_ptr<Storage> RankCollectives::hand_over(const Tensor& tensor, std::uint32_t stream) {
  if (setup_.device == nullptr) return tensor.storage;
  Contribution copy;
  setup_.device->post(tensor, stream, copy);
  return copy.data;
}

void RankCollectives::start_exchange(Pending& pending) {
  const std::vector<Meeting> meetings = meet_all(pending);
  clock_.measure(pending.node, pending.stream, [&] {
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      Pending::Part& part = pending.parts[i];
      if (setup_.device != nullptr)
        setup_.device->start(meetings[i], pending.stream, part.result);
      else
        part.exchanged =
            setup_.host_exchange->start({meetings[i], part.operand, part.result.sizes, pending.stream});
    }
  });
}

std::vector<Meeting> RankCollectives::meet_all(const Pending& pending) {
  std::vector<Meeting> meetings;
  for (const Pending::Part& part : pending.parts) meetings.push_back(meet(part.ticket));
  return meetings;
}

Meeting RankCollectives::meet(const Transport::Ticket& ticket) {
  if (setup_.turn == nullptr) return setup_.transport.meet(setup_.rank, ticket);
  if (setup_.device != nullptr) setup_.device->drain();
  setup_.turn->unlock();
  const Meeting meeting = setup_.transport.meet(setup_.rank, ticket);
  setup_.turn->lock();
  return meeting;
}

void RankCollectives::complete(const Storage* storage, Joined joined) {
  const auto found = pending_.find(storage);
  if (found == pending_.end()) return;
  const std::shared_ptr<Pending> pending = found->second;
  for (const Pending::Part& part : pending->parts) pending_.erase(part.result.storage.get());
  if (setup_.host_exchange != nullptr) {
    for (const Pending::Part& part : pending->parts) take_exchanged(*pending, part);
    return;
  }
  if (setup_.local == nullptr) {  // started at its launch; the step before a wait joins its stream
    if (joined == Joined::kNo) setup_.device->join_all(pending->stream);
    return;
  }
  const std::vector<Meeting> meetings = meet_all(*pending);
  clock_.measure(pending->node, pending->stream, [&] {
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      const Pending::Part& part = pending->parts[i];
      if (setup_.device != nullptr)
        setup_.device->complete(meetings[i], pending->stream, part.result);
      else
        setup_.local->complete(setup_.rank, part.ticket, part.result);
    }
  });
  if (!pending->is_bounded) return;
  for (std::size_t i = 0; i < meetings.size(); ++i) bound_part(*pending, pending->parts[i], meetings[i]);
}

void RankCollectives::bound_part(const Pending& pending, const Pending::Part& part, const Meeting& meeting) {
  const std::vector<Contribution>& parts = meeting.contributions;
  const bool has_bound = complete_with(find_bound_contributions(parts), meeting, pending.stream, part.bound);
  set_bound(pending, part.result, has_bound ? std::optional(part.bound) : std::nullopt);
  if (!has_bound || !is_floating(part.result.dtype)) return;
  if (part.ideal.storage != nullptr &&
      complete_with(find_ideal_contributions(parts), meeting, pending.stream, part.ideal))
    bounds_->ideals().set(part.result, part.ideal);
  else
    bounds_->ideals().set_unknown(part.result);
}

bool RankCollectives::complete_with(std::optional<std::vector<Contribution>> contributions,
                                    const Meeting& meeting, std::uint32_t stream, const Tensor& result) {
  const auto is_there = [](const Contribution& part) { return part.data != nullptr; };
  if (!contributions || !std::ranges::all_of(*contributions, is_there)) return false;
  const Meeting of_bounds{*contributions, meeting.members, meeting.member, meeting.group, meeting.number};
  if (setup_.device != nullptr)
    setup_.device->complete(of_bounds, stream, result);
  else
    write_result(of_bounds, result);
  return true;
}

void RankCollectives::take_exchanged(const Pending& pending, const Pending::Part& part) {
  setup_.host_exchange->take_result(part.exchanged, part.result);
  if (!pending.is_bounded) return;
  set_bound(pending, part.result,
            setup_.host_exchange->take_bound(part.exchanged, {part.result.sizes, setup_.memory}));
  bounds_->ideals().set_unknown(part.result);
}

void RankCollectives::set_bound(const Pending& pending, const Tensor& result,
                                const std::optional<Tensor>& bound) {
  if (!bound) return bounds_->set_unknown(result);
  if (pending.is_sum) return bounds_->set_reduced(result, *bound);
  bounds_->set(result, *bound);
}

void RankCollectives::complete_all() {
  while (!pending_.empty()) complete(pending_.begin()->first, Joined::kNo);
}

bool RankCollectives::is_pending(const Value& value) const {
  if (value.is<List>())
    return std::ranges::any_of(value.items(), [&](const Value& item) { return is_pending(item); });
  return value.is_tensor() && pending_.contains(value.tensor().storage.get());
}

void RankCollectives::require_complete(const Value& value) const {
  if (pending_.empty()) return;
  if (value.is<List>()) {
    for (const Value& item : value.items()) require_complete(item);
  } else if (is_pending(value)) {
    throw KernelError("reads or writes the result of a collective that nobody waited for yet");
  }
}

}  // namespace epweave::replay
