#include "partition/flow.h"

#include <algorithm>
#include <tuple>

namespace epweave {

FlowNetwork::Edge FlowNetwork::add_edge(Vertex from, Vertex to, std::int64_t capacity) {
  const auto edge = static_cast<Edge>(to_.size());
  for (const auto& [tail, head, room] :
       {std::tuple{from, to, capacity}, std::tuple{to, from, std::int64_t{0}}}) {
    next_.push_back(heads_[tail]);
    heads_[tail] = static_cast<Edge>(to_.size());
    to_.push_back(head);
    capacities_.push_back(room);
  }
  return edge;
}

// Distances to the sink, so that a path goes from the source down.
bool FlowNetwork::find_levels(Vertex source, Vertex sink) {
  constexpr std::uint32_t kFar = ~0U;
  levels_.assign(heads_.size(), kFar);
  levels_[sink] = 0;
  std::vector<Vertex> queue = {sink};
  for (std::size_t i = 0; i < queue.size() && levels_[source] == kFar; ++i)
    for (Edge edge = heads_[queue[i]]; edge != kNone; edge = next_[edge])
      if (left_[edge ^ 1] > 0 && levels_[to_[edge]] == kFar) {
        levels_[to_[edge]] = levels_[queue[i]] + 1;
        queue.push_back(to_[edge]);
      }
  return levels_[source] != kFar;
}

// One shortest path after the other; an edge that led nowhere is not tried again.
std::int64_t FlowNetwork::send(Vertex source, Vertex sink) {
  std::int64_t total = 0;
  std::vector<Edge> path;
  Vertex vertex = source;
  for (;;) {
    if (vertex == sink) {
      std::int64_t room = kInfinite;
      for (Edge edge : path) room = std::min(room, left_[edge]);
      for (Edge edge : path) {
        left_[edge] -= room;
        left_[edge ^ 1] += room;
      }
      total += room;
      if (total >= kInfinite) return total;
      std::size_t keep = 0;
      while (keep < path.size() && left_[path[keep]] > 0) ++keep;
      vertex = to_[path[keep] ^ 1];
      path.resize(keep);
      continue;
    }
    Edge& edge = at_[vertex];
    while (edge != kNone && !(left_[edge] > 0 && levels_[to_[edge]] + 1 == levels_[vertex]))
      edge = next_[edge];
    if (edge != kNone) {
      path.push_back(edge);
      vertex = to_[edge];
      continue;
    }
    if (path.empty()) return total;
    const Edge dead = path.back();
    path.pop_back();
    vertex = to_[dead ^ 1];
    at_[vertex] = next_[dead];
  }
}

std::int64_t FlowNetwork::cut(Vertex source, Vertex sink) {
  left_ = capacities_;
  std::int64_t total = 0;
  while (total < kInfinite && find_levels(source, sink)) {
    at_ = heads_;
    total += send(source, sink);
  }
  find_sink_side(sink);
  return total;
}

void FlowNetwork::find_sink_side(Vertex sink) {
  on_sink_side_.assign(heads_.size(), 0);
  on_sink_side_[sink] = 1;
  std::vector<Vertex> queue = {sink};
  for (std::size_t i = 0; i < queue.size(); ++i)
    for (Edge edge = heads_[queue[i]]; edge != kNone; edge = next_[edge])
      if (left_[edge ^ 1] > 0 && on_sink_side_[to_[edge]] == 0) {
        on_sink_side_[to_[edge]] = 1;
        queue.push_back(to_[edge]);
      }
}

}  // namespace epweave
