// Views: new sizes and strides of the same storage; and ops that view where they can (reshape).
#include <algorithm>
#include <limits>

#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

// The target shape with its -1 filled in.
Dims complete_shape(TypeRuleCall& call, const TensorType& self, std::size_t param) {
  Dims shape = call.extents(param);
  const ExprId minus_one = call.number(-1);
  const auto hole = std::find(shape.begin(), shape.end(), minus_one);
  const ExprId numel = product(call.facts, self.sizes);
  for (ExprId size : shape)
    if (size != minus_one && call.facts.at_least(minus_one, size)) call.mismatch("size {}", call.text(size));
  if (hole == shape.end()) {
    const ExprId wanted = product(call.facts, shape);
    if (call.facts.differ(numel, wanted))
      call.mismatch("{} elements do not make a shape of {}", call.text(numel), call.text(wanted));
    return shape;
  }
  *hole = call.number(1);
  const ExprId rest = product(call.facts, shape);
  ExprPool& pool = call.exprs;
  const auto total = pool.constant(numel), known = pool.constant(rest);
  if (total && known && (*known == 0 || *total % *known != 0))
    call.mismatch("{} elements do not make a shape with a multiple of {}", *total, *known);
  const auto quotient = pool.divide_exactly(call.facts.normalize(numel), call.facts.normalize(rest));
  *hole = quotient ? call.facts.expr(*quotient) : pool.floordiv(numel, rest);
  return shape;
}

// One piece [start, start + length) of a dimension.
TypeId piece(TypeRuleCall& call, const TensorType& self, std::size_t dim, ExprId start, ExprId length) {
  Dims sizes = self.sizes;
  sizes[dim] = length;
  const ExprId offset = call.exprs.add(call.offset_of(self), call.exprs.mul(start, self.strides[dim]));
  return call.view(self, std::move(sizes), self.strides, offset);
}

std::vector<TypeId> pieces(TypeRuleCall& call, const TensorType& self, std::size_t dim,
                           std::span<const ExprId> lengths) {
  std::vector<TypeId> result;
  result.reserve(lengths.size());
  ExprId start = call.number(0);
  for (ExprId length : lengths) {
    result.push_back(piece(call, self, dim, start, length));
    start = call.exprs.add(start, length);
  }
  return result;
}

constexpr std::int64_t kMostPieces = 1 << 20;  // more is a broken file

// Lengths of pieces of `length` each, the last one shorter.
Dims even_lengths(TypeRuleCall& call, ExprId extent, ExprId length) {
  if (call.facts.at_least(call.number(0), length)) call.mismatch("pieces of {}", call.text(length));
  ExprPool& pool = call.exprs;
  // Pieces of s//2 in s: two of them.
  const PolyId whole = call.facts.normalize(extent), piece_length = call.facts.normalize(length);
  if (const auto even = pool.divide_exactly(whole, piece_length))
    if (const auto n = pool.constant(*even); n && *n > 0 && !pool.constant(whole))
      return Dims(static_cast<std::size_t>(*n), length);
  const ExprId count = pool.floordiv(pool.sub(pool.add(extent, length), call.number(1)), length);
  const auto n = pool.constant(call.facts.normalize(count));
  if (!n)
    call.mismatch("the number of pieces of {} in {} is not known", call.text(length), call.text(extent));
  if (*n > kMostPieces) call.mismatch("{} pieces", *n);
  if (*n <= 1) return {extent};  // an extent of 0 is one piece
  Dims lengths(static_cast<std::size_t>(*n), length);
  lengths.back() = pool.sub(extent, pool.mul(length, call.number(*n - 1)));
  return lengths;
}

// The most that a sum of multiples of ranged symbols can be: a rank's coordinate is below its
// axis's extent.
std::optional<std::int64_t> greatest(TypeRuleCall& call, ExprId index) {
  const PolyId poly = call.exprs.poly(index);
  for (const Term& term : call.exprs[poly].terms)
    if (term.coefficient.num < 0 || term.atoms.size() > 1) return std::nullopt;
  const auto most = call.exprs.evaluate(poly, [&](StringId name) -> std::optional<std::int64_t> {
    for (const Symbol& symbol : call.graph.symbols)
      if (symbol.name == name && symbol.upper) return call.exprs.constant(*symbol.upper);
    return std::nullopt;
  });
  if (!most || !most->is_integer()) return std::nullopt;
  return most->num;
}

bool stays_within(TypeRuleCall& call, ExprId index, ExprId extent) {
  const auto bound = call.exprs.constant(extent);
  if (!bound) return false;
  const auto most = greatest(call, index);
  return most && *most <= *bound;
}

// start or end of a slice: None and out-of-range values clamped to [0, extent].
ExprId clamp_index(TypeRuleCall& call, ExprId index, ExprId extent) {
  Facts& facts = call.facts;
  const ExprId zero = call.number(0);
  if (auto number = call.exprs.constant(index); number ? *number < 0 : facts.at_least(call.number(-1), index))
    index = call.exprs.add(index, extent);
  const bool is_end =
      call.exprs.constant(index) == std::numeric_limits<std::int64_t>::max();  // of any extent
  if (is_end || facts.at_least(index, extent)) return extent;
  if (facts.at_least(zero, index)) return zero;
  if (!facts.at_least(index, zero)) index = call.exprs.max(zero, index);
  const bool is_within = facts.at_least(extent, index) || stays_within(call, index, extent);
  return is_within ? index : call.exprs.min(index, extent);
}

struct Slice {
  std::size_t dim;
  ExprId start, length;
  ExprId step;
};

// Parameters (dim, start, end, step) from `first` on.
Slice slice_of(TypeRuleCall& call, const TensorType& self, std::size_t first) {
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor cannot be sliced");
  Slice slice;
  slice.dim = call.dim(first, self.rank());
  const ExprId extent = self.sizes[slice.dim];
  slice.start = clamp_index(call, call.has(first + 1) ? call.extent(first + 1) : call.number(0), extent);
  ExprId end = call.has(first + 2) ? clamp_index(call, call.extent(first + 2), extent) : extent;
  if (!call.facts.at_least(end, slice.start)) end = call.exprs.max(slice.start, end);
  const std::int64_t step = call.integer(first + 3);
  if (step <= 0) call.mismatch("step {} is not positive", step);
  slice.step = call.number(step);
  slice.length = ceil_div(call.facts, call.exprs.sub(end, slice.start), step);
  return slice;
}

// The symbol that the node binds at this path of its value: an extent, or where it starts.
ExprId symbol_at(TypeRuleCall& call, const Binding& binding, std::string_view method,
                 std::optional<std::size_t> index) {
  const auto path = call.context.args[binding.path];
  if (path.size() != (index ? 2u : 1u)) return {};
  const auto entry = [&](Arg key, std::string_view name) {
    if (!key.is(ArgKind::kDict)) return Arg::none();
    const auto items = call.context.args.children(key);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].is(ArgKind::kText) && call.context.text(items[i].as_name()) == name) return items[i + 1];
    return Arg::none();
  };
  const Arg name = entry(path[0], "name");
  if (!name.is(ArgKind::kText) || call.context.text(name.as_name()) != method) return {};
  if (index) {
    const Arg at = entry(path[1], "idx");
    if (!at.is_int() || at.as_int() != static_cast<std::int64_t>(*index)) return {};
  }
  return call.exprs.from_poly(call.exprs.poly_symbol(binding.symbol));
}

// A piece of `self` in dimension `dim` whose length or place is data: torch gives each a symbol of
// its own, which the node binds, where the arguments do not say it.
struct PieceRange {
  ExprId length, offset;
};
PieceRange place_of(TypeRuleCall& call, std::size_t dim, ExprId length, ExprId offset) {
  PieceRange place{length, offset};
  if (!call.node.extra) return place;
  for (const Binding& binding : call.node.extra->bindings) {
    const ExprId of_size = symbol_at(call, binding, "size", dim),
                 of_offset = symbol_at(call, binding, "storage_offset", std::nullopt);
    if (of_size && length && !call.exprs.constant(length)) place.length = of_size;
    if (of_offset && !call.exprs.constant(offset)) place.offset = of_offset;
  }
  return place;
}

std::size_t insert_dim(TypeRuleCall& call, std::size_t param, std::size_t rank) {
  return call.dim(param, rank + 1);
}

TypeId squeeze_dims(TypeRuleCall& call, std::span<const std::size_t> dims) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims sizes, strides;
  for (std::size_t i = 0; i < self.rank(); ++i) {
    const bool is_named = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (is_named && is_one(call.facts, self.sizes[i])) continue;
    sizes.push_back(self.sizes[i]);
    strides.push_back(self.strides[i]);
  }
  return call.view(self, std::move(sizes), std::move(strides));
}

TypeId permuted(TypeRuleCall& call, const TensorType& self, std::span<const std::size_t> order) {
  Dims sizes, strides;
  for (std::size_t dim : order) {
    sizes.push_back(self.sizes[dim]);
    strides.push_back(self.strides[dim]);
  }
  return call.view(self, std::move(sizes), std::move(strides));
}

std::vector<std::size_t> identity(std::size_t rank) {
  std::vector<std::size_t> order(rank);
  for (std::size_t i = 0; i < rank; ++i) order[i] = i;
  return order;
}

}  // namespace

TypeId alias(TypeRuleCall& call) {
  return call.same(call.tensor(std::size_t{0}));
}

// view, _unsafe_view: parameter 1 is the shape.
TypeId view(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims shape = complete_shape(call, self, 1);
  auto strides = view_strides(call.facts, layout_of(self), shape);
  if (!strides)
    call.mismatch("{} has no view of that shape without a copy", print_type(call.context, call.same(self)));
  return call.view(self, std::move(shape), std::move(*strides));
}

TypeId reshape(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims shape = complete_shape(call, self, 1);
  if (auto strides = view_strides(call.facts, layout_of(self), shape))
    return call.view(self, std::move(shape), std::move(*strides));
  return call.contiguous(self.dtype, std::move(shape), self.device);
}

// reshape, always to new storage.
TypeId reshape_copy(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype, complete_shape(call, self, 1), self.device);
}

TypeId expand(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims shape = call.extents(1);
  if (shape.size() < self.rank()) call.mismatch("{} dimensions do not fit {}", self.rank(), shape.size());
  const std::size_t added = shape.size() - self.rank();
  const ExprId minus_one = call.number(-1), zero = call.number(0);
  Dims strides(shape.size(), zero);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i < added) {
      // A new dimension of extent 1 is laid out around the next one (at::infer_expand_geometry).
      if (shape[i] == minus_one) call.mismatch("-1 for a new dimension");
      continue;
    }
    const ExprId size = self.sizes[i - added];
    if (shape[i] == minus_one) shape[i] = size;
    const bool is_stretched = is_one(call.facts, size) && !is_one(call.facts, shape[i]);
    if (!is_stretched) {
      call.check_equal(size, shape[i], "sizes");
      strides[i] = self.strides[i - added];
    }
  }
  for (std::size_t i = added; i-- > 0;)
    if (is_one(call.facts, shape[i]))
      strides[i] = i + 1 < shape.size() ? call.exprs.mul(shape[i + 1], strides[i + 1]) : call.number(1);
  return call.view(self, std::move(shape), std::move(strides));
}

TypeId permute(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::vector<std::size_t> order = call.dims(1, self.rank());
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != identity(self.rank()))
    call.mismatch("the dimensions are not a permutation of {}", self.rank());
  return permuted(call, self, order);
}

TypeId transpose(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0) return call.same(self);
  std::vector<std::size_t> order = identity(self.rank());
  std::swap(order[call.dim(1, self.rank())], order[call.dim(2, self.rank())]);
  return permuted(call, self, order);
}

TypeId t(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() > 2) call.mismatch("{} dimensions, at most 2", self.rank());
  std::vector<std::size_t> order = identity(self.rank());
  std::reverse(order.begin(), order.end());
  return permuted(call, self, order);
}

TypeId slice(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Slice s = slice_of(call, self, 1);
  Dims sizes = self.sizes, strides = self.strides;
  const ExprId offset = call.exprs.add(call.offset_of(self), call.exprs.mul(s.start, strides[s.dim]));
  const PieceRange place = place_of(call, s.dim, s.length, offset);
  sizes[s.dim] = place.length;
  strides[s.dim] = call.exprs.mul(strides[s.dim], s.step);
  return call.view(self, std::move(sizes), std::move(strides), place.offset);
}

TypeId slice_copy(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Slice s = slice_of(call, self, 1);
  Dims sizes = self.sizes;
  sizes[s.dim] = s.length;
  return call.contiguous(self.dtype, std::move(sizes), self.device);
}

TypeId narrow(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim(1, self.rank());
  return piece(call, self, dim, call.extent(2), call.extent(3));
}

TypeId select(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor has no rows");
  const std::size_t dim = call.dim(1, self.rank());
  ExprId index = call.extent(2);
  if (auto number = call.exprs.constant(index); number && *number < 0)
    index = call.exprs.add(index, self.sizes[dim]);
  if (call.facts.at_least(index, self.sizes[dim]) || call.facts.at_least(call.number(-1), index))
    call.mismatch("index {} is outside {}", call.text(index), call.text(self.sizes[dim]));
  const ExprId offset = call.exprs.add(call.offset_of(self), call.exprs.mul(index, self.strides[dim]));
  Dims sizes = self.sizes, strides = self.strides;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
  const PieceRange place = place_of(call, self.rank(), {}, offset);  // its one row has no extent
  return call.view(self, std::move(sizes), std::move(strides), place.offset);
}

TypeId squeeze(TypeRuleCall& call) {
  return squeeze_dims(call, identity(call.tensor(std::size_t{0}).rank()));
}

TypeId squeeze_dim(TypeRuleCall& call) {
  return squeeze_dims(call, call.dims(1, call.tensor(std::size_t{0}).rank()));
}

TypeId unsqueeze(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const auto dim = static_cast<std::ptrdiff_t>(insert_dim(call, 1, self.rank()));
  Dims sizes = self.sizes, strides = self.strides;
  const bool is_last = dim == static_cast<std::ptrdiff_t>(self.rank());
  const auto at = static_cast<std::size_t>(dim);
  const ExprId stride = is_last ? call.number(1) : call.exprs.mul(sizes[at], strides[at]);
  sizes.insert(sizes.begin() + dim, call.number(1));
  strides.insert(strides.begin() + dim, stride);
  return call.view(self, std::move(sizes), std::move(strides));
}

TypeId unbind(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim(1, self.rank());
  const auto count = call.exprs.constant(call.facts.normalize(self.sizes[dim]));
  if (!count) call.mismatch("the extent {} is not a number", call.text(self.sizes[dim]));
  Dims sizes = self.sizes, strides = self.strides;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
  if (*count > kMostPieces) call.mismatch("{} pieces", *count);
  std::vector<TypeId> rows;
  for (std::int64_t i = 0; i < *count; ++i) {
    const ExprId offset =
        call.exprs.add(call.offset_of(self), call.exprs.mul(call.number(i), self.strides[dim]));
    rows.push_back(call.view(self, sizes, strides, offset));
  }
  return call.list_of(std::move(rows));
}

TypeId split(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim(2, self.rank());
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor cannot be split");
  return call.list_of(pieces(call, self, dim, even_lengths(call, self.sizes[dim], call.extent(1))));
}

TypeId split_with_sizes(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Dims lengths = call.extents(1);
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor cannot be split");
  const std::size_t dim = call.dim(2, self.rank());
  const ExprId total = sum(call.facts, lengths);
  if (call.facts.differ(total, self.sizes[dim]))
    call.mismatch("the sizes sum to {}, the dimension has {}", call.text(total), call.text(self.sizes[dim]));
  return call.list_of(pieces(call, self, dim, lengths));
}

TypeId split_with_sizes_copy(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim(2, self.rank());
  std::vector<TypeId> parts;
  for (ExprId length : call.extents(1)) {
    Dims sizes = self.sizes;
    sizes[dim] = length;
    parts.push_back(call.contiguous(self.dtype, std::move(sizes), self.device));
  }
  return call.list_of(std::move(parts));
}

// chunk(self, chunks, dim).
TypeId chunk(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim(2, self.rank());
  const std::int64_t count = call.integer(1);
  if (count <= 0) call.mismatch("{} chunks", count);
  const ExprId length = ceil_div(call.facts, self.sizes[dim], count);
  return call.list_of(pieces(call, self, dim, even_lengths(call, self.sizes[dim], length)));
}

// as_strided(self, size, stride, storage_offset=None): the layout is the caller's.
TypeId as_strided(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims sizes = call.extents(1), strides = call.extents(2);
  if (sizes.size() != strides.size()) call.mismatch("{} sizes and {} strides", sizes.size(), strides.size());
  const ExprId offset = call.has(3) ? call.extent(3) : call.offset_of(self);
  return call.view(self, std::move(sizes), std::move(strides), offset);
}

TypeId diagonal(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::int64_t shift = call.integer(1);
  if (shift < -INT32_MAX || shift > INT32_MAX) call.mismatch("diagonal {}", shift);
  const std::size_t a = call.dim(2, self.rank()), b = call.dim(3, self.rank());
  if (a == b) call.mismatch("the two dimensions are the same");
  Dims sizes, strides;
  for (std::size_t i = 0; i < self.rank(); ++i) {
    if (i == a || i == b) continue;
    sizes.push_back(self.sizes[i]);
    strides.push_back(self.strides[i]);
  }
  ExprPool& pool = call.exprs;
  const ExprId skipped = call.number(shift < 0 ? -shift : shift);
  const ExprId rows = shift < 0 ? pool.sub(self.sizes[a], skipped) : self.sizes[a];
  const ExprId columns = shift > 0 ? pool.sub(self.sizes[b], skipped) : self.sizes[b];
  sizes.push_back(pool.max(call.number(0), pool.min(rows, columns)));
  strides.push_back(pool.add(self.strides[a], self.strides[b]));
  const ExprId moved = pool.mul(skipped, self.strides[shift < 0 ? a : b]);
  return call.view(self, std::move(sizes), std::move(strides), pool.add(call.offset_of(self), moved));
}

TypeId view_as_real(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (!is_complex(self.dtype)) call.mismatch("{} is not complex", info(self.dtype).short_name);
  const ExprId one = call.number(1), two = call.number(2);
  Dims sizes = self.sizes, strides;
  for (ExprId stride : self.strides) strides.push_back(call.exprs.mul(stride, two));
  sizes.push_back(two);
  strides.push_back(one);
  return call.result(to_real(self.dtype), std::move(sizes), std::move(strides), self.device,
                     call.exprs.mul(call.offset_of(self), two));
}

TypeId view_as_complex(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const auto dtype = to_complex(self.dtype);
  if (!dtype) call.mismatch("{} has no complex counterpart", info(self.dtype).short_name);
  const ExprId two = call.number(2);
  if (self.rank() == 0 || call.facts.differ(self.sizes.back(), two))
    call.mismatch("the last dimension is not 2");
  Dims sizes(self.sizes.begin(), self.sizes.end() - 1), strides;
  for (std::size_t i = 0; i + 1 < self.rank(); ++i)
    strides.push_back(call.exprs.floordiv(self.strides[i], two));
  return call.result(*dtype, std::move(sizes), std::move(strides), self.device,
                     call.exprs.floordiv(call.offset_of(self), two));
}

// view.dtype(self, dtype): the last dimension is rescaled where the element size changes.
TypeId view_dtype(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const DType dtype = call.dtype_or(1, self.dtype);
  const std::int64_t before = info(self.dtype).bytes, after = info(dtype).bytes;
  if (before == after) return call.result(dtype, self.sizes, self.strides, self.device, self.offset);
  if (self.rank() == 0) call.mismatch("a 0-dimensional tensor keeps its element size");
  if (!is_one(call.facts, self.strides.back())) call.mismatch("the last stride is not 1");
  ExprPool& pool = call.exprs;
  const ExprId ratio = call.number(before > after ? before / after : after / before);
  auto rescale = [&](ExprId e) { return before > after ? pool.mul(e, ratio) : pool.floordiv(e, ratio); };
  if (before < after && call.facts.differ(pool.mod(self.sizes.back(), ratio), call.number(0)))
    call.mismatch("the last dimension {} is not a multiple of {}", call.text(self.sizes.back()),
                  call.text(ratio));
  Dims sizes = self.sizes, strides = self.strides;
  sizes.back() = rescale(sizes.back());
  for (std::size_t i = 0; i + 1 < strides.size(); ++i) strides[i] = rescale(strides[i]);
  return call.result(dtype, std::move(sizes), std::move(strides), self.device, rescale(call.offset_of(self)));
}

// real, imag of a complex tensor.
TypeId real_part(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (!is_complex(self.dtype)) return call.same(self);
  const ExprId two = call.number(2);
  Dims strides;
  for (ExprId stride : self.strides) strides.push_back(call.exprs.mul(stride, two));
  return call.result(to_real(self.dtype), self.sizes, std::move(strides), self.device,
                     call.exprs.mul(call.offset_of(self), two));
}

TypeId imaginary_part(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (!is_complex(self.dtype)) call.mismatch("{} is not complex", info(self.dtype).short_name);
  const ExprId two = call.number(2);
  Dims strides;
  for (ExprId stride : self.strides) strides.push_back(call.exprs.mul(stride, two));
  return call.result(to_real(self.dtype), self.sizes, std::move(strides), self.device,
                     call.exprs.add(call.exprs.mul(call.offset_of(self), two), call.number(1)));
}

}  // namespace epweave::rules
