#include "replay/need/rank_need.h"

#include <algorithm>
#include <functional>

#include "analysis/effects.h"
#include "cost/extents.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "replay/need/holdings.h"
#include "replay/need/ranks_together.h"
#include "replay/need/value_sizes.h"
#include "replay/run/written_inputs.h"
#include "replay/steps/steps.h"

namespace epweave::replay {
namespace {

constexpr std::size_t kListed = 8;

bool reduces(OpFamily family) {
  return family == OpFamily::kReduceScatter || family == OpFamily::kAllReduce;
}

// What is the same for each walk over the steps.
struct StepPlan {
  const Graph& graph;
  const ValueSizes& sizes;
  device::CallMemoryFinder& calls;
  Effects effects;
  Steps steps;
  std::vector<bool> written;  // by input

  StepPlan(const Graph& run_graph, const ValueSizes& run_sizes, device::CallMemoryFinder& run_calls)
      : graph(run_graph),
        sizes(run_sizes),
        calls(run_calls),
        effects(run_graph, run_graph.step()),
        steps(plan_steps(run_graph, run_graph.step())),
        written(find_written_inputs(run_graph)) {}
};

// A rank's memory along the first `count` steps.
class Walk {
 public:
  Walk(const StepPlan& plan, std::size_t count)
      : plan_(plan),
        sizes_(plan.sizes),
        held_(plan.effects, plan.sizes),
        together_(plan.graph, plan.effects) {
    for (std::size_t i = 0; i < count; ++i) {
      if (add(plan.steps.list[i])) peak_ = i;
      together_.note(plan.steps.list[i], held_.own_bytes());
    }
  }

  std::size_t peak() const { return peak_; }  // the step

  RankNeed need() const {
    RankNeed need = need_;
    need.made = held_.made();
    need.bounded = held_.made_with_bounds();
    if (sizes_.is_on_device()) need.rounding += input_blocks_ - need.inputs;
    need.together = together_.find(need.values);
    return need;
  }

  // Inputs and what lives behind the last step, the largest first.
  std::vector<LiveValue> list_live() const {
    std::vector<LiveValue> live = inputs_;
    for (const LiveValue& value : held_.list_live()) live.push_back(value);
    std::ranges::stable_sort(live, std::greater(), &LiveValue::bytes);
    return live;
  }

 private:
  // Whether more is held than ever before.
  bool add(const Step& step) {
    if (step.kind == StepKind::kOutput) add_outputs();
    if (!step.node) return false;
    switch (step.kind) {
      case StepKind::kInput:
        add_input(step.node);
        return false;
      case StepKind::kFree:
        held_.free(step.node);
        return false;
      case StepKind::kWait: {
        const bool is_peak = note(step.node, 0);
        // A rank that is behind holds the copies of all: those go at the next wait.
        if (waited_) held_.drop_copy(waited_);
        waited_ = plan_.effects.storage_of(step.node);
        held_.share_operand(step.node);
        return is_peak;
      }
      case StepKind::kComm:
        return add_collective(step.node);
      case StepKind::kLaunch:
        return add_launch(step.node);
      default:
        if (!held_.share_operand(step.node)) held_.make_all(step.node);
        return note(step.node, 0);
    }
  }

  void add_input(NodeId id) {
    const std::uint64_t bytes = sizes_.bytes_of(id);
    if (plan_.written[inputs_.size()]) need_.written += bytes;
    inputs_.push_back({id, bytes});
    need_.inputs += bytes;
    input_blocks_ += sizes_.block_of(bytes);
  }

  bool add_collective(NodeId id) {
    const Context& context = *plan_.graph.context;
    const Node& node = plan_.graph.step().nodes[id];
    std::uint64_t operand = 0;  // of a coalesced call, all of them
    context.args.for_each_node(arg_of(context, node, 0),
                               [&](NodeId input) { operand += sizes_.bytes_of(input); });
    held_.copy(plan_.effects.storage_of(id), operand);
    if (!held_.share_operand(id)) held_.make_all(id);
    const bool needs_room = sizes_.has_own_device() && node.op != nullptr && reduces(node.op->family);
    return note(id, needs_room ? operand : 0);
  }

  bool add_launch(NodeId id) {
    const Node& node = plan_.graph.step().nodes[id];
    if (node.op == nullptr) return false;
    const device::CallMemory& memory = plan_.calls.find(node);
    std::size_t next = 0;
    bool is_alias = false;
    for (const ResultType& result : sizes_.results_of(id)) {
      if (!result.is_tensor) {
        held_.make_none(id);
        continue;
      }
      const std::uint64_t made = next < memory.results.size() ? memory.results[next] : 0;
      ++next;
      is_alias = is_alias || made == 0;
      if (made != 0) held_.make(id, sizes_.bytes_of(result, id));
    }
    if (is_alias) held_.share_operand(id);
    if (sizes_.is_bounded(id) && node.op->writes) add_written_bounds(id);
    return note(id, sizes_.scratch_of(id, memory.scratch));
  }

  // A bounded op writes memory that was made without bounds, which has them from here on: of all
  // that lies there. An input's stay to the end.
  void add_written_bounds(NodeId id) {
    for (const StorageAccess& access : plan_.effects.accesses_of(id))
      if (access.writes && !sizes_.is_bounded(access.storage) && has_bounds_.insert(access.storage))
        held_.grow(access.storage, id, sizes_.bytes_of_all_bounds(access.storage));
  }

  void add_outputs() {
    const Body& body = plan_.graph.step();
    for (const NodeId id : body.order)
      if (body.nodes[id].kind == NodeKind::kOutput)
        for_each_input(*plan_.graph.context, body.nodes[id],
                       [&](NodeId input) { need_.outputs += sizes_.bytes_of(input); });
  }

  bool note(NodeId id, std::uint64_t scratch) {
    if (held_.blocks() + scratch <= need_.at_peak()) return false;
    need_.values = held_.bytes();
    need_.rounding = held_.blocks() - held_.bytes();
    need_.scratch = scratch;
    need_.peak = id;
    return true;
  }

  const StepPlan& plan_;
  const ValueSizes& sizes_;
  Holdings held_;
  RanksTogether together_;
  RankNeed need_;
  std::size_t peak_ = 0;
  std::vector<LiveValue> inputs_;
  std::uint64_t input_blocks_ = 0;
  NodeId waited_;             // the storage of the last collective that was waited for
  IdSet<NodeId> has_bounds_;  // storages that a bounded op has written
};

// Every symbol's number: as traced, else balanced, else 1.
std::size_t bind_all(const Graph& graph, Symbols& symbols) {
  epweave::Extents extents(graph);
  ExprPool& pool = graph.context->exprs;
  for (const Symbol& symbol : graph.symbols) {
    if (symbol.replaced_by) continue;
    const auto number =
        symbol.hint ? symbol.hint : extents.number(pool.from_poly(pool.poly_symbol(symbol.name)));
    symbols.bind(symbol.name, number.value_or(1));
  }
  return extents.assumed();
}

}  // namespace

NeedFinder::NeedFinder(const Graph& graph) : graph_(graph), symbols_(graph), calls_(graph, symbols_) {
  assumed_ = bind_all(graph, symbols_);
}

RankNeed NeedFinder::find(NeedOf where, const IdSet<NodeId>* bounded) {
  const ValueSizes sizes(graph_, symbols_, where, bounded);
  const StepPlan plan(graph_, sizes, calls_);
  const Walk whole(plan, plan.steps.list.size());
  RankNeed need = whole.need();
  // Once more, up to the peak, for what lives there.
  need.largest = Walk(plan, std::min(whole.peak() + 1, plan.steps.list.size())).list_live();
  if (need.largest.size() > kListed) need.largest.resize(kListed);
  need.assumed = assumed_;
  return need;
}

}  // namespace epweave::replay
