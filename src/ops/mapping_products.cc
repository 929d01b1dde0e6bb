// Products of matrices and convolutions.
#include "ops/mapping_rules.h"

#include <algorithm>

namespace epweave::mapping {

namespace {

// Matrices by matrices, or vectors: the last dimension of `left` meets the last but one of `right`.
// Dimensions in front pair.
void product(B& b, std::size_t left, std::size_t right, FactorUse along) {
  const Sizes &a = b.sizes(left), &c = b.sizes(right);
  if (a.empty() || c.empty()) return;
  const Dims dims = b.fresh(a);
  b.mark(dims.back(), along);
  b.operand(left) = dims;
  Dims& to = b.operand(right);
  const bool is_matrix = c.size() > 1;
  for (std::size_t d = 0; d + 2 < c.size(); ++d) to[d] = dims[d];
  to[c.size() - (is_matrix ? 2 : 1)] = dims.back();
  Dims result(dims.begin(), dims.end() - 1);
  if (is_matrix) result.push_back(to.back() = b.fresh(c.back()));
  if (b.result(0).size() == result.size()) b.result(0) = result;
}

}  // namespace

void matmul(B& b) {
  product(b, b.tensor(0).value_or(0), b.tensor(1).value_or(0), FactorUse::kSummed);
}

// The first operand is added once, however the product is summed.
void add_matmul(B& b) {
  product(b, 1, 2, FactorUse::kReduced);
  align(b.operand(0), b.sizes(0), b.result(0));
}

// A matrix of the result is made of all of a matrix of each operand; dimensions in front pair.
void solve(B& b) {
  Dims dims = b.fresh(b.result_sizes(0));
  for (std::size_t i = dims.size() - std::min<std::size_t>(2, dims.size()); i < dims.size(); ++i)
    b.mark(dims[i], FactorUse::kWhole);
  b.result(0) = dims;
  align(b.operand(1), b.sizes(1), dims);
  const Sizes& square = b.sizes(0);
  for (std::size_t i = 1; i <= std::min<std::size_t>(2, std::min(square.size(), dims.size())); ++i)
    dims[dims.size() - i] = b.fresh(square[square.size() - i], FactorUse::kWhole);
  align(b.operand(0), square, dims);
}

// Rows in groups by matrices, [m, k] x [g, k, n]; columns in groups by rows in groups, [m, k] x [k,
// n] -> [g, m, n].
void grouped_matmul(B& b) {
  const std::size_t left = b.tensor(0).value_or(0), right = b.tensor(1).value_or(0);
  const std::size_t rank_a = b.sizes(left).size(), rank_b = b.sizes(right).size();
  if (rank_a + rank_b == 6) return matmul(b);
  const Dims a = b.fresh(b.sizes(left)), c = b.fresh(b.sizes(right));
  b.operand(left) = a;
  b.operand(right) = c;
  if (rank_a == 2 && rank_b == 3) {
    b.mark(a[0], FactorUse::kIndexed);
    b.mark(a[1], FactorUse::kSummed);
    b.mark(c[0], FactorUse::kWhole);
    b.operand(right)[1] = a[1];
    b.result(0) = {a[0], c[2]};
  } else if (rank_a == 3 && rank_b == 2) {
    b.mark(c[1], FactorUse::kIndexed);
    b.mark(a[2], FactorUse::kSummed);
    b.mark(a[0], FactorUse::kWhole);
    b.operand(right)[0] = a[2];
    b.result(0) = {a[1], c[1]};
  } else if (rank_a == 2 && rank_b == 2) {
    b.mark(a[1], FactorUse::kIndexed);
    b.operand(right)[0] = a[1];
    b.result(0) = {b.fresh(b.result_sizes(0).at(0), FactorUse::kWhole), a[0], c[1]};
  }
  if (const auto ends = b.tensor("offs")) b.operand(*ends) = b.fresh(b.sizes(*ends), FactorUse::kWhole);
}

namespace {

// The factors of a weight; which of its dimensions have those of the windowed value's channels, and
// of what the windows make. Groups of channels have their own matrices: none can be left out.
struct WeightDims {
  Dims dims;
  std::size_t windowed, made;
  bool is_cut;
};

WeightDims weight_dims(B& b) {
  const bool is_transposed = b.number("transposed", 0) != 0;
  return {b.fresh(b.sizes(b.tensor("weight").value_or(0)), FactorUse::kWhole), is_transposed ? 0U : 1U,
          is_transposed ? 1U : 0U, b.number("groups", 0) == 1};
}

}  // namespace

void convolution(B& b) {
  const std::size_t weight = b.tensor("weight").value_or(0);
  Dims in = b.fresh(b.sizes(0), FactorUse::kWhole), out = b.fresh(b.result_sizes(0), FactorUse::kWhole);
  const WeightDims w = weight_dims(b);
  const auto bias = b.tensor("bias");
  b.mark(in[0], FactorUse::kPassed);
  out[0] = in[0];
  if (w.is_cut) {
    b.mark(w.dims[w.windowed], bias ? FactorUse::kReduced : FactorUse::kSummed);
    in[1] = w.dims[w.windowed];
    b.mark(w.dims[w.made], FactorUse::kPassed);
    out[1] = w.dims[w.made];
  }
  b.operand(0) = in;
  b.operand(weight) = w.dims;
  b.result(0) = out;
  if (bias) b.operand(*bias) = {out[1]};
}

namespace {

// Which gradient is which is not known.
void mix_all(B& b) {
  for (std::size_t i = 0; i < b.operand_count(); ++i) b.operand(i) = b.fresh(b.sizes(i), FactorUse::kWhole);
  for (std::size_t r = 0; r < b.result_count(); ++r)
    b.result(r) = b.fresh(b.result_sizes(r), FactorUse::kWhole);
}

}  // namespace

// Gradients of weight and bias are sums over the batch.
void convolution_backward(B& b) {
  const std::size_t input = b.tensor("input").value_or(0), weight = b.tensor("weight").value_or(0);
  const auto wanted = b.numbers("output_mask");
  const bool wants_input = wanted.size() == 3 && wanted[0] == 1,
             wants_weight = wanted.size() == 3 && wanted[1] == 1,
             wants_bias = wanted.size() == 3 && wanted[2] == 1;
  if (wants_input + wants_weight + wants_bias != static_cast<int>(b.result_count())) return mix_all(b);
  Dims in = b.fresh(b.sizes(input), FactorUse::kWhole), grad = b.fresh(b.sizes(0), FactorUse::kWhole);
  const WeightDims w = weight_dims(b);
  b.mark(in[0], FactorUse::kSummed);
  grad[0] = in[0];
  if (w.is_cut) {
    b.mark(w.dims[w.made], FactorUse::kSummed);
    grad[1] = w.dims[w.made];
    b.mark(w.dims[w.windowed], wants_bias ? FactorUse::kWhole : FactorUse::kPassed);
    in[1] = w.dims[w.windowed];
  }
  b.operand(0) = grad;
  b.operand(input) = in;
  b.operand(weight) = w.dims;
  std::size_t next = 0;
  if (wants_input) b.result(next++) = in;
  if (wants_weight) b.result(next++) = w.dims;
  if (wants_bias) b.result(next) = {grad[1]};
}

}  // namespace epweave::mapping
