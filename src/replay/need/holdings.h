// What a rank holds along a run: the storages that nodes made and whose users are not all done, and
// copies of what collectives were given.
//
//   %a = mm(..)              a storage, held by %a
//   %v = view(%a)            held by %v, too: goes behind the last use of both
//   %l = all_gather(%v)      a copy of its operand, until it is dropped
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/effects.h"
#include "base/id.h"
#include "ir/graph.h"
#include "replay/need/rank_need.h"
#include "replay/need/value_sizes.h"

namespace epweave::replay {

class Holdings {
 public:
  Holdings(const Effects& effects, const ValueSizes& sizes);

  // Memory of its own for a tensor of the node, or for each; a result that is no tensor has none.
  void make(NodeId id, std::uint64_t bytes);
  void make_all(NodeId id);
  void make_none(NodeId id) { hold(id, kNoStorage); }
  // The value lies in memory of an operand: an element of a tuple in that element's, a view in that
  // of the first operand that it may share memory with. False: it does not.
  bool share_operand(NodeId id);
  // More bytes in the storage that `maker` made and `writer` or an operand of it holds.
  void grow(NodeId maker, NodeId writer, std::uint64_t bytes);
  // The node's values are used no more.
  void free(NodeId id);

  // Of the operands of a collective, by the storage of its launch.
  void copy(NodeId launch, std::uint64_t bytes);
  void drop_copy(NodeId launch);

  std::uint64_t bytes() const { return bytes_; }                    // copies included
  std::uint64_t blocks() const { return blocks_; }                  // that these lie in
  std::uint64_t own_bytes() const { return bytes_ - copied_; }      // without copies
  std::uint64_t made() const { return made_; }                      // since the start, but for copies
  std::uint64_t made_with_bounds() const { return bounded_made_; }  // of these, what is followed
  std::vector<LiveValue> list_live() const;

 private:
  static constexpr std::uint32_t kNoStorage = ~0U;
  struct Storage {
    NodeId maker;
    std::uint64_t bytes = 0, block = 0;
    std::uint32_t users = 0;
  };
  using Storages = std::vector<std::uint32_t>;

  void hold(NodeId id, std::uint32_t storage) { held_by_[id.index()].push_back(storage); }
  void share(NodeId id, std::uint32_t storage);
  void release(std::uint32_t storage);

  const Effects& effects_;
  const ValueSizes& sizes_;
  std::vector<Storage> storages_;
  std::vector<Storages> held_by_;      // by node
  std::vector<std::uint64_t> copies_;  // by storage
  std::uint64_t bytes_ = 0, blocks_ = 0, copied_ = 0, made_ = 0, bounded_made_ = 0;
};

}  // namespace epweave::replay
