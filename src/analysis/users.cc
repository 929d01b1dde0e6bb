#include "analysis/users.h"

#include "ir/walk.h"

namespace epweave {

NodeLists list_inputs(const Context& context, const Body& body) {
  std::vector<std::uint32_t> counts(body.nodes.size() + 1);
  std::vector<NodeId> flat;  // inputs of order[0], of order[1], ...
  IdVector<NodeId, NodeId> last_user(body.nodes.size());
  for (const auto [id, node] : walk(context, body)) {
    const std::size_t begin = flat.size();
    for_each_input(context, node, [&, id = id](NodeId input) {
      if (std::exchange(last_user[input], id) != id) flat.push_back(input);
    });
    counts[id.index()] = static_cast<std::uint32_t>(flat.size() - begin);
  }
  NodeLists lists;
  lists.begins_.resize(body.nodes.size() + 1);
  for (std::size_t i = 0; i < body.nodes.size(); ++i) lists.begins_[i + 1] = lists.begins_[i] + counts[i];
  lists.items_.resize(flat.size());
  std::size_t from = 0;
  for (NodeId id : body.order) {
    const std::size_t count = counts[id.index()];
    for (std::size_t i = 0; i < count; ++i) lists.items_[lists.begins_[id.index()] + i] = flat[from + i];
    from += count;
  }
  return lists;
}

NodeLists invert(const NodeLists& lists, std::span<const NodeId> order) {
  NodeLists inverse;
  inverse.begins_.resize(lists.begins_.size());
  inverse.items_.resize(lists.items_.size());
  if (lists.begins_.empty()) return inverse;
  for (NodeId item : lists.items_) ++inverse.begins_[item.index() + 1];
  for (std::size_t i = 1; i < inverse.begins_.size(); ++i) inverse.begins_[i] += inverse.begins_[i - 1];
  std::vector<std::uint32_t> next(inverse.begins_.begin(), inverse.begins_.end() - 1);
  for (NodeId id : order)
    for (NodeId item : lists[id]) inverse.items_[next[item.index()]++] = id;
  return inverse;
}

NodeLists list_pairs(std::size_t node_count, std::span<const std::pair<NodeId, NodeId>> pairs) {
  NodeLists lists;
  lists.begins_.resize(node_count + 1);
  lists.items_.resize(pairs.size());
  for (const auto& pair : pairs) ++lists.begins_[pair.first.index() + 1];
  for (std::size_t i = 1; i < lists.begins_.size(); ++i) lists.begins_[i] += lists.begins_[i - 1];
  std::vector<std::uint32_t> next(lists.begins_.begin(), lists.begins_.end() - 1);
  for (const auto& [first, second] : pairs) lists.items_[next[first.index()]++] = second;
  return lists;
}

IdVector<NodeId, std::uint32_t> find_positions(const Body& body, std::span<const NodeId> order) {
  IdVector<NodeId, std::uint32_t> positions(body.nodes.size(), kNotExecuted);
  for (std::size_t i = 0; i < order.size(); ++i) positions[order[i]] = static_cast<std::uint32_t>(i);
  return positions;
}

}  // namespace epweave
