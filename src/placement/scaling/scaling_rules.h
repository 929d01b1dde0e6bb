// What a shape rule says about extents that scale. Rules are functions: a `switch` names that of
// each family whose ops have extents that scale alike, a table those of type rules, as ops whose
// results are typed alike do.
#pragma once

#include "placement/scaling/scaling_call.h"

namespace epweave {

using ScalingRule = void (*)(ScalingCall&);

// Null: nothing is known about the op's extents.
ScalingRule find_scaling_rule(const OpInfo& op);

// The rules, and what several of them share.
namespace scaling {

using Span = std::span<const ExtentId>;

Extents without(Span extents, std::size_t dim);

// scaling_views.cc
void pointwise(ScalingCall& call);
void divide(ScalingCall& call);
void like_self(ScalingCall& call);
void like_each(ScalingCall& call);
void convert_bits(ScalingCall& call);
void drop_pair(ScalingCall& call);
void reshape(ScalingCall& call);
void expand(ScalingCall& call);
void permute(ScalingCall& call);
void transpose(ScalingCall& call);
void t(ScalingCall& call);
void drop_ones(ScalingCall& call);
void select(ScalingCall& call);
void unbind(ScalingCall& call);
void slice(ScalingCall& call);
void narrow(ScalingCall& call);
void pad_to_input(ScalingCall& call);
void split_with_sizes(ScalingCall& call);
void chunk(ScalingCall& call);
void split(ScalingCall& call);
void cat(ScalingCall& call);
void stack(ScalingCall& call);
void pad(ScalingCall& call);
void repeat(ScalingCall& call);
void factory(ScalingCall& call);
void sized_by_name(ScalingCall& call);
void sized_by_third(ScalingCall& call);
void drawn_of_rows(ScalingCall& call);
void new_factory(ScalingCall& call);
void counted_by_first(ScalingCall& call);
void arange_start(ScalingCall& call);
void eye(ScalingCall& call);

// scaling_reductions.cc
void reduce(ScalingCall& call);
void topk(ScalingCall& call);
void norm(ScalingCall& call);
void norm_backward(ScalingCall& call);
void nll_loss(ScalingCall& call);
void nll_loss_backward(ScalingCall& call);
void loss(ScalingCall& call);
void loss_backward(ScalingCall& call);
void glu(ScalingCall& call);
void glu_backward(ScalingCall& call);

// scaling_products.cc
void mm(ScalingCall& call);
void addmm(ScalingCall& call);
void solve(ScalingCall& call);
void mv(ScalingCall& call);
void dot(ScalingCall& call);
void grouped_mm(ScalingCall& call);
void convolution(ScalingCall& call);
void convolution_backward(ScalingCall& call);
void attention(ScalingCall& call);
void flex_attention(ScalingCall& call);
void flex_attention_backward(ScalingCall& call);
void attention_backward(ScalingCall& call);

// scaling_rows.cc
void index(ScalingCall& call);
void index_put(ScalingCall& call);
void gather(ScalingCall& call);
void scatter(ScalingCall& call);
void index_add(ScalingCall& call);
void deterministic_scatter_add(ScalingCall& call);
void index_select(ScalingCall& call);
void embedding(ScalingCall& call);
void embedding_backward(ScalingCall& call);
void repeat_interleave(ScalingCall& call);
void one_hot(ScalingCall& call);
void like_second(ScalingCall& call);
void all_gather(ScalingCall& call);
void reduce_scatter(ScalingCall& call);
void all_gather_each(ScalingCall& call);
void reduce_scatter_each(ScalingCall& call);
void gather_pair(ScalingCall& call);
void scatter_pair(ScalingCall& call);
void all_to_all(ScalingCall& call);
void getitem(ScalingCall& call);

}  // namespace scaling
}  // namespace epweave
