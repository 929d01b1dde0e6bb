// The writes that made the state in which each node sees the storage it accesses.
//
//   add_(buf, x); y = clone(buf)     seen_by(y) = {add_}
//
// What a rewrite moved (verify_movement.h) is a value of its own: it shows no memory that others
// show.
//
// In a rewritten graph, a join is a copy of its parts in the state they have then, and what reads
// the join sees that state, whatever is written to the parts behind it:
//
//   add_(x_0, 1); add_(x_1, 1); x = cat([x_0, x_1]); add_(x_0, 1); y = neg(x)    seen_by(y): both parts of the
//                                                                                first add_, joined
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "analysis/effects.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ir/graph.h"

namespace epweave {

struct SeenWrite {
  // kDirect: to the storage itself. kJoined: `writer` is the last of all parts of a write, each
  // seen in its part. kTorn: so is another part's write, but not every part's.
  enum class How : std::uint8_t { kDirect, kJoined, kTorn };

  NodeId writer;
  How how = How::kDirect;
  NodeId storage;  // whose state it made; of a join, the join
  friend bool operator==(const SeenWrite&, const SeenWrite&) = default;
};

class StorageWriters {
 public:
  // They must outlive it.
  explicit StorageWriters(const Effects& effects);
  // Of the rewritten graph, whose effects are found here.
  explicit StorageWriters(RewriteClaims& claims);

  std::span<const SeenWrite> seen_by(NodeId id) const { return span_of(seen_[id]); }
  // What made the state in which the step leaves the storage of a value.
  std::span<const SeenWrite> left_in(NodeId value) const {
    return span_of(state_[effects_.storage_of(value)]);
  }
  const Effects& effects() const { return effects_; }

 private:
  struct Range {
    std::uint32_t begin = 0, count = 0;
  };
  std::span<const SeenWrite> span_of(Range range) const {
    return {writes_.data() + range.begin, range.count};
  }
  void append(Range range);
  void read(NodeId id);
  bool repeats_wait(NodeId id);
  void read_copies(NodeId id);
  void copy_state(RewriteClaims& claims, NodeId id);

  const Context& context_;
  std::optional<Body> apart_;  // the body, in which what was moved is copied
  const Body& body_;
  std::optional<Effects> own_effects_;
  const Effects& effects_;
  std::vector<SeenWrite> writes_;
  IdVector<NodeId, Range> seen_;
  IdVector<NodeId, Range> state_;     // by storage
  SideTable<NodeId, NodeId> waited_;  // by storage: the last collective that was waited for
  bool has_copies_ = false;           // whether some state is a copy's
};

}  // namespace epweave
