#include "analysis/users.h"

#include <algorithm>

#include "ir/walk.h"

namespace epweave {

InputLister::InputLister(const Context& context, const Body& body)
    : context_(context), body_(body), last_user_(body.nodes.size()) {
  lists_.begins_.resize(body.nodes.size() + 1);
}

void InputLister::add(NodeId id, const Node& node) {
  const std::size_t begin = flat_.size();
  for_each_input(context_, node, [&](NodeId input) {
    if (std::exchange(last_user_[input], id) != id) flat_.push_back(input);
  });
  lists_.begins_[id.index() + 1] = static_cast<std::uint32_t>(flat_.size() - begin);
}

NodeLists InputLister::take() {
  std::vector<std::uint32_t>& begins = lists_.begins_;
  for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  lists_.items_.resize(flat_.size());
  auto from = flat_.begin();
  for (NodeId id : body_.order) {
    const std::uint32_t begin = begins[id.index()], count = begins[id.index() + 1] - begin;
    std::copy_n(from, count, lists_.items_.begin() + begin);
    from += count;
  }
  return std::move(lists_);
}

NodeLists list_inputs(const Context& context, const Body& body) {
  InputLister lister(context, body);
  for (const auto [id, node] : walk(context, body)) lister.add(id, node);
  return lister.take();
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
