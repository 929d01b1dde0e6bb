#include "ops/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ops/bind.h"

namespace epweave {

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

std::string_view name_of(FactorUse use) {
  switch (use) {
    case FactorUse::kPassed:
      return "passed";
    case FactorUse::kSummed:
      return "summed";
    case FactorUse::kReduced:
      return "reduced";
    case FactorUse::kWhole:
      return "needed whole";
    case FactorUse::kIndexed:
      return "indexed by data";
  }
  return {};
}

std::optional<std::size_t> CallMapping::result_dim(std::size_t tensor, Factor factor) const {
  for (std::size_t d = 0; d < result_rank(tensor); ++d)
    if (const auto factors = result(tensor, d); factors.size() == 1 && factors[0] == factor) return d;
  return std::nullopt;
}

// The factors of one call while they are found. Operands that no function looks at have no factors.
class MappingBuilder {
 public:
  explicit MappingBuilder(const MappedCall& call)
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

namespace {

using B = MappingBuilder;

// The dimension that a number names, of `rank`; 0 of a scalar.
std::size_t wrap(std::int64_t dim, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
  return static_cast<std::size_t>(std::clamp<std::int64_t>(dim < 0 ? dim + r : dim, 0, r - 1));
}

// Whether an empty list names no dimension: of any, all and flip. For others it names all.
bool names_none_by_empty(const OpInfo& op) {
  return op.family == OpFamily::kTruth || (op.family == OpFamily::kReorder && !op.find_param("shifts"));
}

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
void broadcast(B& b, std::size_t first = 0) {
  // The operands' extents count where there is no result: an assertion.
  Sizes sizes = b.result_count() > 0 ? b.result_sizes(0) : Sizes();
  for (std::size_t i = first; i < b.operand_count() && b.result_count() == 0; ++i)
    if (b.sizes(i).size() > sizes.size()) sizes = b.sizes(i);
  const Dims dims = b.fresh(sizes);
  for (std::size_t i = first; i < b.operand_count(); ++i) align(b.operand(i), b.sizes(i), dims);
  for (std::size_t i = 0; i < b.result_count(); ++i) align(b.result(i), b.result_sizes(i), dims);
}

// Each item of a list of tensors has a result of its own.
bool is_item_by_item(const B& b) {
  return !b.op().params.empty() && b.op().params[0].type.starts_with("Tensor[");
}

void elementwise(B& b) {
  if (!is_item_by_item(b)) return broadcast(b);
  const auto [begin, end] = b.tensors_of(0);
  for (std::size_t i = begin; i < end && i - begin < b.result_count(); ++i) {
    b.operand(i) = b.fresh(b.sizes(i));
    align(b.result(i - begin), b.result_sizes(i - begin), b.operand(i));
  }
}

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

// ---- views

// The factors of dimensions whose products are equal: of [6, 4] and [2, 12] they are 2, 3 and 4.
class ReshapeMatcher {
 public:
  ReshapeMatcher(B& b, const Sizes& in, const Sizes& out)
      : b_(b), in_(in), out_(out), in_dims(in.size()), out_dims(out.size()) {
    std::size_t i = 0, j = 0;
    while (i < in.size() && j < out.size()) {
      if (in[i] == 1) {
        ++i;
        continue;
      }
      if (out[j] == 1) {
        ++j;
        continue;
      }
      const std::size_t i0 = i, j0 = j;
      std::int64_t a = in[i++], c = out[j++];
      while (a != c && a > 0 && c > 0 && (a < c ? i < in.size() : j < out.size()))
        (a < c ? a *= in[i++] : c *= out[j++]);
      if (a == c && a != 0)
        match(i0, i, j0, j);
      else {
        i = in.size(), j = out.size();
        match_nothing(i0, j0);
      }
    }
    match_nothing(i, j);
  }

 private:
  // Products of the extents up to each, from the last dimension on: borders of factors.
  static std::vector<std::int64_t> borders(const Sizes& sizes, std::size_t begin, std::size_t end) {
    std::vector<std::int64_t> products{1};
    for (std::size_t i = end; i-- > begin;) products.push_back(products.back() * sizes[i]);
    return products;
  }
  void match(std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    if (i1 == i0 + 1 && j1 == j0 + 1) return void(in_dims[i0] = out_dims[j0] = b_.fresh(in_[i0]));
    auto cuts = borders(in_, i0, i1);
    const auto others = borders(out_, j0, j1);
    cuts.insert(cuts.end(), others.begin(), others.end());
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t k = 1; k < cuts.size(); ++k)
      if (cuts[k] % cuts[k - 1] != 0) return mix(i0, i1, j0, j1);
    Factors factors;  // innermost first
    for (std::size_t k = 1; k < cuts.size(); ++k) factors.push_back(b_.add(cuts[k] / cuts[k - 1]));
    give(in_dims, in_, i0, i1, factors);
    give(out_dims, out_, j0, j1, factors);
  }
  void give(Dims& dims, const Sizes& sizes, std::size_t begin, std::size_t end, const Factors& factors) {
    std::size_t next = 0;
    for (std::size_t i = end; i-- > begin;)
      for (std::int64_t product = 1; product < sizes[i]; product *= b_.extent(factors[next++]))
        dims[i].insert(dims[i].begin(), factors[next]);
  }
  // [6, 4] and [4, 6]: rows of one are no rows of the other. Of extents that data decide nothing is
  // known.
  void mix(std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1) {
    bool is_known = true;
    for (std::size_t i = i0; i < i1; ++i) is_known &= in_[i] >= 0;
    for (std::size_t j = j0; j < j1; ++j) is_known &= out_[j] >= 0;
    const FactorUse use = is_known ? FactorUse::kWhole : FactorUse::kIndexed;
    for (std::size_t i = i0; i < i1; ++i) in_dims[i] = b_.fresh(in_[i], use);
    for (std::size_t j = j0; j < j1; ++j) out_dims[j] = b_.fresh(out_[j], use);
  }
  void match_nothing(std::size_t i, std::size_t j) { mix(i, in_.size(), j, out_.size()); }

  B& b_;
  const Sizes &in_, &out_;

 public:
  Dims in_dims, out_dims;
};

// Equal elements in equal order.
void reshape(B& b) {
  ReshapeMatcher matcher(b, b.sizes(0), b.result_sizes(0));
  b.operand(0) = matcher.in_dims;
  b.result(0) = matcher.out_dims;
}

void bit_view(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const Sizes& sizes = b.result_sizes(0);
  b.operand(0) = dims;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    b.result(0)[i] =
        i < dims.size() && sizes[i] == b.sizes(0).at(i) ? dims[i] : b.fresh(sizes[i], FactorUse::kWhole);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (i >= sizes.size() || sizes[i] != b.sizes(0).at(i)) b.mark(dims[i], FactorUse::kWhole);
}

void permute(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const std::size_t rank = dims.size();
  Dims moved = dims;
  if (b.op().find_param("dims")) {
    const auto order = b.numbers("dims");
    for (std::size_t i = 0; i < rank && i < order.size(); ++i) moved[i] = dims[wrap(order[i], rank)];
  } else if (b.op().find_param("dim0")) {
    if (rank > 0) std::swap(moved[wrap(b.number("dim0", 0), rank)], moved[wrap(b.number("dim1", 0), rank)]);
  } else {
    std::ranges::reverse(moved);
  }
  b.operand(0) = dims;
  b.result(0) = moved;
}

void expand(B& b) {
  const Sizes& sizes = b.result_sizes(0);
  const Dims dims = b.fresh(sizes);
  align(b.operand(0), b.sizes(0), dims);
  b.result(0) = dims;
}

void repeat(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const auto repeats = b.numbers("repeats");
  b.operand(0) = dims;
  for (std::size_t i = 1; i <= b.result(0).size() && i <= repeats.size(); ++i) {
    Factors factors = b.fresh(repeats[repeats.size() - i]);
    if (i <= dims.size())
      factors.insert(factors.end(), dims[dims.size() - i].begin(), dims[dims.size() - i].end());
    b.result(0)[b.result(0).size() - i] = factors;
  }
}

// One place of a dimension, which goes.
void select(B& b) {
  Dims dims = b.fresh(b.sizes(0));
  b.operand(0) = dims;
  if (dims.empty()) return;
  const std::size_t dim = wrap(b.number("dim", 0), dims.size());
  b.mark(dims[dim], FactorUse::kWhole);
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  for (std::size_t r = 0; r < b.result_count(); ++r) b.result(r) = dims;
}

// A dimension of results that keeps its extent keeps its elements.
void slice(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  b.operand(0) = dims;
  if (dims.empty()) return;
  const std::size_t dim = wrap(b.number("dim", 0), dims.size());
  for (std::size_t r = 0; r < b.result_count(); ++r) {
    b.result(r) = dims;
    if (b.result_sizes(r).at(dim) == b.sizes(0).at(dim)) continue;
    b.mark(dims[dim], FactorUse::kWhole);
    b.result(r)[dim] = b.fresh(b.result_sizes(r).at(dim), FactorUse::kWhole);
  }
}

bool are_equal_along(const B& b, std::size_t dim) {
  for (std::size_t r = 1; r < b.result_count(); ++r)
    if (b.result_sizes(r).at(dim) != b.result_sizes(0).at(dim)) return false;
  return b.result_count() > 0;
}

// Equal pieces are blocks: which of them is one factor, the place in it another.
void split(B& b) {
  const std::size_t rank = b.sizes(0).size();
  if (rank == 0) return slice(b);
  const std::size_t dim = wrap(b.number("dim", 0), rank);
  if (!are_equal_along(b, dim)) return slice(b);
  Dims dims = b.fresh(b.sizes(0));
  Dims piece = dims;
  piece[dim] = b.fresh(b.result_sizes(0).at(dim));
  dims[dim] = b.fresh(static_cast<std::int64_t>(b.result_count()), FactorUse::kWhole);
  dims[dim].insert(dims[dim].end(), piece[dim].begin(), piece[dim].end());
  b.operand(0) = dims;
  for (std::size_t r = 0; r < b.result_count(); ++r) b.result(r) = piece;
}

// A dimension of the result that has another extent holds more than the operand.
void pad(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  b.operand(0) = dims;
  b.result(0) = dims;
  const auto amounts = b.numbers("pad");
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    const std::size_t back = i / 2 + 1;
    if (amounts[i] == 0 || back > dims.size()) continue;
    const std::size_t dim = dims.size() - back;
    b.mark(dims[dim], FactorUse::kWhole);
    b.result(0)[dim] = b.fresh(b.result_sizes(0).at(dim), FactorUse::kWhole);
  }
}

// A slice, or what was selected, put in its place of dimension `dim` of the result.
void put_slice(B& b, std::size_t slice, std::optional<std::size_t> around) {
  Dims dims = b.fresh(b.result_sizes(0));
  if (around) align(b.operand(*around), b.sizes(*around), dims);
  b.result(0) = dims;
  if (dims.empty()) return;
  const std::size_t dim = wrap(b.number("dim", 0), dims.size());
  const bool is_selected = b.sizes(slice).size() < dims.size();
  if (!is_selected && b.sizes(slice).at(dim) == b.result_sizes(0).at(dim))
    return align(b.operand(slice), b.sizes(slice), dims);
  b.mark(dims[dim], FactorUse::kWhole);
  if (is_selected)
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  else
    dims[dim] = b.fresh(b.sizes(slice).at(dim), FactorUse::kWhole);
  align(b.operand(slice), b.sizes(slice), dims);
}

void join(B& b) {
  const std::size_t rank = b.result_sizes(0).size();
  if (rank == 0) return;
  const std::size_t dim = wrap(b.number("dim", 0), rank);
  std::vector<std::size_t> items;  // an empty vector joins anything
  for (std::size_t i = 0; i < b.operand_count(); ++i)
    if (b.sizes(i).size() == rank) items.push_back(i);
  if (items.empty()) return;
  Dims dims = b.fresh(b.result_sizes(0));
  const bool are_equal = std::ranges::all_of(
      items, [&](std::size_t i) { return b.sizes(i).at(dim) == b.sizes(items[0]).at(dim); });
  Dims piece = dims;
  if (are_equal) {
    piece[dim] = b.fresh(b.sizes(items[0]).at(dim));
    dims[dim] = b.fresh(static_cast<std::int64_t>(items.size()), FactorUse::kWhole);
    dims[dim].insert(dims[dim].end(), piece[dim].begin(), piece[dim].end());
  } else {
    b.mark(dims[dim], FactorUse::kWhole);
  }
  for (const std::size_t i : items) {
    if (!are_equal) piece[dim] = b.fresh(b.sizes(i).at(dim), FactorUse::kWhole);
    b.operand(i) = piece;
  }
  b.result(0) = dims;
}

void stack(B& b) {
  if (b.operand_count() == 0) return;
  Dims dims = b.fresh(b.sizes(0));
  for (std::size_t i = 0; i < b.operand_count(); ++i) b.operand(i) = dims;
  const std::size_t dim = wrap(b.number("dim", 0), dims.size() + 1);
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(dim),
              b.fresh(b.result_sizes(0).at(dim), FactorUse::kWhole));
  b.result(0) = dims;
}

// flip moves what it names, roll too; with no name roll moves the elements of all dimensions as of
// one.
void reorder(B& b) {
  broadcast(b);
  const std::vector<bool> is_named = dims_named(b, "dims", b.sizes(0).size());
  for (std::size_t i = 0; i < is_named.size(); ++i)
    if (is_named[i]) b.mark(b.operand(0)[i], FactorUse::kWhole);
}

void triangle(B& b) {
  broadcast(b);
  Dims& dims = b.operand(0);
  for (std::size_t i = dims.size() - std::min<std::size_t>(2, dims.size()); i < dims.size(); ++i)
    b.mark(dims[i], FactorUse::kWhole);
}

// ---- rows that data choose

// What an index names: of x[:, i, j], dimensions 1 and 2. The positions broadcast to one shape,
// which stands where the indexed dimensions were, if they follow each other, else in front.
struct Positions {
  std::vector<bool> is_indexed;  // of the dimensions of what is indexed
  Dims shape;
  std::size_t at = 0;  // in the result
  bool has_mask = false;
};

Positions positions_of(B& b, std::size_t param, std::size_t rank) {
  Positions positions{std::vector<bool>(rank), {}, 0, false};
  const auto [begin, end] = b.tensors_of(param);
  Sizes shape;
  std::size_t first = rank, last = 0, count = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t dim = b.place(i);
    positions.has_mask |= b.is_mask(i);
    if (dim < rank) positions.is_indexed[dim] = true, first = std::min(first, dim), last = dim, ++count;
    const Sizes& sizes = b.sizes(i);
    if (sizes.size() > shape.size()) shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    for (std::size_t d = 1; d <= sizes.size(); ++d)
      if (sizes[sizes.size() - d] != 1) shape[shape.size() - d] = sizes[sizes.size() - d];
  }
  positions.at = count > 0 && last - first + 1 == count ? first : 0;
  positions.shape = b.fresh(shape);
  for (std::size_t i = begin; i < end; ++i) align(b.operand(i), b.sizes(i), positions.shape);
  return positions;
}

// `dims` with the positions in place of the dimensions that they index.
Dims indexed(const Dims& dims, const Positions& positions) {
  Dims result;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (!positions.is_indexed[d]) result.push_back(dims[d]);
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(positions.at), positions.shape.begin(),
                positions.shape.end());
  return result;
}

// How many rows a mask chooses depends on the data: nothing is said of the call.
void index_all(B& b) {
  for (std::size_t i = 0; i < b.operand_count(); ++i) b.operand(i) = b.fresh(b.sizes(i), FactorUse::kIndexed);
  for (std::size_t r = 0; r < b.result_count(); ++r)
    b.result(r) = b.fresh(b.result_sizes(r), FactorUse::kIndexed);
}

// Masks lie on the dimensions of what they index.
void index_by_masks(B& b) {
  index_all(b);
  const auto [begin, end] = b.tensors_of(1);
  std::size_t dim = 0, place = 0;
  for (std::size_t i = begin; i < end; ++i) {
    dim += b.place(i) - place;
    place = b.place(i) + 1;
    for (std::size_t d = 0; b.is_mask(i) && d < b.sizes(i).size(); ++d)
      if (b.sizes(i)[d] == b.sizes(0).at(dim + d)) b.operand(i)[d] = b.operand(0)[dim + d];
    dim += b.is_mask(i) ? b.sizes(i).size() : 1;
  }
}

void index(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const Positions positions = positions_of(b, 1, dims.size());
  if (positions.has_mask) return index_by_masks(b);
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (positions.is_indexed[d]) b.mark(dims[d], FactorUse::kIndexed);
  b.operand(0) = dims;
  b.result(0) = indexed(dims, positions);
}

// Where positions go to the same place, the last write or the sum of all stays: pieces of them do
// not add up.
void index_put(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const Positions positions = positions_of(b, 1, dims.size());
  if (positions.has_mask) return index_by_masks(b);
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (positions.is_indexed[d]) b.mark(dims[d], FactorUse::kIndexed);
  for (const Factors& factors : positions.shape) b.mark(factors, FactorUse::kIndexed);
  b.operand(0) = dims;
  b.result(0) = dims;
  const auto values = b.tensor(2);
  if (values) align(b.operand(*values), b.sizes(*values), indexed(dims, positions));
}

// A mask is broadcast with what it picks from.
void masked_rows(B& b) {
  index_all(b);
  if (b.operand_count() > 1) align(b.operand(1), b.sizes(1), b.operand(0));
}

// gather and scatter: dimension `dim` of the value is chosen; along the others the value's first
// rows pair with those of the positions.
void along_positions(B& b, bool writes) {
  const std::size_t index = b.tensor("index").value_or(0), rank = b.sizes(0).size();
  if (rank == 0 || b.sizes(index).size() != rank) return index_all(b);
  const std::size_t dim = wrap(b.number("dim", 0), rank);
  Dims value = b.fresh(b.sizes(0)), positions = b.fresh(b.sizes(index));
  for (std::size_t d = 0; d < rank; ++d) {
    if (d == dim) {
      b.mark(value[d], FactorUse::kIndexed);
      if (writes) b.mark(positions[d], FactorUse::kIndexed);
    } else if (b.sizes(0).at(d) == b.sizes(index).at(d)) {
      positions[d] = value[d];
    } else {
      b.mark(value[d], FactorUse::kWhole);
      b.mark(positions[d], FactorUse::kWhole);
    }
  }
  b.operand(0) = value;
  b.operand(index) = positions;
  b.result(0) = writes ? value : positions;
  const auto source = b.tensor("src");
  if (!source || !writes) return;
  for (std::size_t d = 0; d < rank; ++d) {
    if (b.sizes(*source).at(d) == b.sizes(index).at(d)) {
      b.operand(*source)[d] = positions[d];
    } else {
      b.mark(positions[d], FactorUse::kWhole);
      b.operand(*source)[d] = b.fresh(b.sizes(*source).at(d), FactorUse::kWhole);
    }
  }
}

void gather(B& b) {
  along_positions(b, false);
}
void scatter(B& b) {
  along_positions(b, true);
}

void index_select(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  const std::size_t index = b.tensor("index").value_or(0);
  b.operand(0) = dims;
  if (dims.empty()) return;
  const std::size_t dim = wrap(b.number("dim", 0), dims.size());
  b.mark(dims[dim], FactorUse::kIndexed);
  Dims result = dims;
  result[dim] = b.fresh(b.result_sizes(0).at(dim));
  if (!b.operand(index).empty()) b.operand(index)[0] = result[dim];
  b.result(0) = result;
}

// Rows of the second operand's numbers along dimension 0 of the first.
void embedding(B& b) {
  const Dims table = b.fresh(b.sizes(0), FactorUse::kIndexed), positions = b.fresh(b.sizes(1));
  b.operand(0) = table;
  b.operand(1) = positions;
  if (table.size() != 2) return;
  b.mark(table[1], FactorUse::kPassed);
  Dims result = positions;
  result.push_back(table[1]);
  b.result(0) = result;
}

// Rows of a gradient, added up by the numbers of their rows; scaled by how often a number occurs
// they do not add up.
void embedding_backward(B& b) {
  Dims grad = b.fresh(b.sizes(0));
  const bool is_scaled = b.number("scale_grad_by_freq", 0) != 0;
  for (std::size_t d = 0; d + 1 < grad.size(); ++d)
    b.mark(grad[d], is_scaled ? FactorUse::kReduced : FactorUse::kSummed);
  b.operand(0) = grad;
  align(b.operand(1), b.sizes(1), Dims(grad.begin(), grad.end() - (grad.empty() ? 0 : 1)));
  if (b.result_sizes(0).size() == 2 && !grad.empty())
    b.result(0) = {b.fresh(b.result_sizes(0).at(0), FactorUse::kIndexed), grad.back()};
}

// (destination, positions, rows): rows written along dimension `dim`.
void write_along(B& b, std::size_t dim, std::size_t index, std::optional<std::size_t> rows) {
  const Dims dims = b.fresh(b.sizes(0));
  b.operand(0) = dims;
  b.result(0) = dims;
  if (dims.empty()) return;
  b.mark(dims[dim], FactorUse::kIndexed);
  // Positions of rows, or of each element.
  Dims positions = b.fresh(b.sizes(index), FactorUse::kIndexed);
  const Factors written = positions.empty() ? Factors() : positions[0];
  for (std::size_t d = 0; d < positions.size() && positions.size() == dims.size(); ++d)
    if (d != dim && b.sizes(index).at(d) == b.sizes(0).at(d)) positions[d] = dims[d];
  b.operand(index) = positions;
  if (!rows) return;
  Dims source = dims;
  source[dim] = written;
  align(b.operand(*rows), b.sizes(*rows), source);
}

void index_add(B& b) {
  const std::size_t rank = b.sizes(0).size();
  write_along(b, wrap(b.number("dim", 0), rank), b.tensor("index").value_or(0), b.tensor("source"));
}

void row_scatter(B& b) {
  write_along(b, 0, 1, 2);
}

// The last dimension of what is searched in is needed whole; others pair with the elements'.
void search(B& b) {
  const bool is_second = b.op().params[0].name == "sorted_sequence";
  const std::size_t self = is_second ? 1 : 0, sequence = 1 - self;
  if (b.operand_count() < 2) return index_all(b);
  const Dims dims = b.fresh(b.sizes(self));
  b.operand(self) = dims;
  b.result(0) = dims;
  Dims& in = b.operand(sequence);
  if (in.empty()) return;
  if (in.size() == dims.size()) in = dims;
  in.back() = b.fresh(b.sizes(sequence).back(), FactorUse::kWhole);
  for (std::size_t i = 2; i < b.operand_count(); ++i) b.operand(i) = in;
}

// Counts of parts add up where the borders of what is counted are given.
void count(B& b) {
  const MappedCall::Argument *low = b.find("min"), *high = b.find("max");
  const bool is_given = low != nullptr && high != nullptr && low->number != high->number;
  for (std::size_t i = 0; i < b.operand_count(); ++i)
    b.operand(i) = i > 0 && b.sizes(i) == b.sizes(0)
                       ? b.operand(0)  // weights
                       : b.fresh(b.sizes(i), is_given ? FactorUse::kSummed : FactorUse::kReduced);
  b.result(0) = b.fresh(b.result_sizes(0), FactorUse::kWhole);
}

// How many classes there are, the data say where no number does.
void one_hot(B& b) {
  const bool is_counted = b.number("num_classes", -1) < 0;
  Dims dims = b.fresh(b.sizes(0), is_counted ? FactorUse::kReduced : FactorUse::kPassed);
  b.operand(0) = dims;
  dims.push_back(b.fresh(b.result_sizes(0).at(b.sizes(0).size()), FactorUse::kWhole));
  b.result(0) = dims;
}

// ---- products

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

// ---- convolutions: [batch, channels, extents..]

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

// Which gradient is which is not known.
void mix_all(B& b) {
  for (std::size_t i = 0; i < b.operand_count(); ++i) b.operand(i) = b.fresh(b.sizes(i), FactorUse::kWhole);
  for (std::size_t r = 0; r < b.result_count(); ++r)
    b.result(r) = b.fresh(b.result_sizes(r), FactorUse::kWhole);
}

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

// ---- losses: `reduction` is 0 none, 1 mean, 2 sum

FactorUse use_of_reduction(const B& b) {
  const std::int64_t reduction = b.number("reduction", 1);
  return reduction == 2 ? FactorUse::kSummed : reduction == 1 ? FactorUse::kReduced : FactorUse::kPassed;
}

void loss(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
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

// ---- across ranks

// One of the rows' dimension is `ranks` times the other.
void gather_ranks(B& b, bool scatters) {
  const auto [begin, end] = b.tensors_of(0);
  for (std::size_t i = begin; i < end && i - begin < b.result_count(); ++i) {
    const Sizes &in = b.sizes(i), &out = b.result_sizes(i - begin);
    Dims few = b.fresh(scatters ? out : in);
    Dims many = few;
    const std::int64_t fewer = few.empty() ? 0 : (scatters ? out : in)[0],
                       more = few.empty() ? 0 : (scatters ? in : out)[0];
    if (fewer > 0 && more % fewer == 0 && more != fewer) {
      const Factors ranks = b.fresh(more / fewer, FactorUse::kWhole);
      many[0].insert(many[0].begin(), ranks.begin(), ranks.end());
    }
    b.operand(i) = scatters ? many : few;
    b.result(i - begin) = scatters ? few : many;
  }
}

// Which rank has which rows afterwards is by the split sizes.
void exchange(B& b) {
  const Dims dims = b.fresh(b.sizes(0));
  b.operand(0) = dims;
  if (dims.empty()) return;
  b.mark(dims[0], FactorUse::kIndexed);
  Dims result = dims;
  if (b.result_sizes(0).at(0) != b.sizes(0).at(0))
    result[0] = b.fresh(b.result_sizes(0).at(0), FactorUse::kIndexed);
  b.result(0) = result;
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

void unslice(B& b) {
  put_slice(b, 0, std::nullopt);
}
void write_slice(B& b) {
  put_slice(b, 1, 0);
}
void all_gather(B& b) {
  gather_ranks(b, false);
}
void reduce_scatter(B& b) {
  gather_ranks(b, true);
}

// As large as the first operand; further operands are kept alive, no more.
void first_alone(B& b) {
  b.result(0) = b.fresh(b.result_sizes(0));
  align(b.operand(0), b.sizes(0), b.result(0));
}

// How a family's calls are mapped; no function: nothing is known.
struct FamilyMapping {
  void (*map)(MappingBuilder&) = nullptr;
  bool passes_all = false;  // every factor of every call is passed
};

FamilyMapping mapping_of(OpFamily family) {
  switch (family) {
    case OpFamily::kElementwise:
    case OpFamily::kIdentity:
    case OpFamily::kCast:
    case OpFamily::kTransfer:
    case OpFamily::kAllReduce:
    case OpFamily::kBroadcast:
      return {elementwise, true};
    case OpFamily::kWait:
    case OpFamily::kLike:
      return {first_alone, true};
    case OpFamily::kSum:
      return {sum};
    case OpFamily::kReduce:
    case OpFamily::kTruth:
      return {reduce_otherwise};
    case OpFamily::kScan:
      return {scan};
    case OpFamily::kNormalise:
    case OpFamily::kSort:
      return {normalise};
    case OpFamily::kHalve:
    case OpFamily::kHalveBackward:
    case OpFamily::kTopK:
      return {remake};
    case OpFamily::kNormaliseLast:
      return {normalise_last};
    case OpFamily::kNormaliseLastBackward:
      return {normalise_last_backward};
    case OpFamily::kReshape:
      return {reshape};
    case OpFamily::kUnsqueeze:
    case OpFamily::kSqueeze:
      return {reshape, true};
    case OpFamily::kBitView:
      return {bit_view};
    case OpFamily::kPermute:
      return {permute, true};
    case OpFamily::kExpand:
      return {expand, true};
    case OpFamily::kRepeat:
      return {repeat};
    case OpFamily::kSelect:
    case OpFamily::kUnbind:
      return {select};
    case OpFamily::kSlice:
      return {slice};
    case OpFamily::kSplit:
      return {split};
    case OpFamily::kPad:
      return {pad};
    case OpFamily::kUnslice:
      return {unslice};
    case OpFamily::kSliceWrite:
      return {write_slice};
    case OpFamily::kJoin:
      return {join};
    case OpFamily::kStack:
      return {stack};
    case OpFamily::kReorder:
      return {reorder};
    case OpFamily::kSolve:
      return {solve};
    case OpFamily::kTriangle:
      return {triangle};
    case OpFamily::kIndex:
      return {index};
    case OpFamily::kGather:
      return {gather};
    case OpFamily::kIndexSelect:
      return {index_select};
    case OpFamily::kEmbedding:
      return {embedding};
    case OpFamily::kEmbeddingBackward:
      return {embedding_backward};
    case OpFamily::kIndexPut:
      return {index_put};
    case OpFamily::kScatter:
    case OpFamily::kScatterAdd:
      return {scatter};
    case OpFamily::kRowScatter:
      return {row_scatter};
    case OpFamily::kIndexAdd:
    case OpFamily::kIndexCopy:
      return {index_add};
    case OpFamily::kRepeatRows:
      return {index_all};
    case OpFamily::kMaskedRows:
      return {masked_rows};
    case OpFamily::kSearch:
      return {search};
    case OpFamily::kCount:
      return {count};
    case OpFamily::kOneHot:
      return {one_hot};
    case OpFamily::kMatmul:
      return {matmul};
    case OpFamily::kAddMatmul:
      return {add_matmul};
    case OpFamily::kGroupedMatmul:
      return {grouped_matmul};
    case OpFamily::kConvolution:
      return {convolution};
    case OpFamily::kConvolutionBackward:
      return {convolution_backward};
    case OpFamily::kLoss:
      return {loss};
    case OpFamily::kLossBackward:
      return {loss_backward};
    case OpFamily::kClassLoss:
      return {class_loss};
    case OpFamily::kClassLossBackward:
      return {class_loss_backward};
    case OpFamily::kFactory:
    case OpFamily::kNew:
      return {made_of_nothing, true};
    case OpFamily::kIota:
      return {made_by_place};
    case OpFamily::kAllGather:
      return {all_gather};
    case OpFamily::kReduceScatter:
      return {reduce_scatter};
    case OpFamily::kAllToAll:
      return {exchange};
    case OpFamily::kGatherMatmul:
    case OpFamily::kMatmulScatter:
    case OpFamily::kGatherPair:
    case OpFamily::kScatterPair:
    case OpFamily::kAttention:
    case OpFamily::kFlexAttention:
    case OpFamily::kRandom:
    case OpFamily::kSize:
    case OpFamily::kNumber:
    case OpFamily::kComparison:
    case OpFamily::kHostRead:
    case OpFamily::kCheck:
    case OpFamily::kElement:
    case OpFamily::kMesh:
    case OpFamily::kOpaque:
      return {};
  }
  return {};
}

// Whether the families' functions find the operands and results that they look for.
bool has_tensors(const MappedCall& call) {
  const bool needs_operand = !call.op->params.empty() && call.op->params[0].type == "Tensor";
  return (!needs_operand || !call.tensors.empty()) && (call.op->returns.empty() || !call.results.empty());
}

}  // namespace

CallMapping map_dimensions(const MappedCall& call) {
  const FamilyMapping family = mapping_of(call.op->family);
  if (family.map == nullptr || !has_tensors(call)) return {};
  MappingBuilder builder(call);
  try {
    family.map(builder);
  } catch (const std::out_of_range&) {
    return {};
  }
  return builder.keeps_ranks() ? builder.finish() : CallMapping();
}

bool passes_all(OpFamily family) {
  return mapping_of(family).passes_all;
}

namespace {

class NodeMapper {
 public:
  NodeMapper(const Graph& graph, const Node& node, Facts& facts)
      : context_(*graph.context), body_(graph.step()), node_(node), facts_(facts) {
    mapped_.call.op = node.op;
    const BoundArgs bound = bind_args(context_, node);
    for (std::size_t p = 0; p < node.op->params.size(); ++p)
      mapped_.call.arguments.push_back(read(bound.values[p], p));
    if (node.type) add_results(node.type);
  }
  MappedNode take() { return std::move(mapped_); }

 private:
  Sizes sizes_of(const TensorType& type) {
    Sizes sizes;
    // Different expressions without a number are different extents.
    for (const ExprId extent : type.sizes) {
      const PolyId poly = facts_.normalize(extent);
      sizes.push_back(facts_.hint(poly).value_or(-1 - static_cast<std::int64_t>(poly.index())));
    }
    return sizes;
  }
  const TensorType* tensor(Arg arg) const {
    return arg.is_node() ? tensor_of(context_, body_.nodes[arg.as_node()].type) : nullptr;
  }
  bool add_tensor(Arg arg, std::uint32_t place) {
    const TensorType* type = tensor(arg);
    if (type == nullptr) return false;
    mapped_.call.tensors.push_back(sizes_of(*type));
    mapped_.call.is_mask.push_back(type->dtype == DType::kBool);
    mapped_.call.places.push_back(place);
    mapped_.operands.push_back(arg.as_node());
    return true;
  }
  void add_results(TypeId id) {
    const Type& type = context_.types[id];
    if (const TensorType* tensor = tensor_of(context_, id))
      mapped_.call.results.push_back(sizes_of(*tensor));
    else
      for (const TypeId element : type.elements) add_results(element);
  }
  MappedCall::Argument read(Arg arg, std::size_t param) {
    MappedCall::Argument argument;
    MappedCall& call = mapped_.call;
    if (tensor(arg) != nullptr) {
      argument.kind = Kind::kTensor;
      argument.begin = static_cast<std::uint32_t>(call.tensors.size());
      add_tensor(arg, 0);
      argument.end = argument.begin + 1;
    } else if (arg.is_int()) {
      argument = {Kind::kNumber, arg.as_int(), 0, 0};
    } else if (arg.is(ArgKind::kBool)) {
      argument = {Kind::kNumber, arg.as_bool() ? 1 : 0, 0, 0};
    } else if (arg.is(ArgKind::kReal)) {
      argument = {Kind::kNumber, std::llround(arg.as_real()), 0, 0};
    } else if (arg.is_list()) {
      argument = read_list(arg, param);
    } else if (!arg.is_none()) {
      argument.kind = Kind::kOther;
    }
    return argument;
  }
  MappedCall::Argument read_list(Arg list, std::size_t param) {
    MappedCall::Argument argument;
    MappedCall& call = mapped_.call;
    const bool is_tensors = node_.op->params[param].type.starts_with("Tensor");
    argument.kind = is_tensors ? Kind::kTensors : Kind::kNumbers;
    argument.begin = static_cast<std::uint32_t>(is_tensors ? call.tensors.size() : call.numbers.size());
    for (std::uint32_t place = 0; const Arg item : context_.args.children(list)) {
      if (is_tensors)
        add_tensor(item, place);
      else
        call.numbers.push_back(number_of(item));
      ++place;
    }
    argument.end = static_cast<std::uint32_t>(is_tensors ? call.tensors.size() : call.numbers.size());
    return argument;
  }
  std::int64_t number_of(Arg item) {
    if (item.is_int()) return item.as_int();
    if (item.is(ArgKind::kBool)) return item.as_bool() ? 1 : 0;
    if (!item.is_node()) return -1;
    const TypeId type = body_.nodes[item.as_node()].type;
    if (!type || context_.types[type].kind != TypeKind::kScalar || !context_.types[type].expr) return -1;
    return facts_.hint(context_.types[type].expr).value_or(-1);
  }

  const Context& context_;
  const Body& body_;
  const Node& node_;
  Facts& facts_;
  MappedNode mapped_;
};

}  // namespace

std::optional<MappedNode> mapped_node(const Graph& graph, const Node& node, Facts& facts) {
  if (node.op == nullptr) return std::nullopt;
  return NodeMapper(graph, node, facts).take();
}

std::string print_mapping(const MappedCall& call, const CallMapping& mapping) {
  if (!mapping.is_known()) return "not known";
  const auto print_tensor = [](std::size_t rank, auto&& factors_of) {
    std::string text = "(";
    for (std::size_t d = 0; d < rank; ++d) {
      const auto factors = factors_of(d);
      text += fmt::format("{}{}", d == 0 ? "" : ", ",
                          factors.empty() ? "-" : fmt::format("{}", fmt::join(factors, " ")));
    }
    return text + ")";
  };
  std::string text;
  for (std::size_t p = 0; p < call.arguments.size(); ++p) {
    const MappedCall::Argument& argument = call.arguments[p];
    if (argument.kind != Kind::kTensor && argument.kind != Kind::kTensors) continue;
    for (std::size_t i = argument.begin; i < argument.end; ++i)
      text += fmt::format(
          "{}: {}  ", call.op->params[p].name,
          print_tensor(mapping.operand_rank(i), [&](std::size_t d) { return mapping.operand(i, d); }));
  }
  text += "->";
  for (std::size_t r = 0; r < mapping.result_count(); ++r)
    text += " " + print_tensor(mapping.result_rank(r), [&](std::size_t d) { return mapping.result(r, d); });
  for (Factor f = 0; f < mapping.factor_count(); ++f)
    if (mapping.use(f) != FactorUse::kPassed)
      text += fmt::format("{}{} is {}", text.find(" is ") == text.npos ? "    " : ", ", f,
                          name_of(mapping.use(f)));
  return text;
}

}  // namespace epweave
