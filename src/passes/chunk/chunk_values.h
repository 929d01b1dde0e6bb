// What stands for each value of the input graph in the chunked one, and when it was written.
//
//   %x = ...          whole          set_whole(x, %x)
//   %y = relu(%x)     of a region    parts_of(y) = {%y_chunk0, %y_chunk1}
//                     once joined    set_whole(y, %y_joined)
//
// A time counts the nodes written so far (ChunkWriter::time).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "ir/graph.h"
#include "passes/chunk/chunk_plan.h"

namespace epweave {

class ChunkedValues {
 public:
  // The plan must outlive this.
  explicit ChunkedValues(const ChunkPlan& plan) : plan_(plan) {}

  struct Whole {
    NodeId node;  // none: nothing yet
    std::uint32_t time = 0;
  };
  Whole whole(NodeId id) const { return whole_[id]; }
  void set_whole(NodeId id, NodeId made, std::size_t time) {
    whole_.at(id) = {made, static_cast<std::uint32_t>(time)};
  }

  // The parts of a region's value.
  std::span<Arg> parts_of(NodeId id);
  // When they were written.
  std::size_t parts_time(NodeId id) const { return parts_at_[id].time; }
  void set_parts_time(NodeId id, std::size_t time) {
    parts_at_.at(id).time = static_cast<std::uint32_t>(time);
  }

 private:
  static constexpr std::uint32_t kNoParts = UINT32_MAX;
  struct Parts {
    std::uint32_t begin = kNoParts;  // in parts_
    std::uint32_t time = 0;
  };

  const ChunkPlan& plan_;
  SideTable<NodeId, Whole> whole_;
  SideTable<NodeId, Parts> parts_at_;
  std::vector<Arg> parts_;
};

}  // namespace epweave
