// Chunked regions: the nodes that compute one part of one module in one direction, and their token
// exchanges.
//
// A body node carries its region's root module, its part and the direction; our chunker,
// torchtitan's graph chunker and its eager chunker write the same fields (the last leaves the
// direction to "autograd_backward"). Markers are the exchanges that move tokens: all-to-all
// launches of the body with the label dispatch or combine. The exchange of token counts has no such
// label and is no marker.
//
//   root          direction  parts  exchanges
//   layers.1.moe  forward    2      4          dispatch and combine of each part
//   layers.1.moe  backward   2      4
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct EpPart {
  std::int32_t part = 0;          // chunk_id
  std::vector<NodeId> nodes;      // the body, in execution order
  std::vector<NodeId> exchanges;  // its markers
};

struct EpRegion {
  StringId root;
  bool backward = false;
  std::vector<EpPart> parts;  // by number

  std::size_t count_exchanges() const;
};

struct EpRegions {
  std::vector<EpRegion> regions;  // by the place of their first node
  std::vector<NodeId> malformed;  // body nodes without a region or part
};

// All regions of the step.
EpRegions find_ep_regions(const Graph& graph);

// The same for a walk that serves other analyses, too: add each node that executes, in order.
class EpRegionFinder {
 public:
  explicit EpRegionFinder(const Graph& graph);
  void add(NodeId id, const Node& node);
  EpRegions take();

 private:
  EpRegion& find(StringId root, bool backward);

  static constexpr std::uint32_t kNone = ~0U;
  const Graph& graph_;
  const StringId body_role_;
  EpRegions found_;
  SideTable<StringId, std::uint32_t> forward_{kNone}, backward_{kNone};  // places among the regions by root
};

// Whether a body's node is one of its markers.
bool is_token_exchange(const Graph& graph, const Node& node);
// Whether a label says what an all-to-all carries: tokens, or their counts. A wait's label is as
// good where a scheduler has moved it there.
bool is_labelled_exchange(const Node& node);

// Whether the node's region is a backward one: what its chunk fields say, else its own direction.
bool is_in_backward_region(const Node& node);

}  // namespace epweave
