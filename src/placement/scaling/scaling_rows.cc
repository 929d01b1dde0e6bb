// Rows that data choose, and rows of other ranks.
#include <algorithm>

#include "placement/scaling/scaling_rules.h"

namespace epweave::scaling {

namespace {

// For each dimension of self, the index tensor or none.
std::vector<Span> indices_of(ScalingCall& call, std::size_t rank, std::vector<bool>& is_indexed) {
  std::vector<Span> indices(rank);
  is_indexed.assign(rank, false);
  const auto items = call.items(call.arg(1));
  for (std::size_t i = 0; i < items.size() && i < rank; ++i) {
    is_indexed[i] = items[i].is_node();
    indices[i] = call.in(items[i]);
  }
  return indices;
}

// Equates the shape that indexing `self` gives with `result`.
void relate_index(ScalingCall& call, Span self, Span result) {
  std::vector<bool> is_indexed;
  const std::vector<Span> indices = indices_of(call, self.size(), is_indexed);
  std::size_t runs = 0, index_rank = 0, first = self.size();
  for (std::size_t i = 0; i < self.size(); ++i) {
    if (!is_indexed[i]) continue;
    if (i == 0 || !is_indexed[i - 1]) ++runs;
    first = std::min(first, i);
    index_rank = std::max(index_rank, indices[i].size());
  }
  if (runs == 0) return;
  const std::size_t begin = runs == 1 ? first : 0;
  Extents shape;
  for (std::size_t i = 0; i < self.size(); ++i)
    if (!is_indexed[i]) shape.push_back(self[i]);
  if (result.size() != shape.size() + index_rank) {
    // Values that broadcast: only the trailing dimensions are sure.
    if (result.size() < shape.size() + index_rank && begin == 0)
      call.align(shape, result.last(std::min(result.size(), shape.size())));
    return;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) call.unite(shape[i], result[i < begin ? i : i + index_rank]);
  const Span at = result.subspan(begin, index_rank);
  for (std::size_t i = 0; i < self.size(); ++i)
    if (is_indexed[i]) call.align(at, indices[i]);
}

}  // namespace

void index(ScalingCall& call) {
  relate_index(call, call.in(std::size_t{0}), call.out());
}

void index_put(ScalingCall& call) {
  call.align(call.out(), call.in(std::size_t{0}));
  relate_index(call, call.in(std::size_t{0}), call.in(2));
}

void gather(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2);
  call.align(call.out(), at);
  call.unite_except(at, self, call.dim(1, self.size()));
}

void scatter(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2);
  call.align(call.out(), self);
  call.unite_except(at, self, call.dim(1, self.size()));
  call.align(at, call.in(3));
}

void index_add(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2), source = call.in(3);
  const std::size_t dim = call.dim(1, self.size());
  call.align(call.out(), self);
  if (source.size() != self.size()) return;
  call.unite_except(source, self, dim);
  if (dim < source.size() && at.size() == 1) call.unite(source[dim], at[0]);
}

void deterministic_scatter_add(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(1), source = call.in(2);
  call.align(call.out(), self);
  call.align(at, source);
  call.unite_except(source, self, 0);
}

void index_select(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2), out = call.out();
  const std::size_t dim = call.dim(1, self.size());
  call.unite_except(out, self, dim);
  if (dim < out.size() && at.size() == 1) call.unite(out[dim], at[0]);
}

void embedding(ScalingCall& call) {
  const Span weight = call.in(std::size_t{0}), at = call.in(1), out = call.out();
  for (std::size_t i = 0; i < at.size() && i < out.size(); ++i) call.unite(out[i], at[i]);
  if (weight.size() == 2 && !out.empty()) call.unite(out.back(), weight[1]);
}

void embedding_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), at = call.in(1), out = call.out();
  for (std::size_t i = 0; i < at.size() && i < grad.size(); ++i) call.unite(grad[i], at[i]);
  if (out.size() == 2 && !grad.empty()) call.unite(out[1], grad.back());
  if (out.size() == 2) call.literal(2, std::nullopt, out[0]);
}

void repeat_interleave(ScalingCall& call) {
  if (call.out().size() == 1) call.literal(1, std::nullopt, call.out()[0]);
}

// (self, num_classes): a dimension behind those of self.
void one_hot(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (out.size() != in.size() + 1) return;
  call.align(without(out, in.size()), in);
  call.literal(1, std::nullopt, out.back());
}

void like_second(ScalingCall& call) {
  call.align(call.out(), call.in(1));
}

namespace {

// A shard of each of `ranks` ranks, along `dim`.
void relate_shards(ScalingCall& call, Span shard, Span whole, std::size_t dim, std::int64_t ranks) {
  call.unite_except(shard, whole, dim);
  if (ranks == 1) return call.unite(shard[dim], whole[dim]);
  call.solver.relate_dimensions({call.solver.add_fixed(ranks), shard[dim]}, {whole[dim]}, call.id);
}

void relate_ranks(ScalingCall& call, Span shard, Span whole, std::size_t group_size) {
  if (shard.empty() || shard.size() != whole.size()) return;
  const auto ranks = call.integer(group_size);
  if (ranks && *ranks >= 1) return relate_shards(call, shard, whole, 0, *ranks);
  call.unite_except(shard, whole, 0);
}

}  // namespace

void all_gather(ScalingCall& call) {
  relate_ranks(call, call.in(std::size_t{0}), call.out(), 1);
}

void reduce_scatter(ScalingCall& call) {
  relate_ranks(call, call.out(), call.in(std::size_t{0}), 2);
}

void all_gather_each(ScalingCall& call) {
  const auto items = call.items(call.arg(0));
  for (std::size_t e = 0; e < items.size(); ++e) relate_ranks(call, call.in(items[e]), call.out(e), 1);
}

void reduce_scatter_each(ScalingCall& call) {
  const auto items = call.items(call.arg(0));
  for (std::size_t e = 0; e < items.size(); ++e) relate_ranks(call, call.out(e), call.in(items[e]), 2);
}

namespace {

// Each of two tensors is the ranks' shares of the other, along one dimension.
void relate_pair(ScalingCall& call, bool gathers) {
  for (const std::size_t e : {std::size_t{0}, std::size_t{1}}) {
    const Span in = call.in(e), out = call.out(e);
    const Span shard = gathers ? in : out, whole = gathers ? out : in;
    if (shard.empty() || shard.size() != whole.size()) return;
    const std::size_t dim = call.dim(2, shard.size());
    if (!shard[dim] || !whole[dim]) continue;
    const std::int64_t part = call.solver.number(shard[dim]), all = call.solver.number(whole[dim]);
    if (part > 0 && all % part == 0) relate_shards(call, shard, whole, dim, all / part);
  }
}

}  // namespace

void gather_pair(ScalingCall& call) {
  relate_pair(call, true);
}

void scatter_pair(ScalingCall& call) {
  relate_pair(call, false);
}

namespace {

// Rows are the sum of their splits: of sizes read from data, or of numbers.
void relate_splits(ScalingCall& call, ExtentId rows, std::size_t param) {
  const auto splits = call.items(call.arg(param));
  if (splits.empty() || !rows) return;
  ExprPool& pool = call.table.facts().pool();
  PolyId sum = pool.poly_number(0);
  bool all_numbers = true, all_equal = true;
  for (Arg split : splits) {
    all_numbers &= split.is_int();
    all_equal &= split == splits[0];
    if (split.is_int()) {
      sum = pool.add(sum, pool.poly_number(split.as_int()));
    } else if (split.is_node()) {
      const TypeId type = call.graph.step().nodes[split.as_node()].type;
      if (!type || call.graph.context->types[type].kind != TypeKind::kScalar) return;
      sum = pool.add(sum, pool.poly(call.graph.context->types[type].expr));
    } else {
      return;
    }
  }
  if (!all_numbers) return call.unite(rows, call.table.of_poly(sum));
  // An even exchange.
  if (!all_equal || splits[0].as_int() < 1) return;
  Extents pieces;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    pieces.push_back(call.solver.add(splits[i].as_int()));
    call.unite(pieces[0], pieces[i]);
    call.literal(param, i, pieces[i]);
  }
  call.solver.relate_sum(rows, pieces, call.id);
}

}  // namespace

void all_to_all(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.empty() || out.size() != in.size()) return;
  call.unite_except(out, in, 0);
  relate_splits(call, out[0], 1);
  relate_splits(call, in[0], 2);
  if (call.graph.context->args.equal(call.arg(1), call.arg(2))) call.unite(out[0], in[0]);
}

void getitem(ScalingCall& call) {
  const auto index = call.integer(1);
  if (!call.arg(0).is_node() || !index) return;
  const NodeId source = call.arg(0).as_node();
  const auto count = static_cast<std::int64_t>(call.table.tensor_count(source));
  const std::int64_t element = *index < 0 ? *index + count : *index;
  if (element >= 0 && element < count)
    call.align(call.out(), call.table.of(source, static_cast<std::size_t>(element)));
}

}  // namespace epweave::scaling
