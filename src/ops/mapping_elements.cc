// Maps, reductions, normalisations, factories and losses.
#include "ops/mapping_rules.h"

#include <algorithm>

#include "ir/types/dimension.h"

namespace epweave::mapping {

std::size_t wrap(std::int64_t dim, std::size_t rank) {
  return find_dimension(dim, rank).value_or(0);
}

namespace {

// Whether an empty list names no dimension: of any, all and flip. For others it names all.
bool names_none_by_empty(const OpInfo& op) {
  return op.family == OpFamily::kTruth || (op.family == OpFamily::kReorder && !op.find_param("shifts"));
}

}  // namespace

// Those that `param` names; all where it is left out.
std::vector<bool> dims_named(const B& b, std::string_view param, std::size_t rank) {
  const auto named = b.numbers(param);
  const MappedCall::Argument* argument = b.find(param);
  const bool is_list = argument != nullptr && argument->kind == Kind::kNumbers;
  std::vector<bool> is_named(rank, named.empty() && !(is_list && names_none_by_empty(b.op())));
  for (const std::int64_t dim : named)
    if (rank > 0) is_named[wrap(dim, rank)] = true;
  return is_named;
}

// Gives `to` the factors of `from`, aligned at the last dimension; an extent of 1 has none.
void align(Dims& to, const Sizes& sizes, const Dims& from) {
  for (std::size_t i = 1; i <= std::min(to.size(), from.size()); ++i)
    if (sizes[sizes.size() - i] != 1) to[to.size() - i] = from[from.size() - i];
}

// All operands from `first` on broadcast to all results.
void broadcast(B& b, std::size_t first) {
  // The operands' extents count where there is no result: an assertion.
  Sizes sizes = b.result_count() > 0 ? b.result_sizes(0) : Sizes();
  for (std::size_t i = first; i < b.operand_count() && b.result_count() == 0; ++i)
    if (b.sizes(i).size() > sizes.size()) sizes = b.sizes(i);
  const Dims dims = b.fresh(sizes);
  for (std::size_t i = first; i < b.operand_count(); ++i) align(b.operand(i), b.sizes(i), dims);
  for (std::size_t i = 0; i < b.result_count(); ++i) align(b.result(i), b.result_sizes(i), dims);
}

namespace {

// Each item of a list of tensors has a result of its own.
bool is_item_by_item(const B& b) {
  return !b.op().params.empty() && b.op().params[0].type.starts_with("Tensor[");
}

}  // namespace

void elementwise(B& b) {
  if (!is_item_by_item(b)) return broadcast(b);
  const auto [begin, end] = b.tensors_of(0);
  for (std::size_t i = begin; i < end && i - begin < b.result_count(); ++i) {
    b.operand(i) = b.fresh(b.sizes(i));
    align(b.result(i - begin), b.result_sizes(i - begin), b.operand(i));
  }
}

namespace {

// `dims` without those that are reduced, which stay with extent 1 where `keepdim` says so.
Dims kept(const Dims& dims, const std::vector<bool>& is_reduced, bool keepdim) {
  Dims result;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (!is_reduced[i])
      result.push_back(dims[i]);
    else if (keepdim)
      result.emplace_back();
  return result;
}

void reduce(B& b, FactorUse use) {
  const Dims dims = b.fresh(b.sizes(0));
  const std::vector<bool> is_reduced = dims_named(b, "dim", dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (is_reduced[i]) b.mark(dims[i], use);
  b.operand(0) = dims;
  for (std::size_t r = 0; r < b.result_count(); ++r) {
    Dims result = kept(dims, is_reduced, b.result_sizes(r).size() == dims.size());
    result.resize(b.result_sizes(r).size());
    b.result(r) = result;
  }
}

// As broadcast, but for the dimension that `dim` names.
void needed_along(B& b, std::string_view param, std::int64_t fallback) {
  broadcast(b);
  Dims& dims = b.operand(0);
  if (!dims.empty()) b.mark(dims[wrap(b.number(param, fallback), dims.size())], FactorUse::kWhole);
}

// One dimension of all operands, and of all results, has elements of its own, which are made of
// all; the others pair.
void remade_along(B& b, std::size_t dim) {
  const std::size_t rank = b.sizes(0).size();
  const Dims dims = b.fresh(b.sizes(0));
  if (dim < rank) b.mark(dims[dim], FactorUse::kWhole);
  const auto give = [&](Dims& to, const Sizes& sizes) {
    for (std::size_t i = 0; i < std::min(rank, to.size()); ++i)
      to[i] = i != dim                       ? dims[i]
              : sizes[i] == b.sizes(0).at(i) ? dims[i]
                                             : b.fresh(sizes[i], FactorUse::kWhole);
  };
  for (std::size_t i = 0; i < b.operand_count(); ++i)
    if (b.sizes(i).size() == rank) give(b.operand(i), b.sizes(i));
  for (std::size_t r = 0; r < b.result_count(); ++r) give(b.result(r), b.result_sizes(r));
}

}  // namespace

void normalise_last(B& b) {
  const std::size_t rank = b.sizes(0).size(), last = std::min(rank, b.numbers("normalized_shape").size());
  const Dims dims = b.fresh(b.sizes(0));
  for (std::size_t i = rank - last; i < rank; ++i) b.mark(dims[i], FactorUse::kWhole);
  b.operand(0) = dims;
  for (std::size_t i = 1; i < b.operand_count(); ++i) align(b.operand(i), b.sizes(i), dims);
  for (std::size_t r = 0; r < b.result_count(); ++r) align(b.result(r), b.result_sizes(r), dims);
}

// The gradients of weights are sums over the rows.
void normalise_last_backward(B& b) {
  normalise_last(b);
  const std::size_t rank = b.sizes(0).size(), last = std::min(rank, b.numbers("normalized_shape").size());
  for (std::size_t i = 0; i < rank - last; ++i) b.mark(b.operand(0)[i], FactorUse::kSummed);
}

void made_by_place(B& b) {
  for (std::size_t r = 0; r < b.result_count(); ++r)
    b.result(r) = b.fresh(b.result_sizes(r), FactorUse::kWhole);
}

void made_of_nothing(B& b) {
  for (std::size_t r = 0; r < b.result_count(); ++r) b.result(r) = b.fresh(b.result_sizes(r));
}

// Along `dim`, which a call may leave out.
void sum(B& b) {
  reduce(b, FactorUse::kSummed);
}

void reduce_otherwise(B& b) {
  reduce(b, FactorUse::kReduced);
}

void scan(B& b) {
  needed_along(b, "dim", 0);
}

void normalise(B& b) {
  needed_along(b, "dim", -1);
}

void remake(B& b) {
  remade_along(b, wrap(b.number("dim", -1), b.sizes(0).size()));
}

// As large as the first operand; further operands are kept alive, no more.
void first_alone(B& b) {
  b.result(0) = b.fresh(b.result_sizes(0));
  align(b.operand(0), b.sizes(0), b.result(0));
}

namespace {

FactorUse use_of_reduction(const B& b) {
  const std::int64_t reduction = b.number("reduction", 1);
  return reduction == 2 ? FactorUse::kSummed : reduction == 1 ? FactorUse::kReduced : FactorUse::kPassed;
}

}  // namespace

// Of terms of all operands, which broadcast.
void loss(B& b) {
  Sizes sizes;
  for (std::size_t i = 0; i < b.operand_count(); ++i) {
    const Sizes& other = b.sizes(i);
    if (other.size() > sizes.size()) sizes.insert(sizes.begin(), other.size() - sizes.size(), 1);
    for (std::size_t d = 1; d <= other.size(); ++d)
      if (other[other.size() - d] != 1) sizes[sizes.size() - d] = other[other.size() - d];
  }
  const Dims dims = b.fresh(sizes);
  for (const Factors& factors : dims) b.mark(factors, use_of_reduction(b));
  for (std::size_t i = 0; i < b.operand_count(); ++i) align(b.operand(i), b.sizes(i), dims);
  align(b.result(0), b.result_sizes(0), dims);
}

// A mean divides by the number of all elements.
void loss_backward(B& b) {
  broadcast(b);
  if (b.number("reduction", 1) != 1) return;
  for (const Factors& factors : b.result(0)) b.mark(factors, FactorUse::kWhole);
}

// A row's class is a number among all of them: half of the classes would count from 0 again.
void class_loss(B& b) {
  const std::size_t rank = b.sizes(0).size();
  const Dims dims = b.fresh(b.sizes(0));
  if (dims.empty()) return;
  b.operand(0) = dims;
  b.mark(dims.back(), FactorUse::kWhole);
  const Dims rows(dims.begin(), dims.end() - 1);
  for (const Factors& factors : rows) b.mark(factors, use_of_reduction(b));
  align(b.operand(1), b.sizes(1), rows);
  for (std::size_t i = 2; i < b.operand_count(); ++i) b.operand(i) = b.fresh(b.sizes(i), FactorUse::kWhole);
  if (b.result_count() > 0 && b.result_sizes(0).size() == rank - 1)
    align(b.result(0), b.result_sizes(0), rows);
}

// The weight of all rows is an operand of its own.
void class_loss_backward(B& b) {
  const std::size_t self = b.tensor("self").value_or(0), target = b.tensor("target").value_or(0);
  const Dims dims = b.fresh(b.sizes(self));
  if (dims.empty()) return;
  b.operand(self) = dims;
  b.result(0) = dims;
  b.mark(dims.back(), FactorUse::kWhole);
  const Dims rows(dims.begin(), dims.end() - 1);
  align(b.operand(target), b.sizes(target), rows);
  const std::size_t grad = b.tensor(0).value_or(0);
  if (b.sizes(grad).size() == rows.size()) align(b.operand(grad), b.sizes(grad), rows);
  if (const auto weight = b.tensor("weight"))
    b.operand(*weight) = b.fresh(b.sizes(*weight), FactorUse::kWhole);
}

}  // namespace epweave::mapping
