#include "placement/rows/row_numbers.h"

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/indexed_dims.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "ops/traffic.h"

namespace epweave {

// What fills uninitialised rows names each once, or the graph would read what nobody wrote.
RowNumbers::RowNumbers(const Graph& graph, const Effects& effects, const ValueNumbers& numbers, Facts& facts)
    : context_(*graph.context), body_(graph.step()), effects_(effects), numbers_(numbers), facts_(facts) {
  for (const auto [id, node] : walk(body_)) {
    const bool is_written_to = has_family(node, OpFamily::kIndexPut) && node.op->writes;
    const Arg index = is_written_to ? only_positions(context_, node) : Arg::none();
    const Arg into = is_written_to ? arg_of(context_, node, 0) : Arg::none();
    const NodeId numbered = as_made(index);
    if (numbered && into.is_node() && leaves_unset(body_.nodes[into.as_node()]))
      permutations_.insert(numbers_[numbered]);
  }
}

NodeId RowNumbers::as_made(Arg numbers) const {
  if (!numbers.is_node()) return {};
  return undivided_numbers(context_, body_, numbers.as_node(),
                           [&](NodeId value) { return is_written(value); });
}

NodeId RowNumbers::sort_of(Arg order) const {
  const NodeId numbers = as_made(order);
  const NodeId sort = numbers ? sort_of_order(context_, body_, numbers) : NodeId();
  return sort ? numbers_[sort] : NodeId();
}

std::uint64_t RowNumbers::word(const FrameTerms& terms, Arg index) const {
  const NodeId sort = sort_of(index);
  return sort ? FrameTerms::kNodeWord | sort.index() : terms.word(index);
}

bool RowNumbers::counts(NodeId index) const {
  return counts_from_zero(context_, body_.nodes[index]) && !is_written(index);
}

bool RowNumbers::is_permutation(Arg index) const {
  const NodeId numbered = as_made(index);
  return numbered && permutations_.contains(numbers_[numbered]);
}

NodeId RowNumbers::undone_by(NodeId value) const {
  const auto inverse = inverse_order(context_, facts_, body_, value);
  if (!inverse || is_written(inverse->order)) return {};
  return inverse->rows && is_written(inverse->rows) ? NodeId() : inverse->order;
}

}  // namespace epweave
