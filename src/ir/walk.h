// Walks over nodes of a body, in execution order or another.
//
//   for (const auto [id, node] : walk(body)) ...              those that execute
//   for (const auto [id, node] : walk(body, part.nodes)) ...  these
//   for (const auto [id, node] : walk(context, body)) ...     by a loop that reads their arguments, too
//   for (const auto [id, node] : walk(context, body, part.nodes)) ...
//   for (const auto [id, node] : walk_back(context, body)) ...    the last one first
//   for (const auto [id, node] : walk_records(body, moved)) ...   that reads their provenance, too
//   for (const auto [id, node] : walk_extras(context, body)) ...  that reads arguments and Node::extra
//   for (const auto [id, node] : walk_all(context, body)) ...     that reads all of these
//
// The rows of a large body are not in the processor's cache, and an order jumps between rows that
// were there at first and rows that passes added. A walk asks for the rows that are next, so that
// they have come by the time they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/prefetch.h"
#include "ir/graph.h"

namespace epweave {

class Walk {
 public:
  struct Step {
    NodeId id;
    const Node& node;
  };

  class Iterator {
   public:
    Iterator(const Walk& walk, std::size_t place) : walk_(&walk), place_(place) {}
    Step operator*() const {
      walk_->read_ahead(place_);
      const NodeId id = walk_->id_at(place_);
      return {id, walk_->nodes_[id]};
    }
    Iterator& operator++() { return ++place_, *this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.place_ == b.place_; }

   private:
    const Walk* walk_;
    std::size_t place_;
  };

  // What a node's row leads to and the loop reads, too.
  struct Leads {
    const ArgPool* arguments = nullptr;
    bool records = false;
    bool extras = false;
  };
  enum class Direction : std::uint8_t { kForward, kBackward };

  Walk(const Body& body, std::span<const NodeId> ids, Leads leads, Direction direction = Direction::kForward)
      : nodes_(body.nodes),
        first_(direction == Direction::kForward || ids.empty() ? ids.data() : &ids.back()),
        step_(direction == Direction::kForward ? 1 : -1),
        size_(ids.size()),
        asked_(size_ > kCached ? size_ - kRowsAhead : 0),
        leads_(leads) {}

  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }

 private:
  // In steps, of which the shortest loops take 10 ns and memory up to 300. Where a row leads is
  // known when it has come.
  static constexpr std::size_t kRowsAhead = 48, kLeadsAhead = 24;
  // So many rows are in the cache since the last walk: asking for them would only take time.
  static constexpr std::size_t kCached = 8192;

  NodeId id_at(std::size_t place) const { return first_[static_cast<std::ptrdiff_t>(place) * step_]; }
  [[gnu::always_inline]] void read_ahead(std::size_t place) const {
    if (place >= asked_) return;
    prefetch(&nodes_[id_at(place + kRowsAhead)]);
    const Node& node = nodes_[id_at(place + kLeadsAhead)];
    if (leads_.arguments != nullptr) prefetch((*leads_.arguments)[node.args].data());
    if (leads_.extras) prefetch(node.extra);
    if (!leads_.records) return;
    const ProvenanceList& records = node.provenance;
    if (records.empty()) return;
    prefetch(&records.front());
    prefetch(&records.back());
  }

  const PagedTable<NodeId, Node>& nodes_;
  const NodeId* first_;
  std::ptrdiff_t step_;  // to the next
  std::size_t size_;
  std::size_t asked_;  // at the first so many places, rows ahead are asked for
  Leads leads_;
};

inline Walk walk(const Body& body, std::span<const NodeId> ids) {
  return {body, ids, {}};
}
inline Walk walk(const Body& body) {
  return walk(body, body.order);
}
inline Walk walk(const Context& context, const Body& body, std::span<const NodeId> ids) {
  return {body, ids, {.arguments = &context.args}};
}
inline Walk walk(const Context& context, const Body& body) {
  return walk(context, body, body.order);
}
inline Walk walk_back(const Context& context, const Body& body) {
  return {body, body.order, {.arguments = &context.args}, Walk::Direction::kBackward};
}

inline Walk walk_extras(const Context& context, const Body& body) {
  return {body, body.order, {.arguments = &context.args, .extras = true}};
}

inline Walk walk_all(const Context& context, const Body& body) {
  return {body, body.order, {.arguments = &context.args, .records = true, .extras = true}};
}

inline Walk walk_records(const Body& body, std::span<const NodeId> ids) {
  return {body, ids, {.records = true}};
}

}  // namespace epweave
