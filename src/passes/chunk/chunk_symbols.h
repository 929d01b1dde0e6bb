// The data-dependent symbols of a chunked graph.
//
// A symbol that a divided node binds (`u4 = item()`) is bound once per part afterwards, so it gets
// a twin for each part, with what was known about it restated: `u4 + u5 = 3*u0` becomes `u24 + u26
// = 3*(u0//2)`.
#pragma once

#include <vector>

#include "ir/facts.h"
#include "passes/chunk/chunk_plan.h"

namespace epweave {

class PartSymbols {
 public:
  PartSymbols(const Graph& graph, const ChunkPlan& plan);

  // The graph with the twins declared and the plan's assumptions written down.
  Graph declare() const;
  StringId twin(StringId symbol, std::size_t part) const {
    return part < twins_.size() ? twins_[part][symbol] : StringId();
  }
  // The expression with the twins of `part` in it. Token counts in it stay the whole's.
  ExprId with_twins(Facts& facts, ExprId expr, std::size_t part) const;
  // Whether a type mentions a symbol that has twins now.
  bool mentioned(TypeId type) const;
  // Takes the symbols out of the chunked graph, where they are bound nowhere any more.
  void drop_from(Graph& chunked) const;
  // Throws PassError where a type still mentions one.
  void require_unmentioned(const Graph& chunked) const;

 private:
  struct Part {
    const Division& division;
    std::size_t number;
  };
  bool is_divided(StringId symbol) const { return static_cast<bool>(bound_in_[symbol]); }
  PolyId part_poly(ExprPool& pool, PolyId poly, const Part& part) const;
  std::int64_t share_of_hint(Facts& facts, const Division& division, std::size_t part,
                             std::int64_t hint) const;
  Symbol part_symbol(Facts& facts, const Symbol& symbol, std::size_t part) const;
  bool rounds_tokens(Facts& facts, PolyId said) const;

  const Graph& graph_;
  const ChunkPlan& plan_;
  SideTable<StringId, RegionId> bound_in_;            // by a divided node of the region
  std::vector<SideTable<StringId, StringId>> twins_;  // per part
};

}  // namespace epweave
