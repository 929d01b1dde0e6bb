// What backward may not do once more, or has to, as a graph's tags and the storage that its calls
// read and write say.
#pragma once

#include "analysis/recompute_tags.h"
#include "partition/cut.h"

namespace epweave {

// What the tags of nodes say: of a value, of the call that it is an element of, and of a wait's
// launch.
class SaveMarks {
 public:
  SaveMarks(const Graph& graph, const Joint& joint);

  bool is_saved(NodeId id) const;
  bool is_recomputed(NodeId id) const;
  // A collective that is not tagged, or what is taken of its tuple.
  bool must_save(NodeId id) const { return must_save_.contains(id); }

 private:
  void save_leaves(NodeId id);

  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const RecomputeTags tags_;
  IdSet<NodeId> region_outputs_, must_save_;
};

struct RunOnce {
  // What reads storage that is written behind it.
  IdSet<NodeId> reads_overwritten;
  // In front of a write of forward.
  IdSet<NodeId> reads_early;
  // What makes storage that forward writes, what writes it, what uses what forward frees, and what
  // is said to be forward's.
  IdSet<NodeId> done_once;
  // What backward must not do again, whatever is allowed: it would draw other numbers, write once
  // more, or read something else. Calls, elements of their tuples, and waits.
  IdSet<NodeId> runs_once;
};

RunOnce find_run_once(const Graph& graph, const Joint& joint, const SaveMarks& marks);

}  // namespace epweave
