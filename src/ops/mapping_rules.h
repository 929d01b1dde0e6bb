// How each family's calls are mapped: a function per family, which gives operands and results their
// factors (mapping.h). mapping.cc says which family has which.
#pragma once

#include <string_view>
#include <utility>

#include "ops/mapping.h"

namespace epweave::mapping {

using Sizes = MappedCall::Sizes;
using Kind = MappedCall::Kind;
using Factors = std::vector<Factor>;

// The factors of each dimension of a tensor. A graph may record tensors that do not fit the op:
// what is not there throws.
class Dims : public std::vector<Factors> {
 public:
  using std::vector<Factors>::vector;
  Factors& operator[](std::size_t dim) { return at(dim); }
  const Factors& operator[](std::size_t dim) const { return at(dim); }
};

// The factors of one call while they are found. Operands that no function looks at have no factors.
class Builder {
 public:
  explicit Builder(const MappedCall& call)
      : call_(call), operands_(call.tensors.size()), results_(call.results.size()) {
    for (std::size_t i = 0; i < operands_.size(); ++i) operands_[i].resize(call.tensors[i].size());
    for (std::size_t i = 0; i < results_.size(); ++i) results_[i].resize(call.results[i].size());
  }

  // ---- the call
  const OpInfo& op() const { return *call_.op; }
  const MappedCall::Argument* find(std::string_view param) const {
    const auto position = op().find_param(param);
    return position && *position < call_.arguments.size() ? &call_.arguments[*position] : nullptr;
  }
  std::int64_t number(std::string_view param, std::int64_t fallback) const {
    const MappedCall::Argument* argument = find(param);
    return argument != nullptr && argument->kind == Kind::kNumber ? argument->number : fallback;
  }
  std::span<const std::int64_t> numbers(std::string_view param) const {
    const MappedCall::Argument* argument = find(param);
    if (argument == nullptr) return {};
    if (argument->kind == Kind::kNumber) return {&argument->number, 1};
    if (argument->kind != Kind::kNumbers) return {};
    return std::span(call_.numbers).subspan(argument->begin, argument->end - argument->begin);
  }
  // Operands of a parameter: [begin, end) of the call's tensors.
  std::pair<std::size_t, std::size_t> tensors_of(std::size_t param) const {
    const MappedCall::Argument& argument = call_.arguments[param];
    const bool has = argument.kind == Kind::kTensor || argument.kind == Kind::kTensors;
    return has ? std::pair<std::size_t, std::size_t>{argument.begin, argument.end}
               : std::pair<std::size_t, std::size_t>{0, 0};
  }
  // The operand of a parameter that takes one tensor.
  std::optional<std::size_t> tensor(std::size_t param) const {
    if (param >= call_.arguments.size() || call_.arguments[param].kind != Kind::kTensor) return std::nullopt;
    return call_.arguments[param].begin;
  }
  std::optional<std::size_t> tensor(std::string_view param) const {
    const auto position = op().find_param(param);
    return position ? tensor(*position) : std::nullopt;
  }
  std::size_t operand_count() const { return operands_.size(); }
  std::size_t result_count() const { return results_.size(); }
  const Sizes& sizes(std::size_t operand) const { return call_.tensors.at(operand); }
  const Sizes& result_sizes(std::size_t result) const { return call_.results.at(result); }
  std::size_t place(std::size_t operand) const { return call_.places[operand]; }
  bool is_mask(std::size_t operand) const { return operand < call_.is_mask.size() && call_.is_mask[operand]; }
  const MappedCall::Argument& argument(std::size_t param) const { return call_.arguments[param]; }

  // ---- the factors
  Factor add(std::int64_t extent, FactorUse use = FactorUse::kPassed) {
    uses_.push_back(use);
    extents_.push_back(extent);
    return static_cast<Factor>(uses_.size() - 1);
  }
  // One new factor; none for an extent of 1.
  Factors fresh(std::int64_t extent, FactorUse use = FactorUse::kPassed) {
    return extent == 1 ? Factors() : Factors{add(extent, use)};
  }
  Dims fresh(const Sizes& sizes, FactorUse use = FactorUse::kPassed) {
    Dims dims;
    for (const std::int64_t extent : sizes) dims.push_back(fresh(extent, use));
    return dims;
  }
  void mark(const Factors& factors, FactorUse use) {
    for (const Factor factor : factors) uses_[factor] = use;
  }
  std::int64_t extent(Factor factor) const { return extents_[factor]; }
  Dims& operand(std::size_t i) { return operands_.at(i); }
  Dims& result(std::size_t i) { return results_.at(i); }

  // Whether each tensor still has its dimensions.
  bool keeps_ranks() const {
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].size() != call_.tensors[i].size()) return false;
    for (std::size_t r = 0; r < results_.size(); ++r)
      if (results_[r].size() != call_.results[r].size()) return false;
    return true;
  }

  // A dimension without elements, as of a buffer that a GPU leaves empty, is no dimension of others
  // that have some.
  void clear_empty(Dims& dims, const Sizes& sizes) const {
    const auto is_of_elements = [&](Factor factor) { return extents_[factor] != 0; };
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (sizes[d] == 0 && std::ranges::all_of(dims[d], is_of_elements)) dims[d].clear();
  }

  CallMapping finish() {
    for (std::size_t i = 0; i < operands_.size(); ++i) clear_empty(operands_[i], call_.tensors[i]);
    for (std::size_t r = 0; r < results_.size(); ++r) clear_empty(results_[r], call_.results[r]);
    CallMapping mapping;
    mapping.is_known_ = true;
    mapping.uses_ = std::move(uses_);
    mapping.extents_ = std::move(extents_);
    for (const auto& [tensors, ranges] :
         {std::pair{&operands_, &mapping.operands_}, {&results_, &mapping.results_}})
      for (const Dims& dims : *tensors) {
        const auto begin = static_cast<std::uint32_t>(mapping.dims_.size());
        for (const Factors& factors : dims) {
          const auto first = static_cast<std::uint32_t>(mapping.items_.size());
          mapping.items_.insert(mapping.items_.end(), factors.begin(), factors.end());
          mapping.dims_.push_back({first, static_cast<std::uint32_t>(mapping.items_.size())});
        }
        ranges->push_back({begin, static_cast<std::uint32_t>(mapping.dims_.size())});
      }
    return mapping;
  }

 private:
  const MappedCall& call_;
  std::vector<Dims> operands_, results_;
  std::vector<FactorUse> uses_;
  std::vector<std::int64_t> extents_;
};

using B = Builder;

// ---- dimensions

// The dimension that a number names, of `rank`; 0 of a scalar.
std::size_t wrap(std::int64_t dim, std::size_t rank);
// Those that `param` names; all where it is left out.
std::vector<bool> dims_named(const B& b, std::string_view param, std::size_t rank);
// Gives `to` the factors of `from`, aligned at the last dimension; an extent of 1 has none.
void align(Dims& to, const Sizes& sizes, const Dims& from);
// All operands from `first` on broadcast to all results.
void broadcast(B& b, std::size_t first = 0);

// ---- families

// mapping_elements.cc
void elementwise(B& b);
void normalise_last(B& b);
void normalise_last_backward(B& b);
void made_by_place(B& b);
void made_of_nothing(B& b);
void sum(B& b);
void reduce_otherwise(B& b);
void scan(B& b);
void normalise(B& b);
void remake(B& b);
void first_alone(B& b);
void loss(B& b);
void loss_backward(B& b);
void class_loss(B& b);
void class_loss_backward(B& b);

// mapping_views.cc
void reshape(B& b);
void bit_view(B& b);
void permute(B& b);
void expand(B& b);
void repeat(B& b);
void select(B& b);
void slice(B& b);
void split(B& b);
void pad(B& b);
void join(B& b);
void stack(B& b);
void reorder(B& b);
void triangle(B& b);
void unslice(B& b);
void write_slice(B& b);

// mapping_rows.cc
void index_all(B& b);
void index(B& b);
void index_put(B& b);
void masked_rows(B& b);
void gather(B& b);
void scatter(B& b);
void index_select(B& b);
void embedding(B& b);
void embedding_backward(B& b);
void index_add(B& b);
void row_scatter(B& b);
void search(B& b);
void count(B& b);
void one_hot(B& b);
void exchange(B& b);
void all_gather(B& b);
void reduce_scatter(B& b);
void exchange_pair(Builder& b);

// mapping_products.cc
void matmul(B& b);
void add_matmul(B& b);
void solve(B& b);
void grouped_matmul(B& b);
void convolution(B& b);
void convolution_backward(B& b);

}  // namespace epweave::mapping
