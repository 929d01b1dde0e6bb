#include "passes/dedup_unshard.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "analysis/effects.h"
#include "analysis/random_draws.h"
#include "analysis/users.h"
#include "analysis/value_numbers.h"
#include "base/word_table.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/record.h"

namespace epweave {
namespace {

// A process group or mesh, looked up by a call or given.
bool is_group(const Context& context, const Node& node) {
  return node.type && context.types[node.type].kind == TypeKind::kValue;
}

struct Chain {
  std::vector<NodeId> nodes;  // in execution order, up to the output
  std::uint32_t key = 0;      // equal keys: the same calls of the same values
  std::uint32_t ready = 0;    // position of the output in the order
  NodeId output() const { return nodes.back(); }
};

class ChainFinder {
 public:
  ChainFinder(const Graph& graph, const NodeLists& users)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        users_(users),
        position_(find_positions(body_, body_.order)) {}

  // The unshard chains that start at the input, where two of them may be equal.
  std::vector<Chain> find(NodeId input) {
    std::vector<Chain> chains;
    for (NodeId user : users_[input])
      if (reads_only(user, input)) {
        Chain chain = follow(user);
        if (cut_after_gather(chain.nodes)) chains.push_back(std::move(chain));
      }
    if (!may_be_equal(chains)) return {};
    if (!values_) {
      effects_.emplace(graph_, body_);
      values_.emplace(graph_, *effects_);
    }
    for (Chain& chain : chains) {
      chain.key = key_of(chain.nodes);
      chain.ready = position_[chain.output()];
    }
    return chains;
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool reads_only(NodeId user, NodeId input) const {
    bool only = true;
    for_each_input(context_, node(user),
                   [&](NodeId id) { only &= id == input || is_group(context_, node(id)); });
    return only && can_merge(user);
  }

  // Calls that give the same value each time: data movement, casts, collectives and their waits.
  bool can_merge(NodeId id) const {
    const OpInfo* op = node(id).op;
    if (!op || op->writes || draws_random(graph_, node(id))) return false;
    if (op->cost == CostClass::kWait) return true;
    return !op->is_effectful && (op->cost == CostClass::kFree || op->cost == CostClass::kMemory ||
                                 op->cost == CostClass::kCollective);
  }

  // Whether two have the same key but for the numbers of values, which cost more to find.
  bool may_be_equal(const std::vector<Chain>& chains) {
    std::set<std::uint32_t> seen;
    return !std::ranges::all_of(chains, [&](const Chain& chain) {
      for (NodeId id : chain.nodes) rebuilt_.push(is_rebuilt(id) ? 1 : 0);
      return seen.insert(rebuilt_.intern().number).second;
    });
  }

  // A value of forward and one of backward stay two, though they are equal.
  std::uint32_t key_of(const std::vector<NodeId>& nodes) {
    for (NodeId id : nodes) keys_.push(std::uint64_t{(*values_)[id].index()} << 1 | (is_rebuilt(id) ? 1 : 0));
    return keys_.intern().number;
  }
  // Recomputed in backward, or a backward computation.
  bool is_rebuilt(NodeId id) const {
    return node(id).is_backward() ||
           context_.text(node(id).name).find("_recomputed") != std::string_view::npos;
  }

  Chain follow(NodeId first) const {
    Chain chain{.nodes = {first}};
    for (;;) {
      const NodeId last = chain.nodes.back();
      const auto users = users_[last];
      if (users.size() == 1 && reads_only(users.front(), last)) {
        chain.nodes.push_back(users.front());
      } else if (const NodeId cat = find_rejoin(last)) {
        chain.nodes.insert(chain.nodes.end(), users.begin(), users.end());
        chain.nodes.push_back(cat);
      } else {
        return chain;
      }
    }
  }

  // The concatenation of all pieces of a split that nothing else reads.
  NodeId find_rejoin(NodeId split) const {
    const auto pieces = users_[split];
    if (!has_family(node(split), OpFamily::kSplit) || pieces.empty()) return {};
    NodeId cat;
    for (NodeId piece : pieces) {
      if (!has_family(node(piece), OpFamily::kElement) || users_[piece].size() != 1) return {};
      const NodeId user = users_[piece].front();
      if (!has_family(node(user), OpFamily::kJoin) || (cat && cat != user)) return {};
      cat = user;
    }
    bool only = true;
    for_each_input(context_, node(cat),
                   [&](NodeId id) { only &= std::find(pieces.begin(), pieces.end(), id) != pieces.end(); });
    return only ? cat : NodeId();
  }

  // Leaves the chain up to what it gathers, without trailing views. False where it gathers nothing.
  bool cut_after_gather(std::vector<NodeId>& nodes) const {
    std::size_t gather = nodes.size();
    while (gather > 0 && !has_family(node(nodes[gather - 1]), OpFamily::kAllGather)) --gather;
    if (gather == 0 || gather == nodes.size() || node(nodes[gather]).op->cost != CostClass::kWait)
      return false;
    while (nodes.size() > gather + 1 && node(nodes.back()).op->is_view) nodes.pop_back();
    return true;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const NodeLists& users_;
  // Made for the first input whose chains may be equal: most steps have none.
  std::optional<Effects> effects_;
  std::optional<ValueNumbers> values_;
  WordTable rebuilt_, keys_;
  IdVector<NodeId, std::uint32_t> position_;
};

// What becomes of values and of their views.
class UseFinder {
 public:
  UseFinder(const Body& body, const NodeLists& users) : body_(body), users_(users) {}

  // Whether an op writes to the value or a view of it, or is unknown and might.
  bool may_be_written(NodeId value) const {
    return any_user(value, [](const Node& user) {
      return user.kind != NodeKind::kOutput && (user.op == nullptr || user.op->writes);
    });
  }
  // Whether the caller gets the value or a view of it.
  bool is_returned(NodeId value) const {
    return any_user(value, [](const Node& user) { return user.kind == NodeKind::kOutput; });
  }

 private:
  template <class Test>
  bool any_user(NodeId value, const Test& test) const {
    IdSet<NodeId> seen;
    std::vector<NodeId> aliases = {value};
    while (!aliases.empty()) {
      const NodeId alias = aliases.back();
      aliases.pop_back();
      for (NodeId user : users_[alias]) {
        const Node& node = body_.nodes[user];
        if (test(node)) return true;
        const bool is_alias =
            node.op != nullptr && (node.op->is_view || has_family(node, OpFamily::kElement));
        if (is_alias && seen.insert(user)) aliases.push_back(user);
      }
    }
    return false;
  }

  const Body& body_;
  const NodeLists& users_;
};

class Deduplicator {
 public:
  explicit Deduplicator(Graph& graph)
      : context_(*graph.context),
        body_(graph.step()),
        users_(list_users(context_, body_)),
        finder_(graph, users_),
        uses_(body_, users_),
        pass_(context_.strings.intern("dedup-unshard")) {}

  void run() {
    for (NodeId id : body_.order)
      if (node(id).kind == NodeKind::kPlaceholder && users_[id].size() > 1) merge_chains_of(id);
    if (!found_) return;
    drop_unused_groups();
    std::erase_if(body_.order, [&](NodeId id) { return gone_.contains(id); });
    for (NodeId id : body_.order) redirect_arguments(id);
  }

 private:
  // To read: asked to be changed, pages of nodes are copied.
  const Node& node(NodeId id) const { return std::as_const(body_.nodes)[id]; }

  void merge_chains_of(NodeId input) {
    std::vector<Chain> chains = finder_.find(input);
    if (chains.size() < 2) return;
    std::stable_sort(chains.begin(), chains.end(),
                     [](const Chain& a, const Chain& b) { return a.ready < b.ready; });
    std::map<std::uint32_t, const Chain*> first_of;
    std::optional<bool> input_may_be_written;
    for (const Chain& chain : chains) {
      const auto [first, is_first] = first_of.emplace(chain.key, &chain);
      if (is_first) continue;
      if (!input_may_be_written) input_may_be_written = uses_.may_be_written(input);
      if (*input_may_be_written) return;
      const Chain& kept = *first->second;
      if (uses_.may_be_written(kept.output()) || uses_.may_be_written(chain.output())) continue;
      if (is_returned(kept) && is_returned(chain)) continue;
      merge(kept, chain);
    }
  }

  bool is_returned(const Chain& chain) const {
    return returned_.contains(chain.output()) || uses_.is_returned(chain.output());
  }

  void merge(const Chain& kept, const Chain& gone) {
    EPWEAVE_CHECK(kept.nodes.size() == gone.nodes.size());
    if (is_returned(gone)) returned_.insert(kept.output());
    for (std::size_t i = 0; i < gone.nodes.size(); ++i) {
      record_merged(context_, body_, pass_, {kept.nodes[i], gone.nodes[i]});
      gone_.insert(gone.nodes[i]);
    }
    same_.at(gone.output()) = kept.output();
    found_ = true;
  }

  // Group lookups that only removed gathers used.
  void drop_unused_groups() {
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      const auto users = users_[*id];
      if (users.empty() || !node(*id).op || !is_group(context_, node(*id))) continue;
      if (std::all_of(users.begin(), users.end(), [&](NodeId user) { return gone_.contains(user); }))
        gone_.insert(*id);
    }
  }

  void redirect_arguments(NodeId id) {
    const auto redirect = [&](Arg arg) {
      return arg.is_node() && same_[arg.as_node()] ? Arg::node(same_[arg.as_node()]) : arg;
    };
    map_arguments(context_, body_, id, redirect);
  }

  Context& context_;
  Body& body_;
  NodeLists users_;
  ChainFinder finder_;
  UseFinder uses_;
  StringId pass_;
  SideTable<NodeId, NodeId> same_;  // what a removed output is
  IdSet<NodeId> gone_;
  IdSet<NodeId> returned_;  // results of chains that stand for one which the step returns
  bool found_ = false;
};

}  // namespace

Graph dedup_unshard(const Graph& graph) {
  Graph result = graph;
  Deduplicator(result).run();
  return result;
}

}  // namespace epweave
