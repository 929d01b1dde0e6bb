#include "compare/rewrite/position_names.h"

#include "compare/rewrite/conditions.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/number_ops.h"
#include "ops/only_index.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "ops/traffic.h"

namespace epweave {

// As many numbers as an uninitialised value has rows, which fill it, name each row once, or A would
// read what nobody wrote.
PositionNames::PositionNames(const RewriteClaims& claims, const Effects& effects, const ValueNumbers& numbers,
                             SortedCounts& counts)
    : claims_(claims),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      effects_(effects),
      numbers_(numbers),
      counts_(counts) {
  for (const auto [id, node] : walk(a_)) {
    if (!has_family(node, OpFamily::kIndexPut) || !node.op->writes) continue;
    const Arg into = arg_of(context_, node, 0);
    const auto [index, dim] = only_index(context_, arg_of(context_, node, 1));
    const NodeId numbered = index.is_node() ? as_made(index.as_node()) : NodeId();
    if (into.is_node() && leaves_unset(a_.nodes[into.as_node()]) && numbered && dim == 0 &&
        numbers_each_row(numbered, into.as_node(), dim))
      permutations_.insert(numbers_[numbered]);
  }
}

// Of values of A that are equal, and whose parts in B are, the first. B can cut one value in two
// ways: then the parts of equal values differ.
NodeId PositionNames::first_equal(NodeId value) {
  if (claims_.parts(value).empty() || holds(Condition::kEqualPartsAreOne, false)) return numbers_[value];
  std::vector<NodeId> equal = {numbers_[value]};
  for (std::uint32_t k = 0; k < claims_.part_count(value); ++k) {
    const NodeId part = claims_.part_of(value, k);
    equal.push_back(part ? counts_.parts().numbers()[part] : NodeId());
  }
  return first_equal_.try_emplace(std::move(equal), value).first->second;
}

std::uint64_t PositionNames::of_value(NodeId value) {
  return FrameTerms::kNodeWord | first_equal(value).index();
}

NodeId PositionNames::as_made(NodeId numbers) const {
  return undivided_numbers(context_, a_, numbers, [&](NodeId value) { return is_written(value); });
}

// The sort whose order a value is.
NodeId PositionNames::sort_of(NodeId order) const {
  const NodeId numbers = order ? as_made(order) : NodeId();
  return numbers ? sort_of_order(context_, a_, numbers) : NodeId();
}

// An order by its sort, else a value.
std::uint64_t PositionNames::of_positions(NodeId positions) {
  const NodeId sort = sort_of(positions);
  return of_value(sort ? sort : positions);
}

// Whether each row of a value is named once along a dimension.
bool PositionNames::is_permutation(NodeId positions, NodeId of, std::size_t dim) const {
  const NodeId numbered = as_made(positions);
  const bool names_each_once = sort_of(positions) || (numbered && permutations_.contains(numbers_[numbered]));
  return names_each_once && numbers_each_row(positions, of, dim);
}

// Whether there are as many numbers as rows.
bool PositionNames::numbers_each_row(NodeId positions, NodeId of, std::size_t dim) const {
  const TensorType *numbers = claims_.tensor_a(positions), *rows = claims_.tensor_a(of);
  return numbers != nullptr && rows != nullptr && numbers->rank() == 1 && dim < rows->rank() &&
         claims_.facts_a().equal(numbers->sizes[0], rows->sizes[dim]);
}

}  // namespace epweave
