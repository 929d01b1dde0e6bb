// Rows that data choose, and rows of other ranks.
#include "ops/mapping_rules.h"

#include <algorithm>

namespace epweave::mapping {

namespace {

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

}  // namespace

// How many rows a mask chooses depends on the data: nothing is said of the call.
void index_all(B& b) {
  for (std::size_t i = 0; i < b.operand_count(); ++i) b.operand(i) = b.fresh(b.sizes(i), FactorUse::kIndexed);
  for (std::size_t r = 0; r < b.result_count(); ++r)
    b.result(r) = b.fresh(b.result_sizes(r), FactorUse::kIndexed);
}

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

void all_gather(B& b) {
  gather_ranks(b, false);
}

void reduce_scatter(B& b) {
  gather_ranks(b, true);
}

// Ranks exchange along one dimension of both tensors, which is needed whole. The others go
// together.
void exchange_pair(B& b) {
  const auto exchanged = [&](std::size_t operand) {
    return wrap(b.number("seq_dim", 0), b.sizes(operand).size());
  };
  const Sizes& front = b.sizes(0);
  const Dims first = b.fresh(front);
  b.mark(first[exchanged(0)], FactorUse::kWhole);
  for (std::size_t i = 0; i < b.operand_count() && i < b.result_count(); ++i) {
    const Sizes& sizes = b.sizes(i);
    Dims dims;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      dims.push_back(d < front.size() && sizes[d] == front[d] ? first[d] : b.fresh(sizes[d]));
    b.mark(dims[exchanged(i)], FactorUse::kWhole);
    b.operand(i) = dims;
    dims[exchanged(i)] = b.fresh(b.result_sizes(i).at(exchanged(i)), FactorUse::kWhole);
    b.result(i) = dims;
  }
}

}  // namespace epweave::mapping
