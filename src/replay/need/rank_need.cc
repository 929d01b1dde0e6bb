#include "replay/need/rank_need.h"

#include <algorithm>

#include "analysis/effects.h"
#include "analysis/world.h"
#include "cost/extents.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "replay/bounds/error_bounds.h"
#include "replay/kernels/device/pool.h"
#include "replay/run/call_values.h"
#include "replay/run/written_inputs.h"
#include "replay/steps/steps.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {
namespace {

constexpr std::size_t kListed = 8;

bool reduces(OpFamily family) {
  return family == OpFamily::kReduceScatter || family == OpFamily::kAllReduce;
}

// A step's memory along its steps.
class Walk {
 public:
  Walk(const Graph& graph, const Symbols& symbols, device::CallMemoryFinder& calls, NeedOf where,
       const IdSet<NodeId>* bounded)
      : graph_(graph),
        body_(graph.step()),
        symbols_(symbols),
        calls_(calls),
        where_(where),
        bounded_(bounded),
        effects_(*graph.context, body_),
        steps_(plan_steps(graph, body_)),
        written_(find_written_inputs(graph)) {}

  RankNeed find() {
    const std::size_t peak = run(steps_.list.size());
    need_.made = made_;
    need_.bounded = bounded_made_;
    if (is_on_device()) need_.rounding += input_blocks_ - need_.inputs;
    // Once more, up to the peak, for what lives there.
    need_.together = find_together();
    const RankNeed found = need_;
    run(std::min(peak + 1, steps_.list.size()));
    need_ = found;
    need_.largest = inputs_;
    for (const Held& held : storages_)
      if (held.users != 0) need_.largest.push_back({held.maker, held.bytes});
    std::stable_sort(need_.largest.begin(), need_.largest.end(),
                     [](const LiveValue& a, const LiveValue& b) { return a.bytes > b.bytes; });
    if (need_.largest.size() > kListed) need_.largest.resize(kListed);
    return need_;
  }

 private:
  struct Held {
    NodeId maker;
    std::uint64_t bytes = 0, block = 0;
    std::uint32_t users = 0;
  };
  using Storages = std::vector<std::uint32_t>;

  bool is_on_device() const { return where_ == NeedOf::kDevice || where_ == NeedOf::kOwnDevice; }

  // The first steps; which of them was the peak.
  std::size_t run(std::size_t count) {
    need_ = {};
    storages_.clear();
    inputs_.clear();
    input_blocks_ = 0;
    held_by_.assign(body_.nodes.size(), {});
    copies_.assign(body_.nodes.size(), 0);
    held_ = blocks_ = made_ = bounded_made_ = 0;
    waited_ = {};
    copied_ = 0;
    certain_.clear();
    launched_.assign(body_.nodes.size(), 0);
    windows_.clear();
    has_bounds_ = {};
    std::size_t peak = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (add(steps_.list[i])) peak = i;
      certain_.push_back(held_ - copied_);
      note_window(steps_.list[i], i);
    }
    return peak;
  }

  // --- all ranks ---

  // From the launch of a collective of all ranks to the wait for it.
  struct Window {
    std::size_t launch = 0, wait = 0;
  };

  void note_window(const Step& step, std::size_t at) {
    if (step.kind == StepKind::kComm && is_of_all(body_.nodes[step.node])) {
      launched_[effects_.storage_of(step.node).index()] = at;
    } else if (step.kind == StepKind::kWait) {
      const std::size_t launch = launched_[effects_.storage_of(step.node).index()];
      if (launch != 0) windows_.push_back({launch, at});
    }
  }

  std::uint32_t count_ranks() const {
    std::size_t ranks = 1;
    for (const ProcessGroup& group : graph_.groups) ranks = std::max(ranks, group.ranks.size());
    return std::max(static_cast<std::uint32_t>(recorded_world_size(graph_)),
                    static_cast<std::uint32_t>(ranks));
  }

  bool is_of_all(const Node& node) const {
    const auto args = graph_.context->args[node.args];
    if (args.empty()) return false;
    const ProcessGroup* group = graph_.find_group(recorded_group(*graph_.context, body_, args.back()));
    return group != nullptr && group->ranks.size() == count_ranks();
  }

  // A rank that has waited at `wait` holds what it holds; each other one is somewhere between its
  // launch of that collective and its wait for the first one of all that comes behind `wait`.
  std::uint64_t find_together() const {
    std::uint64_t most = need_.values;
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      std::size_t end = certain_.size();
      for (std::size_t j = i + 1; j < windows_.size() && end == certain_.size(); ++j)
        if (windows_[j].launch > windows_[i].wait) end = windows_[j].wait;
      const auto first = certain_.begin() + static_cast<std::ptrdiff_t>(windows_[i].launch);
      const std::uint64_t least =
          *std::min_element(first, certain_.begin() + static_cast<std::ptrdiff_t>(end));
      most = std::max(most, certain_[windows_[i].wait] + (count_ranks() - 1) * least);
    }
    return most;
  }

  // Whether more is held than ever before.
  bool add(const Step& step) {
    if (step.kind == StepKind::kOutput) add_outputs();
    if (!step.node) return false;
    switch (step.kind) {
      case StepKind::kInput:
        if (written_[inputs_.size()]) need_.written += count_bytes(step.node);
        inputs_.push_back({step.node, count_bytes(step.node)});
        need_.inputs += inputs_.back().bytes;
        input_blocks_ += block_of(inputs_.back().bytes);
        return false;
      case StepKind::kFree:
        for (const std::uint32_t storage : held_by_[step.node.index()]) release(storage);
        held_by_[step.node.index()].clear();
        return false;
      case StepKind::kWait: {
        const bool is_peak = note(step.node, 0);
        // A rank that is behind holds the copies of all: those go at the next wait.
        if (waited_) release_copy(waited_);
        waited_ = effects_.storage_of(step.node);
        share_operand(step.node);
        return is_peak;
      }
      case StepKind::kComm:
        return add_collective(step.node);
      case StepKind::kLaunch:
        return add_launch(step.node);
      default:
        if (!share_operand(step.node)) make_all(step.node);
        return note(step.node, 0);
    }
  }

  bool add_collective(NodeId id) {
    const Node& node = body_.nodes[id];
    std::uint64_t operand = 0;  // of a coalesced call, all of them
    const Arg sent = arg_of(*graph_.context, node, 0);
    graph_.context->args.for_each_node(sent, [&](NodeId input) { operand += count_bytes(input); });
    copies_[effects_.storage_of(id).index()] += operand;
    copied_ += operand;
    held_ += operand;
    blocks_ += block_of(operand);
    if (!share_operand(id)) make_all(id);
    const bool needs_room = where_ == NeedOf::kOwnDevice && node.op != nullptr && reduces(node.op->family);
    return note(id, needs_room ? operand : 0);
  }

  bool add_launch(NodeId id) {
    const Node& node = body_.nodes[id];
    if (node.op == nullptr) return false;
    const device::CallMemory& memory = calls_.find(node);
    const std::vector<ResultType> results = evaluate_results(graph_, symbols_, node.type);
    std::size_t next = 0;
    bool is_alias = false;
    for (const ResultType& result : results) {
      if (!result.is_tensor) {
        hold(id, kNoStorage);
        continue;
      }
      const std::uint64_t made = next < memory.results.size() ? memory.results[next] : 0;
      ++next;
      is_alias = is_alias || made == 0;
      if (made != 0) make(id, bytes_of(result, is_bounded(id)));
    }
    if (is_alias) share_operand(id);
    if (is_bounded(id) && node.op->writes) add_written_bounds(id);
    const std::uint64_t scratch = is_on_device() ? memory.scratch : host_scratch(node, results);
    return note(id, is_bounded(id) ? bounded_scratch(node, results, scratch) : scratch);
  }

  std::uint64_t bounded_scratch(const Node& node, const std::vector<ResultType>& results,
                                std::uint64_t of_kernel) const {
    constexpr std::uint64_t kKernels = 4, kNumbers = 4 * sizeof(float) + 2 * sizeof(double);
    std::int64_t elements = 0;
    const auto add = [&](const ResultType& type) {
      if (!type.is_tensor || !is_inexact(type.dtype)) return;
      elements += count_elements(type.sizes) * (is_complex(type.dtype) ? 2 : 1);
    };
    std::for_each(results.begin(), results.end(), add);
    for_each_input(*graph_.context, node, [&](NodeId input) {
      for (const ResultType& type : evaluate_results(graph_, symbols_, body_.nodes[input].type)) add(type);
    });
    return kKernels * of_kernel + kNumbers * static_cast<std::uint64_t>(elements);
  }

  // Random numbers are made in several passes over numbers of 64 bits.
  static std::uint64_t draw_scratch(const ResultType& result) {
    constexpr std::uint64_t kNumbers = 7;
    return kNumbers * sizeof(double) * static_cast<std::uint64_t>(count_elements(result.sizes));
  }
  // Operands and results in the type that the CPU computes in.
  std::uint64_t host_scratch(const Node& node, const std::vector<ResultType>& results) const {
    if (node.op->family == OpFamily::kElementwise || node.op->cost == CostClass::kFree) return 0;
    if (node.op->is_random) return draw_scratch(results.front());
    std::uint64_t bytes = 0;
    const auto add = [&](const ResultType& type) {
      if (type.is_tensor)
        bytes += static_cast<std::uint64_t>(count_elements(type.sizes)) *
                 std::max<std::size_t>(info(type.dtype).bytes, sizeof(float));
    };
    std::for_each(results.begin(), results.end(), add);
    // Attention reads its operands tile by tile.
    if (node.op->cost == CostClass::kAttention) return bytes;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      for (const ResultType& type : evaluate_results(graph_, symbols_, body_.nodes[input].type)) add(type);
    });
    return bytes;
  }

  void add_outputs() {
    for (const NodeId id : body_.order) {
      if (body_.nodes[id].kind != NodeKind::kOutput) continue;
      for_each_input(*graph_.context, body_.nodes[id],
                     [&](NodeId input) { need_.outputs += count_bytes(input); });
    }
  }

  // --- storages ---

  static constexpr std::uint32_t kNoStorage = ~0U;

  std::uint64_t block_of(std::uint64_t bytes) const {
    return is_on_device() ? device::pool_block_bytes(bytes) : block_bytes(bytes);
  }
  bool is_bounded(NodeId id) const { return bounded_ != nullptr && bounded_->contains(id); }
  static std::uint64_t bytes_of(const ResultType& type, bool is_bounded) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < type.sizes.size(); ++d) {
      if (type.sizes[d] == 0) return 0;
      last += (type.sizes[d] - 1) * (d < type.strides.size() ? type.strides[d] : 0);
    }
    const std::int64_t elements = type.strides.empty() ? count_elements(type.sizes) : last + 1;
    std::uint64_t width = info(type.dtype).bytes;
    if (is_bounded) width += bytes_of_bounds(type.dtype);
    return static_cast<std::uint64_t>(elements) * width;
  }
  std::uint64_t count_bytes(NodeId id) const {
    std::uint64_t bytes = 0;
    for (const ResultType& type : evaluate_results(graph_, symbols_, body_.nodes[id].type))
      if (type.is_tensor) bytes += bytes_of(type, is_bounded(id));
    return bytes;
  }

  // A bounded op writes memory that was made without bounds, which has them from here on: of all
  // that lies there. An input's stay to the end.
  void add_written_bounds(NodeId id) {
    for (const StorageAccess& access : effects_.accesses_of(id)) {
      if (!access.writes || is_bounded(access.storage) || !has_bounds_.insert(access.storage)) continue;
      std::uint64_t bytes = 0;
      for (const ResultType& type : evaluate_results(graph_, symbols_, body_.nodes[access.storage].type))
        if (type.is_tensor) bytes += bytes_of(type, true) - bytes_of(type, false);
      grow(access.storage, id, bytes);
    }
  }
  void grow(NodeId maker, NodeId writer, std::uint64_t bytes) {
    made_ += bytes;
    bounded_made_ += bytes;
    held_ += bytes;
    blocks_ += block_of(bytes);
    const auto beside = [&](NodeId holder) {
      for (const std::uint32_t storage : held_by_[holder.index()]) {
        if (storage == kNoStorage || storages_[storage].maker != maker) continue;
        storages_[storage].bytes += bytes;
        storages_[storage].block += block_of(bytes);
        return true;
      }
      return false;
    };
    bool is_found = beside(writer);
    for_each_input(*graph_.context, body_.nodes[writer],
                   [&](NodeId input) { is_found = is_found || beside(input); });
  }

  void hold(NodeId id, std::uint32_t storage) { held_by_[id.index()].push_back(storage); }
  void make(NodeId id, std::uint64_t bytes) {
    hold(id, static_cast<std::uint32_t>(storages_.size()));
    storages_.push_back({id, bytes, block_of(bytes), 1});
    made_ += bytes;
    if (is_bounded(id)) bounded_made_ += bytes;
    held_ += bytes;
    blocks_ += storages_.back().block;
  }
  void make_all(NodeId id) {
    for (const ResultType& result : evaluate_results(graph_, symbols_, body_.nodes[id].type))
      if (result.is_tensor) make(id, bytes_of(result, is_bounded(id)));
  }
  void release(std::uint32_t storage) {
    if (storage == kNoStorage || --storages_[storage].users != 0) return;
    held_ -= storages_[storage].bytes;
    blocks_ -= storages_[storage].block;
  }
  void release_copy(NodeId launch) {
    const std::uint64_t copy = std::exchange(copies_[launch.index()], 0);
    if (copy == 0) return;
    held_ -= copy;
    copied_ -= copy;
    blocks_ -= block_of(copy);
  }

  // The value lies in memory of an operand: an element of a tuple in that element's, a view in that
  // of the first operand that it may share memory with. False: it does not.
  bool share_operand(NodeId id) {
    const Node& node = body_.nodes[id];
    if (const auto element = tuple_element(*graph_.context, body_, node)) {
      const Storages of_tuple = held_by_[element->tuple.index()];
      const auto at = static_cast<std::size_t>(element->index);
      if (at < of_tuple.size()) return share(id, of_tuple[at]), true;
    }
    NodeId shown;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      if (!shown && effects_.storage_of(input) == effects_.storage_of(id)) shown = input;
    });
    if (!shown) return false;
    const Storages storages = held_by_[shown.index()];
    for (const std::uint32_t storage : storages) share(id, storage);
    return true;
  }
  void share(NodeId id, std::uint32_t storage) {
    hold(id, storage);
    if (storage != kNoStorage) ++storages_[storage].users;
  }

  bool note(NodeId id, std::uint64_t scratch) {
    if (blocks_ + scratch <= need_.at_peak()) return false;
    need_.values = held_;
    need_.rounding = blocks_ - held_;
    need_.scratch = scratch;
    need_.peak = id;
    return true;
  }

  const Graph& graph_;
  const Body& body_;
  const Symbols& symbols_;
  device::CallMemoryFinder& calls_;
  NeedOf where_;
  const IdSet<NodeId>* bounded_;  // or null
  Effects effects_;
  Steps steps_;
  std::vector<bool> written_;  // by input
  RankNeed need_;
  std::vector<Held> storages_;
  std::vector<Storages> held_by_;       // by node
  std::vector<std::uint64_t> copies_;   // of operands of collectives, by the launch's storage
  std::uint64_t copied_ = 0;            // of them, those that are held
  std::vector<std::uint64_t> certain_;  // held behind each step, but for copies
  std::vector<std::size_t> launched_;   // by a collective's storage: the step, of those of all ranks
  std::vector<Window> windows_;
  IdSet<NodeId> has_bounds_;  // storages that a bounded op has written
  NodeId waited_;             // the storage of the last collective that was waited for
  std::vector<LiveValue> inputs_;
  std::uint64_t held_ = 0, blocks_ = 0, made_ = 0, bounded_made_ = 0, input_blocks_ = 0;
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
  RankNeed need = Walk(graph_, symbols_, calls_, where, bounded).find();
  need.assumed = assumed_;
  return need;
}

}  // namespace epweave::replay
