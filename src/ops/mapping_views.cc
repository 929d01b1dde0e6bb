// Views, slices, joins, and what moves elements by their place.
#include "ops/mapping_rules.h"

#include <algorithm>

namespace epweave::mapping {

namespace {

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

}  // namespace

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

namespace {

bool are_equal_along(const B& b, std::size_t dim) {
  for (std::size_t r = 1; r < b.result_count(); ++r)
    if (b.result_sizes(r).at(dim) != b.result_sizes(0).at(dim)) return false;
  return b.result_count() > 0;
}

}  // namespace

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

namespace {

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

}  // namespace

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

void unslice(B& b) {
  put_slice(b, 0, std::nullopt);
}

void write_slice(B& b) {
  put_slice(b, 1, 0);
}

}  // namespace epweave::mapping
