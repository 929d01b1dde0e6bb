// What in-place writes do to values that have parts: joins, and contiguous copies of slices, are
// storage of their own, and show what was written before they were made only.
//
//   time 1: %x_0, %x_1    2: %x = cat([%x_0, %x_1])    3: add_(%x, 1)     %x_0 and %x_1 are not fresh: refused
//   time 1: %x_0, %x_1    2: %x = cat([%x_0, %x_1])    3: add_(%x_0, 1)   %x is not fresh: joined again
//
// A time counts the nodes written so far; 0 is before all of them.
#pragma once

#include <cstddef>

#include "analysis/effects.h"
#include "base/few_table.h"
#include "ir/graph.h"
#include "placement/placement.h"

namespace epweave {

class PartedStorage {
 public:
  PartedStorage(const Graph& graph, const Placements& placements)
      : graph_(graph), placements_(placements), effects_(*placements.effects) {}

  // That the node `id` was written at that time, whole or in parts. Throws PassError where what it
  // writes is a copy of what the user's graph writes.
  void write_whole(NodeId id, std::size_t time);
  void write_parts(NodeId id, std::size_t time);

  // When the storage of a value was written last.
  std::size_t last_write(NodeId id) const;
  bool reads_written(NodeId id) const;

  // Throws PassError where the whole of a value in parts was written since they were made.
  void require_fresh_parts(NodeId id, std::size_t made, NodeId user) const;
  // Whether the whole of a value shows what was written to its parts since it was made. Throws
  // PassError where it can not, and would not if it were made anew.
  bool is_fresh_whole(NodeId id, std::size_t made, NodeId user) const;

 private:
  struct Write {
    std::size_t time = 0;
    NodeId writer, value;
  };
  using LastWrites = FewTable<NodeId, Write>;  // by storage

  static Write last(const LastWrites& writes, NodeId storage);
  bool is_copied_by_join(NodeId id) const;
  [[noreturn]] void fail_stale(NodeId id, const Write& write, NodeId user) const;

  const Graph& graph_;
  const Placements& placements_;
  const Effects& effects_;
  LastWrites whole_, parts_;  // to wholes and to parts
};

}  // namespace epweave
