// Random calls on grids of tokens f32[u0, 3, w] or f32[3, u0, w], before their rows are merged.
#pragma once

#include "testing/attention_calls.h"
#include "testing/dice.h"
#include "testing/step_builder.h"

namespace epweave {

class GridCalls {
 public:
  GridCalls(StepBuilder& build, Dice& dice, TokenLayout layout)
      : build_(build), dice_(dice), layout_(layout) {}

  NodeId merged(NodeId grid);    // [3 * u0, w]
  NodeId unmerged(NodeId rows);  // the grid of rows
  // A few calls; of the same shape as `grid`.
  NodeId grow(NodeId grid, std::size_t count);
  NodeId partial(NodeId grid);  // a sum over all tokens: [w]

 private:
  NodeId step(NodeId grid);
  std::int64_t plain_dim() const { return layout_ == TokenLayout::kBatch ? 1 : 0; }
  std::int64_t width(NodeId grid) const { return build_.number(grid, 2).value(); }
  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg number(std::int64_t n) const { return build_.arg(n); }
  Arg list(const std::vector<std::int64_t>& items) const;
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }

  StepBuilder& build_;
  Dice& dice_;
  TokenLayout layout_;
};

}  // namespace epweave
