#include "passes/overlap_ep/overlap_ep_phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "ops/op.h"
#include "passes/overlap_ep/overlap_ep_closures.h"
#include "passes/overlap_ep/overlap_ep_refusal.h"

namespace epweave {

namespace {

bool is_communication(const Graph& graph, const Node& node) {
  if (node.op != nullptr) return is_launch(node) || is_wait(node);
  return graph.text(node.target).starts_with("_c10d_functional.");
}

// Emits body nodes in phases and knows which nodes are ready: everything they depend on was
// emitted.
class PhaseEmitter {
 public:
  explicit PhaseEmitter(const RegionGraph& region)
      : region_(region), missing_(region.size()), emitted_(region.body_size()) {
    for (Local i = 0; i < region.size(); ++i)
      missing_[i] = static_cast<std::uint32_t>(region.before(i).size());
    for (Local i = region.size(); i-- > 0;)
      if (missing_[i] == 0) became_ready(i);
    settle();
  }

  bool is_emitted(Local i) const { return emitted_[i] != 0; }
  bool is_ready(Local i) const { return !is_emitted(i) && missing_[i] == 0; }

  void emit(PhaseKind kind, std::uint32_t exchange, const std::vector<Local>& nodes) {
    Phase phase{kind, exchange, {}};
    for (Local i : nodes) {
      if (std::exchange(emitted_[i], std::uint8_t{1}) != 0) continue;
      phase.nodes.push_back(region_.node(i));
      done_.push_back(i);
    }
    settle();
    if (!phase.nodes.empty()) phases_.push_back(std::move(phase));
  }

  // Nodes that became ready since the last call and were not emitted.
  std::vector<Local> take_ready() {
    std::vector<Local> ready = std::exchange(ready_, {});
    std::erase_if(ready, [&](Local i) { return is_emitted(i); });
    return ready;
  }

  std::vector<Phase> take_phases() { return std::move(phases_); }

 private:
  void became_ready(Local i) { (region_.is_body(i) ? ready_ : done_).push_back(i); }

  // Tells the users of what is done; nodes in between are done as soon as they are ready.
  void settle() {
    while (!done_.empty()) {
      const Local i = done_.back();
      done_.pop_back();
      for (Local user : region_.after(i))
        if (--missing_[user] == 0) became_ready(user);
    }
  }

  const RegionGraph& region_;
  std::vector<std::uint32_t> missing_;
  std::vector<std::uint8_t> emitted_;
  std::vector<Local> ready_, done_;
  std::vector<Phase> phases_;
};

// One region, from closures to phases.
class RegionScheduler {
 public:
  RegionScheduler(const Graph& graph, const RegionGraph& graph_of_region, const EpRegion& region)
      : graph_(graph),
        region_(graph_of_region),
        emitter_(graph_of_region),
        parts_(plan_parts(graph, graph_of_region, region)) {
    find_turns();
  }

  RegionSchedule run(FirstExchange first) {
    const auto exchanges = static_cast<std::uint32_t>(parts_.front().closures.size());
    for (std::uint32_t k = 0; k < exchanges; ++k) {
      if (k > 0) {
        emit_closures(k);
      } else if (first == FirstExchange::kPaired) {
        has_copies() ? emit_copies_paired() : emit_first_paired();
      } else {
        has_copies() ? emit_copies_in_turn() : emit_closures(0);
      }
      emit_filler(k);
    }
    emit_tail(exchanges - 1);
    for (Local i = 0; i < region_.body_size(); ++i) EPWEAVE_CHECK(emitter_.is_emitted(i));  // S-17
    schedule_.phases = emitter_.take_phases();
    return std::move(schedule_);
  }

 private:
  bool has_copies() const { return parts_.front().copies.has_value(); }

  // In a wave, nodes of the part that goes first come first; a node that an exchange of an earlier
  // part needs counts as that part's.
  void find_turns() {
    turn_.assign(region_.body_size(), 0);
    for (std::uint32_t turn = 0; turn < parts_.size(); ++turn)
      for (NodeId id : parts_[turn].part->nodes) turn_[region_.local(id)] = turn;
    rank_ = turn_;
    for (std::uint32_t turn = 0; turn < parts_.size(); ++turn)
      for (const std::vector<Local>& closure : parts_[turn].closures)
        for (Local i : closure) rank_[i] = std::min(rank_[i], turn);
  }

  void emit_closures(std::uint32_t k) {
    for (const PartPlan& part : parts_) emitter_.emit(PhaseKind::kNeeded, k, part.closures[k]);
  }

  void emit_first_paired() {
    for (const PartPlan& part : parts_) {
      const std::vector<Local>& closure = part.closures[0];
      emitter_.emit(PhaseKind::kNeeded, 0, {closure.begin(), closure.end() - 1});
    }
    for (const PartPlan& part : parts_) emitter_.emit(PhaseKind::kLaunch, 0, {part.launch(0)});
  }

  void emit_copies_paired() {
    for (const PartPlan& part : parts_) emitter_.emit(PhaseKind::kBeforeCopy, 0, part.copies->before);
    std::vector<Local> copies;
    for (const PartPlan& part : parts_)
      copies.insert(copies.end(), part.copies->copies.begin(), part.copies->copies.end());
    emit_copies(copies);
    for (const PartPlan& part : parts_) emitter_.emit(PhaseKind::kAfterCopy, 0, part.copies->behind);
    for (const PartPlan& part : parts_) emitter_.emit(PhaseKind::kLaunch, 0, {part.launch(0)});
  }

  void emit_copies_in_turn() {
    for (const PartPlan& part : parts_) {
      emitter_.emit(PhaseKind::kBeforeCopy, 0, part.copies->before);
      emit_copies(part.copies->copies);
      emitter_.emit(PhaseKind::kAfterCopy, 0, part.copies->behind);
      emitter_.emit(PhaseKind::kLaunch, 0, {part.launch(0)});
    }
  }

  // Only the last copy makes the host wait, for all of them.
  void emit_copies(const std::vector<Local>& copies) {
    for (Local i : copies) {
      if (emitter_.is_emitted(i))
        decline(graph_, region_.node(i), {"count-copies", "make the parts' token-count copies independent"},
                "a token-count copy that another part's first exchange needs");
      schedule_.copies.push_back({region_.node(i), i != copies.back()});
    }
    emitter_.emit(PhaseKind::kCopy, 0, copies);
  }

  void emit_filler(std::uint32_t k) {
    std::vector<Local> wave = take_filler();
    while (!wave.empty()) {
      std::sort(wave.begin(), wave.end(),
                [&](Local a, Local b) { return std::pair(rank_[a], a) < std::pair(rank_[b], b); });
      emitter_.emit(PhaseKind::kFiller, k, wave);
      wave = take_filler();
    }
  }

  // What is ready and needs no communication. Communication that is ready waits for its closure or
  // the tail.
  std::vector<Local> take_filler() {
    std::vector<Local> ready = emitter_.take_ready();
    std::erase_if(ready,
                  [&](Local i) { return is_communication(graph_, graph_.step().nodes[region_.node(i)]); });
    return ready;
  }

  // Part by part as far as each gets, until none gets any further.
  void emit_tail(std::uint32_t k) {
    std::vector<std::vector<Local>> ready(parts_.size());
    for (Local i = 0; i < region_.body_size(); ++i)
      if (emitter_.is_ready(i)) ready[turn_[i]].push_back(i);
    emitter_.take_ready();
    for (bool has_emitted = true; has_emitted;) {
      has_emitted = false;
      for (std::vector<Local>& of_part : ready)
        while (!of_part.empty()) {
          std::vector<Local> wave = std::exchange(of_part, {});
          std::sort(wave.begin(), wave.end());
          emitter_.emit(PhaseKind::kTail, k, wave);
          for (Local i : emitter_.take_ready()) ready[turn_[i]].push_back(i);
          has_emitted = true;
        }
    }
  }

  const Graph& graph_;
  const RegionGraph& region_;
  PhaseEmitter emitter_;
  std::vector<PartPlan> parts_;  // in turn
  std::vector<std::uint32_t> rank_, turn_;
  RegionSchedule schedule_;
};

}  // namespace

RegionSchedule plan_phases(StepDependences& step, const EpRegion& region, FirstExchange first) {
  const RegionGraph region_graph(step, region);
  return RegionScheduler(step.graph, region_graph, region).run(first);
}

std::string describe_phase(const Graph& graph, const EpRegion& region, const Phase& phase) {
  const Node& launch = graph.step().nodes[region.parts.front().exchanges[phase.exchange]];
  const std::string exchange =
      fmt::format("exchange {} ({})", phase.exchange, graph.text(launch.ep.token_exchange));
  switch (phase.kind) {
    case PhaseKind::kNeeded:
      return exchange + " needs it";
    case PhaseKind::kBeforeCopy:
      return "the token-count copies need it";
    case PhaseKind::kCopy:
      return "copies token counts, all parts' together";
    case PhaseKind::kAfterCopy:
      return exchange + " needs it, behind the token-count copies";
    case PhaseKind::kLaunch:
      return "launches " + exchange;
    case PhaseKind::kFiller:
      return "fills the time of " + exchange;
    case PhaseKind::kTail:
      return "follows " + exchange + ", the last";
  }
  return {};
}

}  // namespace epweave
