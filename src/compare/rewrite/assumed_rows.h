// What the proof of rows takes for granted (verify_frames.h), as it is printed, each once.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame_terms.h"
#include "base/id.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class AssumedRows {
 public:
  // Both must outlive it.
  AssumedRows(const RewriteClaims& claims, const FrameTerms& terms) : claims_(claims), terms_(terms) {}

  // Of a value of A, in an order.
  struct Ordered {
    NodeId value;
    FrameId frame;
  };
  // `at`: the part, of B, that rests on it.
  void same_tokens(const Ordered& x, const Ordered& y, NodeId at);
  // Of rows that went to ranks by their places, a rank has others in parts than of the whole: sums
  // over them are the same only once they are added up over the ranks.
  void all_rows(const Ordered& summed, NodeId at);
  void alike_on_ranks(NodeId value, NodeId at);
  void one_order_on_ranks(const Ordered& reduced, NodeId at);
  void came_back(NodeId at);
  // Of A, whose part regroups so many elements as so many others, by B's sizes.
  void all_elements(NodeId reshape, ExprId before, ExprId after);
  void sizes_count(NodeId exchange);  // of A
  void groups_count();                // of each expert

  const std::vector<std::string>& list() const { return list_; }

 private:
  const RewriteClaims& claims_;
  const FrameTerms& terms_;
  std::vector<std::string> list_;
  std::set<std::pair<FrameId, FrameId>> paired_;
  IdSet<NodeId> alike_;       // of A
  IdSet<FrameId> one_order_;  // on all ranks
  std::set<std::pair<PolyId, PolyId>> elements_;
  bool groups_count_ = false;
};

}  // namespace epweave
