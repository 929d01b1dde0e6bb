#include "ops/sliced_run.h"

#include <limits>

#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {

std::optional<SlicedRun> sliced_run(const Graph& graph, const Node& node, Facts& facts) {
  const bool is_slice = has_family(node, OpFamily::kSlice);
  if ((!is_slice && !has_family(node, OpFamily::kUnslice)) || !node.op->find_param("step"))
    return std::nullopt;
  Context& context = *graph.context;
  const Arg operand = arg_of(context, node, 0);
  const TensorType* result = tensor_of(context, node.type);
  const TensorType* given =
      operand.is_node() ? tensor_of(context, graph.step().nodes[operand.as_node()].type) : nullptr;
  if (result == nullptr || given == nullptr || result->rank() != given->rank() || given->rank() == 0)
    return std::nullopt;
  const Arg named = named_arg(context, node, "dim"), start = named_arg(context, node, "start"),
            end = named_arg(context, node, "end"), step = named_arg(context, node, "step");
  const auto dim = find_dimension(named.is_int() ? named.as_int() : 0, given->rank());
  if (!dim || !(step.is(ArgKind::kNone) || step == Arg::integer(1))) return std::nullopt;
  SlicedRun run{.dim = *dim};
  const ExprId all = (is_slice ? given : result)->sizes[run.dim],
               piece = (is_slice ? result : given)->sizes[run.dim];
  // How many runs so many elements are.
  ExprPool& pool = facts.pool();
  const PolyId each = facts.normalize(piece);
  const auto count = [&](ExprId elements) -> std::optional<std::int64_t> {
    if (!elements || pool[each].terms.empty()) return std::nullopt;
    const PolyId many = facts.normalize(elements);
    if (pool[many].terms.empty()) return 0;
    const Rational x = pool[many].terms[0].coefficient, y = pool[each].terms[0].coefficient;
    const Rational runs = x * Rational::of(y.den, y.num);
    return runs.is_integer() && pool.scale(each, runs) == many ? std::optional(runs.num) : std::nullopt;
  };
  const auto of_bound = [&](Arg bound) { return count(number_of(context, graph.step(), bound)); };
  const auto runs = count(all);
  const bool is_open =
      end.is(ArgKind::kNone) || end == Arg::integer(std::numeric_limits<std::int64_t>::max());
  const auto from = start.is(ArgKind::kNone) ? 0 : of_bound(start), to = is_open ? runs : of_bound(end);
  if (!runs || !from || !to || *from < 0 || *to > *runs || *to - *from != 1) return std::nullopt;
  run.index = *from;
  run.count = *runs;
  return run;
}

}  // namespace epweave
