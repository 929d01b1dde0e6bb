#include "passes/bucket/node_order.h"

#include <algorithm>

namespace epweave {
namespace {

constexpr std::uint64_t kGap = std::uint64_t{1} << 32;

}  // namespace

NodeOrder::NodeOrder(std::span<const NodeId> order) {
  std::uint32_t size = 0;
  for (NodeId id : order) size = std::max(size, id.index() + 1);
  links_.resize(size);
  NodeId previous;
  for (NodeId id : order) {
    links_[id].previous = previous;
    (previous ? links_[previous].next : first_) = id;
    previous = id;
  }
  number_anew();
}

void NodeOrder::number_anew() {
  std::uint64_t label = 0;
  for (NodeId id = first_; id; id = links_[id].next) links_[id].label = label += kGap;
}

void NodeOrder::insert(NodeId before, NodeId after, std::span<const NodeId> ids) {
  if (ids.empty()) return;
  const auto bounds = [&] {
    const std::uint64_t low = before ? links_[before].label : 0;
    return std::pair(low, after ? links_[after].label : low + kGap * (ids.size() + 1));
  };
  if (const auto [low, high] = bounds(); high - low <= ids.size()) number_anew();
  const auto [low, high] = bounds();
  const std::uint64_t step = (high - low) / (ids.size() + 1);
  std::uint64_t label = low;
  for (NodeId id : ids) {
    if (!links_.contains(id)) links_.resize(id.index() + 1);
    EPWEAVE_DCHECK(!contains(id));
    links_[id] = {before, {}, label += step};
    (before ? links_[before].next : first_) = id;
    before = id;
  }
  links_[before].next = after;
  if (after) links_[after].previous = before;
}

void NodeOrder::remove(NodeId id) {
  const Link link = links_[id];
  (link.previous ? links_[link.previous].next : first_) = link.next;
  if (link.next) links_[link.next].previous = link.previous;
  links_[id] = {};
}

std::vector<NodeId> NodeOrder::list() const {
  std::vector<NodeId> order;
  for (NodeId id = first_; id; id = links_[id].next) order.push_back(id);
  return order;
}

}  // namespace epweave
