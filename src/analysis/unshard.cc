#include "analysis/unshard.h"

#include <set>

#include "analysis/collectives.h"
#include "ops/op.h"

namespace epweave {
namespace {

class ChainWalker {
 public:
  ChainWalker(const Body& body, const NodeLists& inputs, const NodeLists& users)
      : body_(body), inputs_(inputs), users_(users) {}

  void find(NodeId input, std::vector<UnshardChain>& chains) const {
    if (const NodeId gather = find_last_gather(input)) return add(input, gather, chains);
    for (NodeId user : users_[input]) {
      if (!reads_one_value(user) || has_family(user, OpFamily::kMesh)) continue;
      if (const NodeId gather = find_last_gather(user)) add(input, gather, chains);
    }
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool has_family(NodeId id, OpFamily family) const {
    return node(id).op != nullptr && node(id).op->family == family;
  }

  bool reads_one_value(NodeId id) const {
    bool has_one = false;
    for (NodeId input : inputs_[id]) {
      if (has_family(input, OpFamily::kMesh)) continue;
      if (has_one) return false;  // at the second of however many
      has_one = true;
    }
    return true;
  }

  // The only user, where that reads nothing else. What is looked up in a mesh is no parameter.
  NodeId next(NodeId id) const {
    const auto users = users_[id];
    const bool goes_on = users.size() == 1 && reads_one_value(users.front());
    return goes_on && !has_family(users.front(), OpFamily::kMesh) ? users.front() : NodeId();
  }

  NodeId find_last_gather(NodeId start) const {
    NodeId last;
    for (NodeId id = start; id; id = next(id))
      if (has_family(id, OpFamily::kAllGather)) last = id;
    return last;
  }

  void add(NodeId input, NodeId gather, std::vector<UnshardChain>& chains) const {
    const auto users = users_[gather];
    if (users.size() != 1 || !is_wait(node(users.front()))) return;
    NodeId end = find_last(users.front());
    while (is_view(end)) end = inputs_[end].front();
    chains.push_back({input, gather, end});
  }

  bool is_view(NodeId id) const {
    return node(id).op != nullptr && node(id).op->is_view && !is_wait(node(id)) && !inputs_[id].empty() &&
           !has_family(id, OpFamily::kElement);
  }

  NodeId find_last(NodeId wait) const {
    NodeId last = wait;
    for (;;) {
      NodeId user = next(last);
      if (!user) user = find_rejoin(last);
      if (!user || node(user).kind != NodeKind::kCall) return last;
      last = user;
    }
  }

  // The concatenation of all pieces of a split that nothing else reads.
  NodeId find_rejoin(NodeId split) const {
    if (!has_family(split, OpFamily::kSplit) || users_[split].empty()) return {};
    NodeId join;
    for (NodeId piece : users_[split]) {
      if (!has_family(piece, OpFamily::kElement) || users_[piece].size() != 1) return {};
      const NodeId user = users_[piece].front();
      if (!has_family(user, OpFamily::kJoin) || (join && join != user)) return {};
      join = user;
    }
    return join;
  }

  const Body& body_;
  const NodeLists& inputs_;
  const NodeLists& users_;
};

}  // namespace

std::vector<UnshardChain> find_unshard_chains(const Body& body, const NodeLists& inputs,
                                              const NodeLists& users) {
  std::vector<UnshardChain> chains;
  const ChainWalker walker(body, inputs, users);
  for (NodeId id : body.order)
    if (body.nodes[id].kind == NodeKind::kPlaceholder) walker.find(id, chains);
  return chains;
}

std::vector<NodeId> list_chain(const Body& body, const NodeLists& inputs, const UnshardChain& chain) {
  std::vector<NodeId> nodes = {chain.end};
  std::set<NodeId> listed(nodes.begin(), nodes.end());
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (NodeId input : inputs[nodes[i]])
      if (body.nodes[input].kind == NodeKind::kCall && listed.insert(input).second) nodes.push_back(input);
  return nodes;
}

}  // namespace epweave
