// Reductions, norms and losses.
#include "placement/scaling/scaling_rules.h"

namespace epweave::scaling {

void reduce(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const auto param = call.find_param("dim");
  if (!param) return;
  const bool names_none = call.graph.step().nodes[call.id].op->family == OpFamily::kTruth &&
                          call.arg(*param).is_list() && call.items(call.arg(*param)).empty();
  if (names_none) return call.align(call.out(), in);
  const std::vector<bool> reduced = call.dims(*param, in.size());
  for (std::size_t e = 0; e < call.out_count(); ++e) {
    const Span out = call.out(e);
    const bool is_kept = out.size() == in.size();
    std::size_t j = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!reduced[i] && j < out.size()) call.unite(out[j], in[i]);
      if (is_kept || !reduced[i]) ++j;
    }
  }
}

void topk(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const std::size_t dim = call.dim(2, in.size(), -1);
  for (std::size_t e = 0; e < call.out_count(); ++e) call.unite_except(call.out(e), in, dim);
}

// (input, normalized_shape, ...) -> (output, statistics...)
void norm(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const std::size_t normalised = call.items(call.arg(1)).size();
  call.align(call.out(), in);
  for (std::size_t e = 1; e < call.out_count(); ++e)
    for (std::size_t i = 0; i + normalised < in.size() && i < call.out(e).size(); ++i)
      call.unite(call.out(e)[i], in[i]);
}

// (grad_out, input, normalized_shape, ...) -> (grad_input, grad_weight...)
void norm_backward(ScalingCall& call) {
  const Span in = call.in(1);
  call.align(call.out(), in);
  call.align(in, call.in(std::size_t{0}));
  const std::size_t normalised = call.items(call.arg(2)).size();
  if (normalised > in.size()) return;
  for (std::size_t e = 1; e < call.out_count(); ++e) call.align(call.out(e), in.last(normalised));
  for (std::size_t p = 3; p < call.param_count(); ++p) {
    const Span other = call.in(p);
    // Statistics have the rows, weights the rest.
    for (std::size_t i = 0; i < in.size() - normalised && other.size() == in.size(); ++i)
      call.unite(other[i], in[i]);
    if (other.size() == normalised && other.size() < in.size()) call.align(other, in.last(normalised));
  }
}

// (self, target, ...): rows of both.
void nll_loss(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), target = call.in(1);
  if (self.size() < 2 || target.empty()) return;
  call.unite(self[0], target[0]);
  if (!call.out().empty()) call.unite(call.out()[0], target[0]);
}

void nll_loss_backward(ScalingCall& call) {
  const Span self = call.in(1), target = call.in(2);
  call.align(call.out(), self);
  if (self.size() >= 2 && !target.empty()) call.unite(self[0], target[0]);
}

// (self, target, ...): terms, or one number.
void loss(ScalingCall& call) {
  call.align(call.in(std::size_t{0}), call.in(1));
  call.align(call.out(), call.in(std::size_t{0}));
}

// (grad_output, self, target, ...)
void loss_backward(ScalingCall& call) {
  call.align(call.out(), call.in(1));
  call.align(call.out(), call.in(2));
}

namespace {

// Two halves of a dimension become one, or one's gradient that of both.
void halve(ScalingCall& call, Span halves, Span whole, std::size_t dim) {
  if (dim >= whole.size() || halves.size() != whole.size()) return;
  call.unite_except(halves, whole, dim);
  call.solver.relate_sum(whole[dim], Extents{halves[dim], halves[dim]}, call.id);
}

}  // namespace

void glu(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  halve(call, call.out(), in, call.dim(1, in.size(), -1));
}

void glu_backward(ScalingCall& call) {
  const Span self = call.in(1);
  call.align(call.out(), self);
  halve(call, call.in(std::size_t{0}), self, call.dim(2, self.size(), -1));
}

}  // namespace epweave::scaling
