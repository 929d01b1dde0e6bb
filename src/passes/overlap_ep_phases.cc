#include "passes/overlap_ep_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/collectives.h"
#include "ir/op.h"

namespace epweave {

namespace {

constexpr std::uint32_t kNone = ~0U;

// A node by a small number within its region. Body nodes come first, in execution order, so that comparing
// their numbers compares their places; nodes that no region owns but that lie between body nodes follow.
using Local = std::uint32_t;

bool is_communication(const Graph& graph, const Node& node) {
  if (node.op != nullptr) return is_launch(node) || is_wait(node);
  return graph.text(node.target).starts_with("_c10d_functional.");
}

}  // namespace

// Dependences within one region, by data and by effects, also through nodes that no region owns (slices and
// rejoins, bucketing). A value of another region is simply there.
class RegionGraph {
 public:
  RegionGraph(PhasePlanner& planner, const EpRegion& region) : planner_(planner), region_(region) {
    for (const EpPart& part : region.parts) nodes_.insert(nodes_.end(), part.nodes.begin(), part.nodes.end());
    std::sort(nodes_.begin(), nodes_.end(), [&](NodeId a, NodeId b) { return position(a) < position(b); });
    body_size_ = static_cast<Local>(nodes_.size());
    for (Local i = 0; i < body_size_; ++i) planner_.local_[nodes_[i]] = i;
    for (Local i = 0; i < nodes_.size(); ++i) add_dependences(i);  // finds nodes in between, which queue up
    invert();
  }
  ~RegionGraph() {
    for (NodeId id : nodes_) planner_.local_[id] = PhasePlanner::kNone;
  }
  RegionGraph(const RegionGraph&) = delete;
  RegionGraph& operator=(const RegionGraph&) = delete;

  Local body_size() const { return body_size_; }
  Local size() const { return static_cast<Local>(nodes_.size()); }
  bool is_body(Local i) const { return i < body_size_; }
  NodeId node(Local i) const { return nodes_[i]; }
  Local local(NodeId body_node) const { return planner_.local_[body_node]; }
  std::span<const Local> before(Local i) const { return slice(before_, before_begin_, i); }
  std::span<const Local> after(Local i) const { return slice(after_, after_begin_, i); }

 private:
  static std::span<const Local> slice(const std::vector<Local>& items,
                                      const std::vector<std::uint32_t>& begins, Local i) {
    return {items.data() + begins[i], begins[i + 1] - begins[i]};
  }

  std::uint32_t position(NodeId id) const { return planner_.positions_[id]; }

  void add_dependences(Local i) {
    const NodeId id = nodes_[i];
    for (NodeId dep : planner_.inputs_[id]) add_dependence(id, dep);
    for (NodeId dep : planner_.effects_[id]) add_dependence(id, dep);
    before_begin_.push_back(static_cast<std::uint32_t>(before_.size()));
  }

  void add_dependence(NodeId id, NodeId dep) {
    const EpRegion* owner = planner_.owner_[dep];
    if (owner != nullptr && owner != &region_) return;
    if (position(dep) < position(nodes_.front())) return;  // before the whole body
    if (position(dep) >= position(id))
      decline(planner_.graph_, id, {"cycle", "S-10", "run `epweave verify` on the input"},
              fmt::format("takes the value of {}, which executes later", name_of(dep)));
    if (planner_.local_[dep] == PhasePlanner::kNone) {
      planner_.local_[dep] = size();
      nodes_.push_back(dep);
    }
    before_.push_back(planner_.local_[dep]);
  }

  std::string_view name_of(NodeId id) const {
    return planner_.graph_.text(planner_.graph_.step().nodes[id].name);
  }

  void invert() {
    after_begin_.assign(nodes_.size() + 1, 0);
    after_.resize(before_.size());
    for (Local dep : before_) ++after_begin_[dep + 1];
    for (std::size_t i = 1; i < after_begin_.size(); ++i) after_begin_[i] += after_begin_[i - 1];
    std::vector<std::uint32_t> next(after_begin_.begin(), after_begin_.end() - 1);
    for (Local i = 0; i < size(); ++i)
      for (Local dep : before(i)) after_[next[dep]++] = i;
  }

  PhasePlanner& planner_;
  const EpRegion& region_;
  Local body_size_ = 0;
  std::vector<NodeId> nodes_;
  std::vector<std::uint32_t> before_begin_{0}, after_begin_;
  std::vector<Local> before_, after_;
};

namespace {

// The closure of exchange k of one part, without the closures of the exchanges before it.
struct Closures {
  std::vector<std::vector<Local>> added;  // by exchange: body nodes in execution order, the launch last
  std::vector<std::uint32_t> first;       // by node: the first exchange that needs it, or kNone
};

class ClosureFinder {
 public:
  ClosureFinder(const Graph& graph, const RegionGraph& region) : graph_(graph), region_(region) {}

  Closures find(const EpPart& part) {
    Closures closures{{}, std::vector<std::uint32_t>(region_.size(), kNone)};
    std::vector<std::uint32_t> exchange_of(region_.size(), kNone);
    for (std::uint32_t k = 0; k < part.exchanges.size(); ++k)
      exchange_of[region_.local(part.exchanges[k])] = k;
    for (std::uint32_t k = 0; k < part.exchanges.size(); ++k) {
      std::vector<Local> added, stack{region_.local(part.exchanges[k])};
      while (!stack.empty()) {
        const Local i = stack.back();
        stack.pop_back();
        if (closures.first[i] != kNone) continue;
        if (exchange_of[i] != kNone && exchange_of[i] > k) decline_order(part, k, exchange_of[i]);
        closures.first[i] = k;
        if (region_.is_body(i)) added.push_back(i);
        for (Local dep : region_.before(i)) stack.push_back(dep);
      }
      std::sort(added.begin(), added.end());
      closures.added.push_back(std::move(added));
    }
    return closures;
  }

 private:
  [[noreturn]] void decline_order(const EpPart& part, std::uint32_t k, std::uint32_t later) const {
    const Node& other = graph_.step().nodes[part.exchanges[later]];
    decline(graph_, part.exchanges[k],
            {"exchange-order", "S-11", "the exchanges of a part must execute in order"},
            fmt::format("exchange {} of part {} needs {}, exchange {} of the same part", k, part.part,
                        graph_.text(other.name), later));
  }

  const Graph& graph_;
  const RegionGraph& region_;
};

// The first closure of a part around the copies that bring its token counts to the host.
struct CopyParts {
  std::vector<Local> before, copies, behind;
  Local launch = kNone;
};

class CopySplitter {
 public:
  CopySplitter(const Graph& graph, const RegionGraph& region) : graph_(graph), region_(region) {}

  // Whether the part has copies in its first closure.
  std::optional<CopyParts> split(const EpPart& part, const Closures& closures) const {
    CopyParts parts;
    for (NodeId id : part.nodes)
      if (is_count_copy(id)) parts.copies.push_back(region_.local(id));
    check(part, closures, parts.copies);
    if (parts.copies.empty()) return std::nullopt;
    const std::vector<std::uint8_t> needed = mark_needed(part, parts.copies);
    parts.launch = region_.local(part.exchanges.front());
    for (Local i : closures.added.front()) {
      const bool is_copy = std::find(parts.copies.begin(), parts.copies.end(), i) != parts.copies.end();
      if (is_copy || i == parts.launch) continue;
      (needed[i] ? parts.before : parts.behind).push_back(i);
    }
    return parts;
  }

 private:
  const Node& node(NodeId id) const { return graph_.step().nodes[id]; }

  bool is_count_copy(NodeId id) const {
    static const OpInfo* const copy = find_op("aten._to_copy.default");
    return node(id).op == copy && node(id).ep.token_count_sync &&
           graph_.text(node(id).ep.token_count_sync) == "dispatch";
  }

  bool goes_to_host(NodeId id) const {
    if (const Arg* device = find_kwarg(*graph_.context, node(id), "device");
        device != nullptr && !device->is_none())
      return device->is(ArgKind::kDevice) && graph_.text(device->as_name()).starts_with("cpu");
    const TensorType* tensor = tensor_of(*graph_.context, node(id).type);
    return tensor != nullptr && graph_.text(tensor->device).starts_with("cpu");
  }

  void check(const EpPart& part, const Closures& closures, const std::vector<Local>& copies) const {
    for (Local i : copies)
      if (closures.first[i] != 0)
        decline(
            graph_, region_.node(i),
            {"count-copy-place", "S-13", "remove its EP_token_count_sync label or make the dispatch need it"},
            fmt::format("a token-count copy that the first exchange of part {} does not need", part.part));
    if (!copies.empty() && copies.size() != 2)
      decline(graph_, region_.node(copies.front()),
              {"count-copies", "S-14",
               "label exactly the two copies of the split sizes with EP_token_count_sync"},
              fmt::format("part {} has {} token-count copies, expected 2", part.part, copies.size()));
    for (Local i : copies)
      if (!goes_to_host(region_.node(i)))
        decline(graph_, region_.node(i), {"count-copy-device", "S-15", "give the copy device=cpu"},
                "a token-count copy whose destination is not known to be the host");
  }

  // What the copies need. A copy that needs the other's result, or another part's copy, cannot be one of a
  // batch.
  std::vector<std::uint8_t> mark_needed(const EpPart& part, const std::vector<Local>& copies) const {
    std::vector<std::uint8_t> needed(region_.size());
    std::vector<Local> stack;
    for (Local i : copies) stack.insert(stack.end(), region_.before(i).begin(), region_.before(i).end());
    while (!stack.empty()) {
      const Local i = stack.back();
      stack.pop_back();
      if (std::exchange(needed[i], std::uint8_t{1}) != 0) continue;
      if (region_.is_body(i) && is_count_copy(region_.node(i)))
        decline(graph_, region_.node(i), {"count-copies", "S-14", "make the token-count copies independent"},
                fmt::format("the token-count copies of part {} need the result of this one", part.part));
      stack.insert(stack.end(), region_.before(i).begin(), region_.before(i).end());
    }
    return needed;
  }

  const Graph& graph_;
  const RegionGraph& region_;
};

// Emits body nodes in phases and knows which nodes are ready: everything they depend on was emitted.
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

// One region, from closures to phases. Index 0 of its arrays is the part that goes first.
class RegionScheduler {
 public:
  RegionScheduler(const Graph& graph, const RegionGraph& graph_of_region, const EpRegion& region)
      : graph_(graph), region_(graph_of_region), emitter_(graph_of_region) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      parts_[turn] = &region.parts[region.backward ? 1 - turn : turn];
      closures_[turn] = ClosureFinder(graph_, region_).find(*parts_[turn]);
    }
    for (std::size_t turn = 0; turn < 2; ++turn)
      copies_[turn] = CopySplitter(graph_, region_).split(*parts_[turn], closures_[turn]);
    if (copies_[0].has_value() != copies_[1].has_value()) {
      const std::size_t without = copies_[0] ? 1 : 0;
      decline(graph_, parts_[without]->exchanges.front(),
              {"count-copies-differ", "S-16", "label the token-count copies of both parts alike"},
              fmt::format("part {} has no token-count copies, the other part has", parts_[without]->part));
    }
    rank_nodes();
  }

  RegionSchedule run(FirstExchange first) {
    const auto exchanges = static_cast<std::uint32_t>(parts_[0]->exchanges.size());
    for (std::uint32_t k = 0; k < exchanges; ++k) {
      if (k > 0) {
        emit_closures(k);
      } else if (first == FirstExchange::kPaired) {
        copies_[0] ? emit_copies_paired() : emit_first_paired();
      } else {
        copies_[0] ? emit_copies_in_turn() : emit_closures(0);
      }
      emit_filler(k);
    }
    emit_tail(exchanges - 1);
    for (Local i = 0; i < region_.body_size(); ++i)
      if (!emitter_.is_emitted(i))
        decline(graph_, region_.node(i), {"left-over", "S-17", "run `epweave verify` on the input"},
                "can never be scheduled: what it depends on never executes");
    schedule_.phases = emitter_.take_phases();
    return std::move(schedule_);
  }

 private:
  // In a wave, nodes of the part that goes first come first; so do nodes that its exchanges need.
  void rank_nodes() {
    rank_.assign(region_.body_size(), 1);
    part_turn_.assign(region_.body_size(), 1);
    for (NodeId id : parts_[0]->nodes) rank_[region_.local(id)] = part_turn_[region_.local(id)] = 0;
    for (Local i = 0; i < region_.body_size(); ++i)
      if (closures_[0].first[i] != kNone) rank_[i] = 0;
  }

  void emit_closures(std::uint32_t k) {
    for (const Closures& c : closures_) emitter_.emit(PhaseKind::kNeeded, k, c.added[k]);
  }

  void emit_first_paired() {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      std::vector<Local> needed = closures_[turn].added[0];
      std::erase(needed, region_.local(parts_[turn]->exchanges[0]));
      emitter_.emit(PhaseKind::kNeeded, 0, needed);
    }
    for (const EpPart* part : parts_)
      emitter_.emit(PhaseKind::kLaunch, 0, {region_.local(part->exchanges[0])});
  }

  void emit_copies_paired() {
    for (const auto& c : copies_) emitter_.emit(PhaseKind::kBeforeCopy, 0, c->before);
    std::vector<Local> copies = copies_[0]->copies;
    copies.insert(copies.end(), copies_[1]->copies.begin(), copies_[1]->copies.end());
    emit_copies(copies);
    for (const auto& c : copies_) emitter_.emit(PhaseKind::kAfterCopy, 0, c->behind);
    for (const auto& c : copies_) emitter_.emit(PhaseKind::kLaunch, 0, {c->launch});
  }

  void emit_copies_in_turn() {
    for (const auto& c : copies_) {
      emitter_.emit(PhaseKind::kBeforeCopy, 0, c->before);
      emit_copies(c->copies);
      emitter_.emit(PhaseKind::kAfterCopy, 0, c->behind);
      emitter_.emit(PhaseKind::kLaunch, 0, {c->launch});
    }
  }

  // Only the last copy makes the host wait, for all of them.
  void emit_copies(const std::vector<Local>& copies) {
    for (Local i : copies) {
      if (emitter_.is_emitted(i))
        decline(graph_, region_.node(i),
                {"count-copies", "S-14", "make the parts' token-count copies independent"},
                "a token-count copy that the other part's first exchange needs");
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

  // What is ready and needs no communication. Communication that is ready waits for its closure or the tail.
  std::vector<Local> take_filler() {
    std::vector<Local> ready = emitter_.take_ready();
    std::erase_if(ready,
                  [&](Local i) { return is_communication(graph_, graph_.step().nodes[region_.node(i)]); });
    return ready;
  }

  // Part by part as far as each gets, until neither gets any further.
  void emit_tail(std::uint32_t k) {
    std::array<std::vector<Local>, 2> ready;
    for (Local i = 0; i < region_.body_size(); ++i)
      if (emitter_.is_ready(i)) ready[part_turn_[i]].push_back(i);
    emitter_.take_ready();
    while (!ready[0].empty() || !ready[1].empty()) {
      for (std::size_t turn = 0; turn < 2; ++turn)
        while (!ready[turn].empty()) {
          std::vector<Local> wave = std::exchange(ready[turn], {});
          std::sort(wave.begin(), wave.end());
          emitter_.emit(PhaseKind::kTail, k, wave);
          for (Local i : emitter_.take_ready()) ready[part_turn_[i]].push_back(i);
        }
    }
  }

  const Graph& graph_;
  const RegionGraph& region_;
  PhaseEmitter emitter_;
  std::array<const EpPart*, 2> parts_{};
  std::array<Closures, 2> closures_;
  std::array<std::optional<CopyParts>, 2> copies_;
  std::vector<std::uint8_t> rank_, part_turn_;
  RegionSchedule schedule_;
};

}  // namespace

PhasePlanner::PhasePlanner(const Graph& graph, const std::vector<EpRegion>& regions, const NodeLists& inputs,
                           std::span<const OrderEdge> edges)
    : graph_(graph),
      inputs_(inputs),
      positions_(find_positions(graph.step(), graph.step().order)),
      owner_(graph.step().nodes.size(), nullptr),
      local_(graph.step().nodes.size(), kNone) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  pairs.reserve(edges.size());
  for (const OrderEdge& edge : edges) pairs.emplace_back(edge.after, edge.before);
  effects_ = list_pairs(graph.step().nodes.size(), pairs);
  for (const EpRegion& region : regions)
    for (const EpPart& part : region.parts)
      for (NodeId id : part.nodes) owner_[id] = &region;
}

RegionSchedule PhasePlanner::plan(const EpRegion& region, FirstExchange first) {
  const RegionGraph region_graph(*this, region);
  return RegionScheduler(graph_, region_graph, region).run(first);
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

void decline(const Graph& graph, NodeId node, const Refusal& refusal, const std::string& problem) {
  const Node* const at = node ? &graph.step().nodes[node] : nullptr;
  const std::string subject = at != nullptr ? fmt::format("{}: ", graph.text(at->name)) : std::string();
  const std::string spec = *refusal.spec != '\0' ? fmt::format(" ({})", refusal.spec) : std::string();
  throw PassError(fmt::format("overlap-ep.{}", refusal.name), subject + problem + spec,
                  at != nullptr ? site_of(graph, *at) : Site(), refusal.remedy);
}

}  // namespace epweave
