// Maximum flow from a source to a sink, and the minimum cut that lies nearest the sink.
//
// Capacities are whole numbers, so that the cut is exact. Of all minimum cuts the one with the
// fewest nodes on the sink's side is unique: those that still reach the sink when no more flow can
// be sent. PyTorch takes that one.
#pragma once

#include <cstdint>
#include <vector>

namespace epweave {

class FlowNetwork {
 public:
  using Vertex = std::uint32_t;
  using Edge = std::uint32_t;
  static constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

  explicit FlowNetwork(std::size_t vertices) : heads_(vertices, kNone) {}

  Edge add_edge(Vertex from, Vertex to, std::int64_t capacity);
  void set_capacity(Edge edge, std::int64_t capacity) { capacities_[edge] = capacity; }

  // Of a minimum cut; kInfinite or more where every cut is infinite. May be called again with other
  // capacities.
  std::int64_t cut(Vertex source, Vertex sink);
  // Behind `cut`.
  bool is_on_sink_side(Vertex vertex) const { return on_sink_side_[vertex] != 0; }

 private:
  static constexpr Edge kNone = ~Edge{0};

  bool find_levels(Vertex source, Vertex sink);
  std::int64_t send(Vertex source, Vertex sink);
  void find_sink_side(Vertex sink);

  std::vector<Edge> heads_, next_;
  std::vector<Vertex> to_;
  std::vector<std::int64_t> capacities_, left_;  // edges in pairs, one and its reverse
  std::vector<std::uint32_t> levels_;
  std::vector<Edge> at_;
  std::vector<std::uint8_t> on_sink_side_;
};

}  // namespace epweave
