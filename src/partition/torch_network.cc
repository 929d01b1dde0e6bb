#include "partition/torch_network.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "analysis/random_draws.h"
#include "partition/flow.h"

namespace epweave {
namespace {

constexpr std::uint32_t kLongChain = 100;
constexpr std::int64_t kInfinite = FlowNetwork::kInfinite;

// Two vertices for each value: an edge between them that is cut saves it, and what is on the sink's
// side is computed again.
class TorchNetwork {
 public:
  TorchNetwork(TorchFacts& facts, TorchBans bans, const IdSet<NodeId>* freed)
      : facts_(facts),
        graph_(facts.graph()),
        context_(facts.context()),
        body_(facts.body()),
        joint_(facts.joint()),
        bans_(bans),
        freed_(freed),
        banned_(body_.nodes.size()),
        network_(2 * body_.nodes.size() + 2),
        source_(static_cast<FlowNetwork::Vertex>(2 * body_.nodes.size())),
        sink_(source_ + 1) {}

  TorchSolution solve() {
    for (NodeId id : body_.order) add_node(id);
    if (bans_ == TorchBans::kAll) {
      ban_uses_far_apart();
      ban_long_chains();
    }
    if (network_.cut(source_, sink_) >= kInfinite) refuse();
    return {.cut = read(), .size = size_of_saved(), .banned = std::move(banned_)};
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  FlowNetwork::Vertex in(NodeId id) const { return 2 * id.index(); }
  FlowNetwork::Vertex out(NodeId id) const { return 2 * id.index() + 1; }

  // ------------------------------------------------------------------------- bans

  bool is_materialized_in_backward(NodeId id) {
    if (facts_.has(id, kIsTorchView)) return false;
    std::vector<NodeId> values = {id};
    for (std::size_t i = 0; i < values.size(); ++i)
      for (NodeId user : joint_.users[values[i]]) {
        if (!joint_.forward(user) && !facts_.is_fusible(values[i], user)) return true;
        if (facts_.has(user, kIsTorchView) && std::ranges::find(values, user) == values.end())
          values.push_back(user);
      }
    return false;
  }

  bool is_banned_by_rule(NodeId id) {
    if (facts_.is_done_once(id)) return true;
    if (!facts_.is_call(id) || facts_.is_element(id)) return false;
    if (facts_.is_tagged_saved(id) || facts_.must_save(id)) return true;
    if (facts_.reads_overwritten(id)) return true;
    if (context_.text(node(id).target).starts_with("aten.lift_fresh")) return false;
    if (facts_.is_device(id)) return false;
    if (bans_ == TorchBans::kHeavy) {
      if (facts_.runs_once(id) || facts_.has(id, kIsTorchRandom) || facts_.has(id, kIsComputeIntensive))
        return true;
    } else if (!facts_.has(id, kIsRecomputable)) {
      return true;
    }
    if (bans_ == TorchBans::kAll && is_materialized_in_backward(id)) return true;
    return facts_.is_reduction(id);
  }

  void ban(NodeId id) {
    if (facts_.is_device(id) || facts_.must_recompute(id)) return;
    if (facts_.has(id, kIsTorchView) && !facts_.is_done_once(id)) return;
    if (freed_ != nullptr && freed_->contains(id)) return;
    if (facts_.is_real_number(id)) return;
    banned_.insert(id);
    network_.add_edge(source_, in(id), kInfinite);
  }

  // ------------------------------------------------------------------------- network

  bool is_gradient(NodeId id) const {
    return std::ranges::any_of(joint_.backward_outputs,
                               [&](std::uint32_t position) { return joint_.outputs[position] == id; });
  }

  void add_node(NodeId id) {
    if (facts_.is_output(id)) return;
    if (joint_.backward(id)) {
      network_.add_edge(in(id), sink_, kInfinite);
      return;
    }
    if (is_gradient(id)) network_.add_edge(out(id), sink_, kInfinite);
    if (facts_.must_recompute(id)) {
      network_.add_edge(in(id), sink_, kInfinite);
      return;
    }
    if (facts_.is_input(id)) ban(id);
    if (facts_.reads_early(id) || (joint_.forward(id) && is_banned_by_rule(id))) ban(id);
    network_.add_edge(in(id), out(id), weigh(id));
    for (NodeId user : joint_.users[id])
      if (!facts_.is_output(user) && !joint_.seed(user)) network_.add_edge(out(id), in(user), kInfinite);
  }

  std::int64_t weigh(NodeId id) {
    if (!node(id).type) return kInfinite;
    switch (facts_.kind_of(id)) {
      case TypeKind::kScalar:
        return facts_.is_real_number(id) ? 4 : 1;
      case TypeKind::kTensor:
        break;
      case TypeKind::kValue:
        if (is_number(context_, node(id))) return 1;
        return facts_.is_device(id) ? kInfinite : 0;  // meshes and groups
      case TypeKind::kTuple:
      case TypeKind::kList:
        return kInfinite;
    }
    if (facts_.is_state(id)) return 0;
    const double factor = std::pow(1.1, std::max(std::min(facts_.distance_of(id), 100U), 1U));
    const auto weight = static_cast<std::int64_t>(static_cast<double>(facts_.size_of(id)) * factor);
    const bool is_materialized =
        facts_.is_input(id) ||
        !std::ranges::all_of(joint_.users[id], [&](NodeId user) { return facts_.is_fusible(id, user); });
    return is_materialized ? weight : 2 * weight;
  }

  using Queue = std::priority_queue<std::pair<std::uint32_t, NodeId>,
                                    std::vector<std::pair<std::uint32_t, NodeId>>, std::greater<>>;

  // The place of the first call behind the users that does not fuse with what it reads.
  std::uint32_t find_first_unfusible(NodeId id, std::uint32_t last) {
    ++stamp_;
    Queue queue;  // places twice: fusible ones odd, so that one that is not comes first
    for (NodeId user : joint_.users[id])
      if (joint_.forward(user)) queue.push({2 * facts_.place_of(user) + 1, user});
    while (!queue.empty()) {
      const auto [place, next] = queue.top();
      queue.pop();
      if (place % 2 == 0) return place / 2;
      if (seen_.at(next) == stamp_) continue;
      seen_.at(next) = stamp_;
      for (NodeId user : joint_.users[next])
        if (joint_.forward(user) && facts_.place_of(user) <= last)
          queue.push({2 * facts_.place_of(user) + (facts_.is_fusible(next, user) ? 1 : 0), user});
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
          last = std::max(last, facts_.place_of(user));
          is_used = true;
        }
      if (!is_used) continue;
      const std::uint32_t first = find_first_unfusible(id, last);
      for (NodeId user : joint_.users[id])
        if (joint_.forward(user) && facts_.place_of(user) > first && !banned_.contains(user) &&
            facts_.is_fusible(id, user))
          ban(user);
    }
  }

  void ban_long_chains() {
    IdSet<NodeId> visited(body_.nodes.size());
    for (NodeId start : body_.order) {
      if (!joint_.forward(start)) continue;
      Queue queue;
      queue.push({facts_.place_of(start), start});
      while (!queue.empty()) {
        const NodeId id = queue.top().second;
        queue.pop();
        if (!visited.insert(id)) continue;
        if (facts_.place_of(id) > facts_.place_of(start) + kLongChain && queue.empty()) {
          ban(id);
          break;
        }
        for (NodeId user : joint_.users[id])
          if (joint_.forward(user) && !banned_.contains(user) && facts_.is_fusible(id, user))
            queue.push({facts_.place_of(user), user});
      }
    }
  }

  // ------------------------------------------------------------------------- result

  [[noreturn]] void refuse() const {
    for (NodeId id : body_.order)
      if (banned_.contains(id) && !can_save(graph_, node(id)) && facts_.is_call(id))
        throw PassError("partition.cut",
                        "backward needs it; PyTorch's rules allow neither to save nor to compute it again",
                        site_of(graph_, node(id)), "use --policy exact, or tag it MUST_RECOMPUTE");
    throw PassError("partition.cut", "no cut keeps forward and backward apart", {}, "use --policy exact");
  }

  // Groups, which weigh nothing, are looked up again.
  Cut read() const {
    Cut cut = make_cut(graph_, joint_, [&](NodeId id) {
      return ValueChoice{.is_recomputed = network_.is_on_sink_side(in(id)),
                         .can_save = can_save(graph_, node(id))};
    });
    for (NodeId id : body_.order)
      if (cut.recomputes(id) && draws_random(graph_, node(id))) refuse_random(graph_, id);
    return cut;
  }

  double size_of_saved() {
    std::int64_t bytes = 0;
    for (NodeId id : body_.order)
      if (!facts_.is_output(id) && network_.is_on_sink_side(out(id)) && !network_.is_on_sink_side(in(id)))
        bytes += facts_.size_of(id);
    return static_cast<double>(bytes) / kTorchUnit;
  }

  TorchFacts& facts_;
  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const TorchBans bans_;
  const IdSet<NodeId>* freed_;
  IdSet<NodeId> banned_;
  SideTable<NodeId, std::uint32_t> seen_;  // the last search that came by
  std::uint32_t stamp_ = 0;
  FlowNetwork network_;
  FlowNetwork::Vertex source_, sink_;
};

}  // namespace

TorchSolution solve_torch_network(TorchFacts& facts, TorchBans bans, const IdSet<NodeId>* freed) {
  return TorchNetwork(facts, bans, freed).solve();
}

}  // namespace epweave
