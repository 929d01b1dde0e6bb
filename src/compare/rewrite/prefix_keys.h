// FlexAttention calls whose parts take the keys and values of the parts before theirs, too
// (chunk{attention=prefix}), read as calls that take their own, so that the rest is checked like
// any other call:
//
//   %k = cat([%k_0, %k_1], 2)   flex_attention(%q_1, %k, ..)       read as   flex_attention(%q_1, %k_1, ..)
//   %gk_0 = add(split(%flexb_1[1])[0], %flexb_0[1])                read as   %gk_0 = %flexb_0[1]
//   %gk_1 = clone(split(%flexb_1[1])[1])                           read as   %gk_1 = %flexb_1[1]
//
// Shown before that: keys and values are those of parts 0 to k of one value, in order, each once;
// their number is the length that the call is given; the gradient of part j is the sum of what the
// calls of parts j and behind give for its rows, each once; nothing writes any of these. What the
// call's mask must be then is for AttentionCheck, that its rows are in the order of the tokens for
// RowBlocks.
#pragma once

#include <optional>
#include <vector>

#include "analysis/verify.h"
#include "ir/graph.h"

namespace epweave {

struct PrefixCalls {
  Graph b;                   // nodes have the same ids
  IdSet<NodeId> calls;       // all parts of each
  std::vector<NodeId> sums;  // gradients that were sums
};

// None where no call takes keys of other parts. What does not hold of one that does is a violation
// `rewrite-attention`, and it stays as it is.
std::optional<PrefixCalls> restore_prefix_calls(const Graph& a, const Graph& b,
                                                std::vector<Violation>& violations);

}  // namespace epweave
