// PyTorch's min-cut partitioner: the network of its solve_min_cut, by its lists, bans and weights,
// and its activation memory budget: fewer bans for a smaller share, at last those of a knapsack.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <queue>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/done_again.h"
#include "analysis/effects.h"
#include "analysis/recompute_tags.h"
#include "cost/cost.h"
#include "cost/extents.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "ops/random_draws.h"
#include "partition/cut.h"
#include "partition/flow.h"
#include "partition/knapsack.h"

namespace epweave {
namespace {

constexpr std::uint32_t kFar = 1'000'000'000;  // not read by backward at all
constexpr std::uint32_t kLongChain = 100;
constexpr std::int64_t kInfinite = FlowNetwork::kInfinite;

// What may not be computed again, from most to least.
enum class Bans : std::uint8_t {
  kAll,
  kListed,  // whatever it costs backward to have it in memory, and how far apart it is used
  kHeavy,   // only draws, what is compute-intensive, and what is small beside its operands
};

class TorchCut {
 public:
  TorchCut(const Graph& graph, const Joint& joint)
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
        order_(body_.nodes.size()),
        network_(0),
        source_(static_cast<FlowNetwork::Vertex>(2 * body_.nodes.size())),
        sink_(source_ + 1) {
    save_collectives();
    find_writes();
    find_calls_done_once();
    find_distances();
  }

  Cut run(double share) {
    if (share <= 0) return save_least();
    if (share >= 1) return solved(Bans::kAll).cut;
    return choose_within(share);
  }

 private:
  struct Solution {
    Cut cut;
    double size = 0;  // of what is saved, inputs too
    IdSet<NodeId> banned;
  };

  // ------------------------------------------------------------------------- budget

  // With fewer and fewer bans, until what is saved beside the inputs is less than the share of what
  // is saved with all; at last some of what is still banned is not: what a knapsack leaves out.
  Cut choose_within(double share) {
    const double inputs = size_of_inputs(), most = solved(Bans::kAll).size;
    if (most <= inputs) return solved(Bans::kAll).cut;
    for (Bans bans : {Bans::kListed, Bans::kHeavy})
      if ((solved(bans).size - inputs) / (most - inputs) < share) return solved(bans).cut;
    const std::vector<NodeId> items = list_items(solved(Bans::kHeavy).banned);
    if (items.empty()) return solved(Bans::kHeavy).cut;
    std::vector<KnapsackItem> priced;
    for (NodeId id : items)
      priced.push_back({static_cast<double>(size_of(id)) / kUnit / (most - inputs), count_flops(id)});
    const std::vector<std::uint8_t> is_kept = fill_knapsack(priced, share);
    IdSet<NodeId> freed(body_.nodes.size());
    for (std::size_t i = 0; i < items.size(); ++i)
      if (is_kept[i] == 0) freed.insert(items[i]);
    return solve(Bans::kHeavy, &freed).cut;
  }

  const Solution& solved(Bans bans) {
    std::optional<Solution>& found = solutions_[static_cast<std::size_t>(bans)];
    if (!found) found = solve(bans);
    return *found;
  }

  // Nothing is saved but inputs, and what must not run twice.
  Cut save_least() const {
    return make_cut(graph_, joint_, [&](NodeId id) {
      return ValueChoice{.is_recomputed = true,
                         .can_save = can_save(context_, node(id)),
                         .can_recompute = !runs_once_.contains(id)};
    });
  }

  // In PyTorch's unit, and as it adds: bytes of values, whoever shares their storage.
  static constexpr double kUnit = 1e9;
  double size_of_inputs() {
    std::int64_t bytes = 0;
    for (NodeId id : body_.order)
      if (node(id).kind == NodeKind::kPlaceholder && !joint_.backward(id)) bytes += size_of(id);
    return static_cast<double>(bytes) / kUnit;
  }
  double size_of_saved() {
    std::int64_t bytes = 0;
    for (NodeId id : body_.order)
      if (!is_output(id) && network_.is_on_sink_side(out(id)) && !network_.is_on_sink_side(in(id)))
        bytes += size_of(id);
    return static_cast<double>(bytes) / kUnit;
  }

  // What is banned and could run twice, the largest first, but for what shows an input or is to be
  // saved.
  std::vector<NodeId> list_items(const IdSet<NodeId>& banned) {
    std::vector<NodeId> items;
    for (NodeId id : body_.order) {
      if (!banned.contains(id) || !is_call(id) || distance_[id] >= kFar) continue;
      if (runs_once_.contains(id) || must_save_.contains(id)) continue;
      if (!is_tagged_saved(id) && !shows_input(id)) items.push_back(id);
    }
    std::ranges::stable_sort(items, std::greater<>(), [&](NodeId id) { return size_of(id); });
    return items;
  }
  bool shows_input(NodeId id) const {
    for (NodeId shown = id; shown; shown = shown_operand(context_, body_, shown))
      if (node(shown).kind == NodeKind::kPlaceholder) return true;
    return false;
  }

  // By PyTorch's counter, which knows fewer ops; what it does not know is the least there is.
  std::int64_t count_flops(NodeId id) {
    const auto cost = has(id, kCountsFlops) ? flops_.cost_of(id) : std::nullopt;
    return cost ? std::max<std::int64_t>(cost->flops, 1) : 1;
  }

  // ------------------------------------------------------------------------- values

  FlowNetwork::Vertex in(NodeId id) const { return 2 * id.index(); }
  FlowNetwork::Vertex out(NodeId id) const { return 2 * id.index() + 1; }
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool is_output(NodeId id) const { return node(id).kind == NodeKind::kOutput; }
  bool is_call(NodeId id) const { return node(id).kind == NodeKind::kCall; }
  bool has(NodeId id, MemoryTrait trait) { return traits_.has(node(id), trait); }
  bool is_element(NodeId id) const { return has_family(node(id), OpFamily::kElement); }
  bool is_tagged_saved(NodeId id) const {
    return node(id).recompute == tags_.must_save || region_outputs_.contains(id);
  }
  template <class Holds>
  bool holds_with_call(NodeId id, const Holds& holds) const {
    return epweave::holds_with_call(context_, body_, id, holds);
  }
  bool is_tagged(NodeId id) const {
    return holds_with_call(
        id, [&](NodeId at) { return tags_.is_recomputed(node(at)) && !region_outputs_.contains(at); });
  }
  bool must_recompute(NodeId id) const {
    return is_tagged(id) && holds_with_call(id, [&](NodeId at) {
             return !must_save_.contains(at) && !done_once_.contains(at) && !reads_early_.contains(at) &&
                    !has_effect(at) && !binds_symbol(node(at));
           });
  }
  // A symbol has one number: what computes it runs once.
  static bool binds_symbol(const Node& node) {
    return node.extra != nullptr && !node.extra->bindings.empty();
  }
  // An exchange that backward must not do once more (over symmetric memory).
  bool has_effect(NodeId id) const {
    return node(id).op != nullptr && node(id).op->is_effectful && !is_wait(node(id));
  }
  TypeKind kind_of(NodeId id) const { return context_.types[node(id).type].kind; }

  // ------------------------------------------------------------------------- sizes and distances

  std::int64_t bytes_of(TypeId type) {
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
  std::int64_t size_of(NodeId id) {
    std::int64_t& size = sizes_[id];
    if (size < 0) size = bytes_of(node(id).type);
    return size;
  }

  void find_distances() {
    std::uint32_t count = 0;
    for (NodeId id : body_.order)
      if (joint_.forward(id)) order_[id] = count++;
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      if (is_output(*id)) continue;
      if (!joint_.forward(*id)) {
        distance_[*id] = 0;
        continue;
      }
      for (NodeId user : joint_.users[*id]) distance_[*id] = std::min(distance_[*id], distance_[user] + 1);
    }
  }

  // A collective that is not tagged is saved, or what is taken of its tuple.
  void save_collectives() {
    for (NodeId id : body_.order) {
      if (!is_call(id) || !context_.text(node(id).target).starts_with("_c10d_functional.")) continue;
      if (!is_tagged(id)) save_leaves(id);
    }
  }
  void save_leaves(NodeId id) {
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
  void find_writes() {
    const Effects effects(context_, body_);
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
  IdSet<NodeId> find_read_by_name(const Effects& effects) const {
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
  NodeId find_taken(const Effects& effects, NodeId id, NodeId newest,
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
  void find_done_once(const Effects& effects) {
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
  void find_required() {
    const auto is_free = [&](NodeId id) {
      return required_half(context_, node(id)) != RequiredHalf::kForward;
    };
    for (NodeId id : body_.order)
      if (!holds_with_call(id, is_free)) done_once_.insert(id);
  }

  // What backward must not do again, whatever is allowed: it would draw other numbers, write once
  // more, or read something else.
  void find_calls_done_once() {
    for (NodeId id : body_.order) {
      if (!is_call(id)) continue;
      const bool runs_twice = holds_with_call(id, [&](NodeId at) {
        return can_run_twice(context_, node(at)) && !done_once_.contains(at) && !reads_early_.contains(at) &&
               !reads_overwritten_.contains(at);
      });
      if (!runs_twice) runs_once_.insert(id);
    }
  }

  // ------------------------------------------------------------------------- bans

  bool is_fusible(NodeId producer, NodeId user) {
    if (has_family(node(user), OpFamily::kJoin)) return true;
    return has(producer, kIsFusible) && has(user, kIsFusible);
  }

  bool is_materialized_in_backward(NodeId id) {
    if (has(id, kIsTorchView)) return false;
    std::vector<NodeId> values = {id};
    for (std::size_t i = 0; i < values.size(); ++i)
      for (NodeId user : joint_.users[values[i]]) {
        if (!joint_.forward(user) && !is_fusible(values[i], user)) return true;
        if (has(user, kIsTorchView) && std::ranges::find(values, user) == values.end())
          values.push_back(user);
      }
    return false;
  }

  bool is_reduction(NodeId id) {
    std::int64_t taken = 0;
    for (Arg arg : context_.args[node(id).args])
      if (arg.is_node()) taken += size_of(arg.as_node());
    return size_of(id) * 4 < taken;
  }

  bool is_banned_by_rule(NodeId id) {
    if (done_once_.contains(id)) return true;
    if (!is_call(id) || is_element(id)) return false;
    if (is_tagged_saved(id) || must_save_.contains(id)) return true;
    if (reads_overwritten_.contains(id)) return true;
    if (context_.text(node(id).target).starts_with("aten.lift_fresh")) return false;
    if (is_device(id)) return false;
    if (bans_ == Bans::kHeavy) {
      if (runs_once_.contains(id) || has(id, kIsTorchRandom) || has(id, kIsComputeIntensive)) return true;
    } else if (!has(id, kIsRecomputable)) {
      return true;
    }
    if (bans_ == Bans::kAll && is_materialized_in_backward(id)) return true;
    return is_reduction(id);
  }

  bool is_device(NodeId id) const {
    return node(id).type && kind_of(id) == TypeKind::kValue &&
           context_.types[node(id).type].value.is(ArgKind::kDevice);
  }

  void ban(NodeId id) {
    if (is_device(id) || must_recompute(id)) return;
    if (has(id, kIsTorchView) && !done_once_.contains(id)) return;
    if (freed_ != nullptr && freed_->contains(id)) return;
    if (node(id).type && kind_of(id) == TypeKind::kScalar &&
        context_.text(context_.types[node(id).type].py_type) == "SymFloat")
      return;
    banned_.insert(id);
    network_.add_edge(source_, in(id), kInfinite);
  }

  // ------------------------------------------------------------------------- network

  Solution solve(Bans bans, const IdSet<NodeId>* freed = nullptr) {
    bans_ = bans;
    freed_ = freed;
    banned_ = IdSet<NodeId>(body_.nodes.size());
    network_ = FlowNetwork(2 * body_.nodes.size() + 2);
    for (NodeId id : body_.order) add_node(id);
    if (bans == Bans::kAll) {
      ban_uses_far_apart();
      ban_long_chains();
    }
    if (network_.cut(source_, sink_) >= kInfinite) refuse();
    return {.cut = read(), .size = size_of_saved(), .banned = banned_};
  }

  bool is_gradient(NodeId id) const {
    return std::ranges::any_of(joint_.backward_outputs,
                               [&](std::uint32_t position) { return joint_.outputs[position] == id; });
  }

  void add_node(NodeId id) {
    if (is_output(id)) return;
    if (joint_.backward(id)) {
      network_.add_edge(in(id), sink_, kInfinite);
      return;
    }
    if (is_gradient(id)) network_.add_edge(out(id), sink_, kInfinite);
    if (must_recompute(id)) {
      network_.add_edge(in(id), sink_, kInfinite);
      return;
    }
    if (node(id).kind == NodeKind::kPlaceholder) ban(id);
    if (reads_early_.contains(id) || (joint_.forward(id) && is_banned_by_rule(id))) ban(id);
    network_.add_edge(in(id), out(id), weigh(id));
    for (NodeId user : joint_.users[id])
      if (!is_output(user) && !joint_.seed(user)) network_.add_edge(out(id), in(user), kInfinite);
  }

  std::int64_t weigh(NodeId id) {
    if (!node(id).type) return kInfinite;
    switch (kind_of(id)) {
      case TypeKind::kScalar:
        return context_.text(context_.types[node(id).type].py_type) == "SymFloat" ? 4 : 1;
      case TypeKind::kTensor:
        break;
      case TypeKind::kValue:
        if (is_number(context_, node(id))) return 1;
        return is_device(id) ? kInfinite : 0;  // meshes and groups
      case TypeKind::kTuple:
      case TypeKind::kList:
        return kInfinite;
    }
    if (state_.contains(id)) return 0;
    const double factor = std::pow(1.1, std::max(std::min(distance_[id], 100U), 1U));
    const auto weight = static_cast<std::int64_t>(static_cast<double>(size_of(id)) * factor);
    const bool is_materialized =
        node(id).kind == NodeKind::kPlaceholder ||
        !std::ranges::all_of(joint_.users[id], [&](NodeId user) { return is_fusible(id, user); });
    return is_materialized ? weight : 2 * weight;
  }

  using Queue = std::priority_queue<std::pair<std::uint32_t, NodeId>,
                                    std::vector<std::pair<std::uint32_t, NodeId>>, std::greater<>>;

  // The place of the first call behind the users that does not fuse with what it reads.
  std::uint32_t find_first_unfusible(NodeId id, std::uint32_t last) {
    ++stamp_;
    Queue queue;  // places twice: fusible ones odd, so that one that is not comes first
    std::vector<NodeId> users;
    for (NodeId user : joint_.users[id])
      if (joint_.forward(user)) queue.push({2 * order_[user] + 1, user});
    while (!queue.empty()) {
      const auto [place, next] = queue.top();
      queue.pop();
      if (place % 2 == 0) return place / 2;
      if (seen_.at(next) == stamp_) continue;
      seen_.at(next) = stamp_;
      for (NodeId user : joint_.users[next])
        if (joint_.forward(user) && order_[user] <= last)
          queue.push({2 * order_[user] + (is_fusible(next, user) ? 1 : 0), user});
    }
    return last;
  }

  void ban_uses_far_apart() {
    for (NodeId id : body_.order) {
      if (!joint_.forward(id)) continue;
      std::uint32_t last = 0;
      bool is_used = false;
      for (NodeId user : joint_.users[id])
        if (joint_.forward(user)) {
          last = std::max(last, order_[user]);
          is_used = true;
        }
      if (!is_used) continue;
      const std::uint32_t first = find_first_unfusible(id, last);
      for (NodeId user : joint_.users[id])
        if (joint_.forward(user) && order_[user] > first && !banned_.contains(user) && is_fusible(id, user))
          ban(user);
    }
  }

  void ban_long_chains() {
    IdSet<NodeId> visited(body_.nodes.size());
    for (NodeId start : body_.order) {
      if (!joint_.forward(start)) continue;
      Queue queue;
      queue.push({order_[start], start});
      while (!queue.empty()) {
        const NodeId id = queue.top().second;
        queue.pop();
        if (!visited.insert(id)) continue;
        if (order_[id] > order_[start] + kLongChain && queue.empty()) {
          ban(id);
          break;
        }
        for (NodeId user : joint_.users[id])
          if (joint_.forward(user) && !banned_.contains(user) && is_fusible(id, user))
            queue.push({order_[user], user});
      }
    }
  }

  // ------------------------------------------------------------------------- result

  [[noreturn]] void refuse() const {
    for (NodeId id : body_.order)
      if (banned_.contains(id) && !can_save(context_, node(id)) && node(id).kind == NodeKind::kCall)
        throw PassError("partition.cut",
                        "backward needs it; PyTorch's rules allow neither to save nor to compute it again",
                        site_of(graph_, node(id)), "use --policy exact, or tag it MUST_RECOMPUTE");
    throw PassError("partition.cut", "no cut keeps forward and backward apart", {}, "use --policy exact");
  }

  // Groups, which weigh nothing, are looked up again.
  Cut read() const {
    Cut cut = make_cut(graph_, joint_, [&](NodeId id) {
      return ValueChoice{.is_recomputed = network_.is_on_sink_side(in(id)),
                         .can_save = can_save(context_, node(id))};
    });
    for (NodeId id : body_.order)
      if (cut.recomputes(id) && draws_random(context_, node(id))) refuse_random(graph_, id);
    return cut;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const RecomputeTags tags_;
  MemoryTraits traits_;
  Extents extents_;
  CostModel flops_;
  IdSet<NodeId> state_, region_outputs_, must_save_, reads_overwritten_;
  IdSet<NodeId> reads_early_;  // of these, those in front of a write of forward
  // What makes storage that forward writes, what writes it, what uses what forward frees, and what
  // is said to be forward's.
  IdSet<NodeId> done_once_;
  IdSet<NodeId> runs_once_;  // calls, elements of their tuples, and waits
  IdVector<NodeId, std::int64_t> sizes_;
  IdVector<NodeId, std::uint32_t> distance_;          // edges to the nearest user that forward does not need
  IdVector<NodeId, std::uint32_t> order_;             // of what forward needs
  std::array<std::optional<Solution>, 3> solutions_;  // by bans
  Bans bans_ = Bans::kAll;
  const IdSet<NodeId>* freed_ = nullptr;  // banned by the rules, and may be computed again all the same
  IdSet<NodeId> banned_;
  SideTable<NodeId, std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  FlowNetwork network_;
  FlowNetwork::Vertex source_, sink_;
};

}  // namespace

std::vector<Cut> cut_as_torch(const Graph& graph, const Joint& joint, const std::vector<double>& shares) {
  TorchCut torch(graph, joint);
  std::vector<Cut> cuts;
  for (double share : shares) cuts.push_back(torch.run(share));
  return cuts;
}
Cut cut_as_torch(const Graph& graph, const Joint& joint, double share) {
  return TorchCut(graph, joint).run(share);
}

}  // namespace epweave
