// Placement of matrix products, norms, reductions and softmax.
#include <fmt/format.h>

#include <algorithm>

#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

[[noreturn]] void refuse_pair(PlacementCall& call, const Placement& a, const Placement& b) {
  call.refuse("chunk.combination",
              fmt::format("its operands are placed {} and {}, for which there is no rule", print_placement(a),
                          print_placement(b)));
}

// A product that sums over the rows of both: part k's rows must be the same ones.
Placement sum_over_rows(PlacementCall& call, const Placement& a, const Placement& b) {
  if (!a.is_local() && !b.is_local()) require_same_order(call, a, b);
  return Placement::partial();
}

// A product that sums over the rows of one, which all parts share, and of another in parts: a
// gradient beside an activation that was gathered from other ranks. Each part takes the rows that
// pair with its own.
bool take_shared_rows(PlacementCall& call, const RowsOfValue& shared, const Placement& rows) {
  const TensorType* type = call.tensor(shared.value);
  if (type == nullptr || !rows.is(PlacementKind::kSplit)) return false;
  if (!call.tokens().scales(type->sizes[static_cast<std::size_t>(shared.dim)])) return false;
  call.take_slice_like(shared.value, shared.dim, rows);
  return true;
}

Placement product(PlacementCall& call, Operand left, Operand right) {
  const Placement a = call.of(left), b = call.of(right);
  if (a.is_whole() && b.is_whole()) return a;
  if (a.is_rows() && a.dim == 0 && b.is_whole()) return a;
  if (a.is_whole() && b.is_rows() && b.dim == 1) return b;
  if (a.is_rows() && a.dim == 1 && b.is_rows() && b.dim == 0) return sum_over_rows(call, a, b);
  if ((a.is_partial() && b.is_whole()) || (a.is_whole() && b.is_partial())) return Placement::partial();
  if (a.is_whole() && b.is_rows() && b.dim == 0 && take_shared_rows(call, {left, 1}, b))
    return Placement::partial();
  if (a.is_rows() && a.dim == 1 && b.is_whole() && take_shared_rows(call, {right, 0}, a))
    return Placement::partial();
  refuse_pair(call, a, b);
}

Placement batched_product(PlacementCall& call, Operand left, Operand right) {
  const Placement a = call.of(left), b = call.of(right);
  if (a.is_whole() && b.is_whole()) return a;
  if (a.is_rows() && a.dim == 0 && b.is_rows() && b.dim == 0) return common_rows(call, std::vector{a, b});
  if (a.is_rows() && a.dim == 1 && b.is_whole()) return a;
  if (a.is_whole() && b.is_rows() && b.dim == 2) return b;
  if (a.is_rows() && a.dim == 2 && b.is_rows() && b.dim == 1) return sum_over_rows(call, a, b);
  refuse_pair(call, a, b);
}

Placement matrix_product(PlacementCall& call, Operand left, Operand right) {
  return call.rank(left) == 3 ? batched_product(call, left, right) : product(call, left, right);
}

Placement matmul(PlacementCall& call) {
  return matrix_product(call, call.arg(0), call.arg(1));
}

// A product to which the call's first argument is added, broadcast as elementwise ops do.
Placement add_product(PlacementCall& call, const Placement& rows) {
  const Operand addend = call.arg(0);
  Placement p = call.of(addend);
  if (p.is_whole() && rows.is_whole()) return rows;
  if (!rows.is_rows() || !(p.is_whole() || p.is_rows())) refuse_pair(call, p, rows);
  const int missing = static_cast<int>(call.result_tensor()->rank()) - static_cast<int>(call.rank(addend));
  if (p.is_rows()) {
    p.dim += missing;
    return common_rows(call, std::vector{p, rows});
  }
  const TensorType* type = call.tensor(addend);
  const int dim = rows.dim - missing;
  if (type != nullptr && dim >= 0 && call.tokens().scales(type->sizes[static_cast<std::size_t>(dim)]))
    call.take_slice_like(addend, dim, rows);
  return rows;
}

Placement add_matmul(PlacementCall& call) {
  return add_product(call, matrix_product(call, call.arg(1), call.arg(2)));
}

// The groups of a part's rows end elsewhere than those of all rows.
void require_own_groups(PlacementCall& call) {
  const Operand ends = call.arg(2, "offs");
  const Placement p = call.of(ends);
  if (p.is_partial() || p.is_local()) return;
  call.refuse("chunk.whole-groups",
              fmt::format("the ends of its groups ({}) are those of all rows, not of a part's",
                          ends && ends.arg.is_node() ? call.name_of(ends) : "not given"),
              "the ends must come from counts that each part can make of its own rows (sums of integers)");
}

// Row groups times one matrix each, or, both operands 2-D, one sum over its rows per group.
Placement grouped_mm(PlacementCall& call) {
  const Placement a = call.of(call.arg(0)), b = call.of(call.arg(1));
  if (a.is_whole() && b.is_whole()) return Placement::whole();
  require_own_groups(call);
  const std::size_t rank_a = call.rank(call.arg(0)), rank_b = call.rank(call.arg(1));
  if (a.is_rows() && a.dim == 0 && rank_a == 2 && b.is_whole() && rank_b == 3) return a;
  if (a.is_rows() && a.dim == 1 && rank_a == 2 && b.is_rows() && b.dim == 0 && rank_b == 2)
    return sum_over_rows(call, a, b);
  refuse_pair(call, a, b);
}

// Row by row, but for the dimension `dim`.
Placement along_dim(PlacementCall& call, const char* what) {
  const Placement p = elementwise(call, call.node_operands(), Linearity::kNone);
  if (p.is_rows() && p.dim == call.dim_arg(-1, call.result_tensor()->rank()))
    call.refuse("chunk.along-divided", what);
  return p;
}

Placement normalise(PlacementCall& call) {
  return along_dim(call, "it normalises along the divided dimension");
}

Placement halve(PlacementCall& call) {
  return along_dim(call, "it takes halves of the divided dimension");
}

// Over the last dimensions, the list of which is argument 1: the value and some numbers for each
// row.
Placement norm(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_whole()) return p;
  const auto normalised = static_cast<int>(call.items(call.arg(1)).size());
  if (p.is_rows()) {
    if (p.dim >= static_cast<int>(call.rank(call.arg(0))) - normalised)
      call.refuse("chunk.along-divided", "it normalises along the divided dimension");
    return Placement::tuple(std::vector<Placement>(call.op().returns.size(), p));
  }
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// The gradient of the value from the tensors in front of the weight, and sums for the weights.
Placement norm_backward(PlacementCall& call) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < call.op().params.size() && call.op().params[i].name != "weight"; ++i)
    if (call.op().params[i].type == "Tensor") rows.push_back(i);
  const std::size_t weights = call.op().returns.size() - 1;
  std::vector<Placement> placements;
  for (const std::size_t i : rows) placements.push_back(call.of(call.arg(i)));
  if (std::none_of(placements.begin(), placements.end(), [](auto& p) { return p.is_divided(); }))
    return Placement::whole();
  if (std::any_of(placements.begin(), placements.end(), [](auto& p) { return p.is_partial(); }))
    call.refuse("chunk.combination", "it needs the rows of a sum of parts");
  std::vector<Placement> elements(1 + weights, Placement::partial());
  elements[0] = common_rows(call, placements);
  const auto dim = static_cast<std::size_t>(elements[0].dim);
  for (std::size_t at = 0; const std::size_t i : rows) {
    const TensorType* type = call.tensor(call.arg(i));
    const bool has_rows = type != nullptr && dim < type->rank() && call.tokens().scales(type->sizes[dim]);
    if (placements[at++].is_whole() && has_rows)
      call.take_slice_like(call.arg(i), elements[0].dim, elements[0]);
  }
  return Placement::tuple(std::move(elements));
}

// Of operands (input, weight): each row of the batch by itself, or products of a sum.
Placement convolution(PlacementCall& call) {
  const Placement input = call.of(call.named("input")), weight = call.of(call.named("weight"));
  if (input.is_whole() && weight.is_whole()) return input;
  if ((input.is_partial() && weight.is_whole()) || (input.is_whole() && weight.is_partial()))
    return Placement::partial();
  if (!input.is_rows() || !weight.is_whole()) refuse_pair(call, input, weight);
  if (input.dim != 0) call.refuse("chunk.along-divided", "its windows reach over the divided dimension");
  return input;
}

// The gradient of the input by rows, sums for weight and bias.
Placement convolution_backward(PlacementCall& call) {
  for (const std::string_view param : {"grad_output", "input"})
    if (const Placement p = call.of(call.named(param)); p.is_rows() && p.dim != 0)
      call.refuse("chunk.along-divided", "its windows reach over the divided dimension");
  return norm_backward(call);
}

Placement embedding(PlacementCall& call) {
  const Placement weight = call.of(call.arg(0)), indices = call.of(call.arg(1));
  if (!weight.is_whole()) refuse_pair(call, weight, indices);
  if (indices.is_partial()) call.take_whole(call.arg(1));
  return indices.is_partial() ? Placement::whole() : indices;
}

// Rows of a gradient, added up by the numbers of their rows. Scaled by how often a number occurs,
// it needs the numbers of all rows.
Placement embedding_backward(PlacementCall& call) {
  const Operand grad = call.arg(0), indices = call.arg(1);
  const Placement g = call.of(grad), i = call.of(indices);
  if (g.is_whole() && i.is_whole()) return g;
  if (g.is_partial() && i.is_whole()) return g;
  // Columns of the gradient are those of the table.
  const bool is_columns = g.is_rows() && g.dim == static_cast<int>(call.rank(grad)) - 1;
  if (is_columns && i.is_whole() && g.is(PlacementKind::kSplit)) return Placement::split(1);
  if (is_columns || call.bool_arg(4, "scale_grad_by_freq", false) || g.is_partial() || i.is_partial())
    refuse_pair(call, g, i);
  if (g.is_rows() && i.is_rows() && g.dim == i.dim) return sum_over_rows(call, g, i);
  if (g.is_rows() && i.is_whole() && take_shared_rows(call, {indices, g.dim}, g)) return Placement::partial();
  if (g.is_whole() && i.is_rows() && take_shared_rows(call, {grad, i.dim}, i)) return Placement::partial();
  refuse_pair(call, g, i);
}

Placement sum_over(PlacementCall& call, std::vector<int> dims) {
  const Placement p = call.of(call.arg(0));
  if (!p.is_rows()) return p;
  if (dims.empty())
    for (int d = 0; d < static_cast<int>(call.rank(call.arg(0))); ++d) dims.push_back(d);
  if (std::find(dims.begin(), dims.end(), p.dim) != dims.end()) return Placement::partial();
  if (const Operand keepdim = call.named("keepdim"); keepdim && keepdim.arg == Arg::boolean(true)) return p;
  Placement result = p;
  result.dim -= static_cast<int>(std::count_if(dims.begin(), dims.end(), [&](int d) { return d < p.dim; }));
  return result;
}

// Those that `dim` names; none: all.
std::vector<int> dims_of(PlacementCall& call) {
  const Operand list = call.named("dim");
  std::vector<int> dims;
  for (const Operand& item : call.items(list))
    dims.push_back(call.dim(item.arg.as_int(), call.rank(call.arg(0))));
  if (list && list.arg.is_int()) dims.push_back(call.dim(list.arg.as_int(), call.rank(call.arg(0))));
  return dims;
}

// Of the numbers among a sum of parts (nansum) nothing is known before it is added up.
Placement sum(PlacementCall& call) {
  if (call.op().linearity == Linearity::kNone && call.of(call.arg(0)).is_partial()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  return sum_over(call, dims_of(call));
}

// Over other dimensions than the divided one a reduction is row-wise. Along it only a sum is made
// part by part. A mean, as of a router's probabilities in a loss that balances the experts, is
// taken once, of the joined rows.
Placement reduction_over(PlacementCall& call, const std::vector<int>& dims) {
  Placement p = call.of(call.arg(0));
  if (p.is_partial()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  if (!p.is_rows()) return p;
  const bool is_joinable = p.is(PlacementKind::kSplit) && call.op().linearity != Linearity::kNone;
  p = sum_over(call, dims);
  if (p.is_partial() && is_joinable) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  if (p.is_partial())
    call.refuse("chunk.reduction",
                "it reduces the divided dimension, and only a sum of the parts' results is known",
                "reduce outside the selected module, or use a sum");
  if (call.result_tensor() != nullptr) return p;
  return Placement::tuple(std::vector<Placement>(call.result_count(), p));
}

Placement row_wise_reduction(PlacementCall& call) {
  return reduction_over(call, dims_of(call));
}

// A scan that is no sum needs all of a sum of parts.
Placement scan(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_partial() && call.op().linearity == Linearity::kNone) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  if (p.is_rows() && p.dim == call.dim_arg(0, call.rank(call.arg(0))))
    call.refuse(
        "chunk.along-divided", "it accumulates along the divided dimension",
        "accumulate along a dimension that is not divided, as within each sequence of a divided batch, "
        "or select roots that leave this operation outside");
  if (call.op().returns.size() == 1 || p.is_whole()) return p;
  return Placement::tuple(std::vector<Placement>(call.op().returns.size(), p));
}

// Whether all rows (or any) are true is asked of all rows: of bools, which are cheap to join.
Placement truth_over(PlacementCall& call, std::vector<int> dims) {
  const Placement p = call.of(call.arg(0));
  const TensorType* type = call.tensor(call.arg(0));
  const bool is_of_rows = p.is_rows() && (dims.empty() || std::ranges::find(dims, p.dim) != dims.end());
  if (!is_of_rows || type == nullptr || type->dtype != DType::kBool) return reduction_over(call, dims);
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// An empty list names no dimension: each element by itself.
Placement truth(PlacementCall& call) {
  const Operand list = call.named("dim");
  const bool names_none = list && list.arg.is_list() && call.items(list).empty();
  if (!names_none) return truth_over(call, dims_of(call));
  return elementwise(call, std::vector{call.arg(0)}, Linearity::kNone);
}

bool has_no_scales(const OpInfo& op) {
  return !op.find_param("scale_a");
}
bool multiplies_matrices(const OpInfo& op) {
  return op.find_param("mat2") && has_no_scales(op);
}

constexpr PlacementRow kComputeRows[] = {
    {OpFamily::kMatmul, matmul, multiplies_matrices},
    {OpFamily::kAddMatmul, add_matmul},
    {OpFamily::kGroupedMatmul, grouped_mm, has_no_scales},
    {OpFamily::kConvolution, convolution},
    {OpFamily::kConvolutionBackward, convolution_backward},
    {OpFamily::kNormalise, normalise},
    {OpFamily::kHalve, halve},
    {OpFamily::kHalveBackward, halve},
    {OpFamily::kNormaliseLast, norm},
    {OpFamily::kNormaliseLastBackward, norm_backward},
    {OpFamily::kEmbedding, embedding},
    {OpFamily::kEmbeddingBackward, embedding_backward},
    {OpFamily::kSum, sum},
    {OpFamily::kReduce, row_wise_reduction},
    {OpFamily::kTruth, truth},
    {OpFamily::kScan, scan},
};

}  // namespace

std::span<const PlacementRow> compute_placement_rows() {
  return kComputeRows;
}

}  // namespace epweave
