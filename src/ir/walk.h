// Walks over the nodes of a body that execute, in execution order.
//
//   for (const auto [id, node] : walk(body)) ...
//   for (const auto [id, node] : walk(context, body)) ...    for those that read the arguments, too
//
// The rows of a large body are not in the processor's cache, and the order jumps between rows that were there
// at first and rows that passes added. A walk asks for the rows that are next, so that they have come by the
// time they are read.
#pragma once

#include <cstddef>

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
    Iterator(const Walk& walk, std::size_t place) : walk_(walk), place_(place) {}
    Step operator*() const {
      walk_.read_ahead(place_);
      const NodeId id = walk_.body_.order[place_];
      return {id, walk_.body_.nodes[id]};
    }
    Iterator& operator++() { return ++place_, *this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.place_ == b.place_; }

   private:
    const Walk& walk_;
    std::size_t place_;
  };

  Walk(const Context* context, const Body& body) : context_(context), body_(body) {}

  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, body_.order.size()}; }

 private:
  // In nodes. An argument is found by its node's row, which must have come before.
  static constexpr std::size_t kRowsAhead = 16, kArgumentsAhead = 8;

  void read_ahead(std::size_t place) const {
    if (place + kRowsAhead >= body_.order.size()) return;
    prefetch(&body_.nodes[body_.order[place + kRowsAhead]]);
    if (context_ == nullptr) return;
    prefetch(context_->args[body_.nodes[body_.order[place + kArgumentsAhead]].args].data());
  }

  const Context* context_;  // null: the arguments are not read
  const Body& body_;
};

inline Walk walk(const Body& body) {
  return {nullptr, body};
}
inline Walk walk(const Context& context, const Body& body) {
  return {&context, body};
}

}  // namespace epweave
