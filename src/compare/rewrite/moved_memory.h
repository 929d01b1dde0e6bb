// Memory of a rewrite as far as it is followed: which elements of the first graph's values each
// piece of it holds, and what a view of it shows.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compare/rewrite/movement.h"
#include "ir/graph.h"

namespace epweave {

// What is put into memory.
struct MovedContent {
  Sequence elements;
  std::int64_t packed = 0;  // the most elements that one of them, a reduction, moved at once
  // A buffer for all ranks of which each fills its own part, which begins at this number of
  // elements: `elements` has that part first. None: once the other parts are there, and elsewhere.
  std::optional<ExprId> own_start = std::nullopt;
  NodeId place = {};  // the coordinate that gives it, or none
};

struct MovedStorage {
  MovedContent content;
  DType dtype = DType::kFloat32;
  // Where memory of B has the first of these elements; none: they do not lie there in this order.
  std::optional<std::int64_t> origin;
  NodeId memory;                                    // by its first value
  std::map<std::int64_t, std::int64_t> shown = {};  // ranges that claimed values show, as begin and end
  // The memory that the launch which gives this reads until it is waited for; none: no launch is
  // under way.
  NodeId sent = {};
  NodeId list = {};  // the launch of which this is one of several results, each in memory of its own
};

// Elements of a storage, as a tensor.
struct MovedView {
  std::size_t storage = 0;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  bool is_own = false;  // of the rank's own part: `offset` is from where that begins
};

class MovedMemory {
 public:
  explicit MovedMemory(MovementTerms& terms) : terms_(terms) {}

  std::size_t add(MovedStorage storage);
  const MovedStorage& operator[](std::size_t storage) const { return storages_[storage]; }
  // Those that may be the same memory.
  const std::vector<std::size_t>& in(NodeId memory) { return storages_in_[memory]; }

  // None: they cannot be followed, are not there yet, or lie outside of the storage.
  std::optional<Sequence> elements_of(const MovedView& view) const;
  // In the view's row-major order. False: it shows them in another order than they lie, or outside
  // of the storage; nothing is changed.
  bool put(const MovedView& view, const Sequence& what);
  // The same by a node of the graph: what may be the same memory, and launches under way that read
  // or fill it, are unknown from there on.
  bool write(const MovedView& view, const MovedContent& what, NodeId writer);
  // It is a buffer for all ranks of which nothing is written yet (MovedContent::own_start).
  void begin_own_part(std::size_t storage, ExprId start, NodeId place);
  // What it holds is unknown from here on.
  void forget(std::size_t storage, NodeId writer);
  void forget(const MovedView& view, NodeId writer);

  // A launch that reads memory `sent` fills the storage until it is waited for.
  void begin_launch(std::size_t storage, NodeId sent);
  void end_launch(std::size_t storage);
  // What a launch gives, is unknown if what it reads or writes is written before it is waited for.
  void disturb_launches(NodeId memory, NodeId writer);

  // A claimed value shows this. False: another does, too.
  bool show_apart(const MovedView& view);
  bool is_shown(NodeId memory);

 private:
  bool lies_in(const MovedView& view) const;
  bool may_share(std::size_t storage, std::size_t other) const;

  MovementTerms& terms_;
  std::vector<MovedStorage> storages_;
  std::map<NodeId, std::vector<std::size_t>> storages_in_;  // by the first value of a memory
  std::vector<std::size_t> under_way_;                      // storages that launches write now
};

}  // namespace epweave
