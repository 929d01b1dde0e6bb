// Symbols of A that are numbers in B, as the types of placeholders say: for what differs in nothing
// else.
//
//   A: %x : f32[u0, 3]   %y : f32[2*u0]        B: %x : f32[8, 3]   %y : f32[16]
//   learn(%x's types); same(f32[2*u0], f32[16])
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class Specialization {
 public:
  explicit Specialization(const Graph& after) : context_(*after.context), facts_(after) {}

  bool none() const { return numbers_.size() == 0; }  // no symbol became a number
  void learn(TypeId before, TypeId after);
  // Whether `before` is `after` once symbols are numbers.
  bool same(ExprId before, ExprId after);
  bool same(TypeId before, TypeId after);

 private:
  bool decide_same(ExprId before, ExprId after);

  Context& context_;
  Facts facts_;
  std::unordered_map<std::uint64_t, bool> same_;
  SideTable<StringId, std::optional<std::int64_t>> numbers_;
};

}  // namespace epweave
