// Products of matrices, convolutions and attention.
#include <algorithm>

#include "ops/rules.h"
#include "placement/scaling/scaling_rules.h"

namespace epweave::scaling {

namespace {

void multiply(ScalingCall& call, Span a, Span b) {
  const Span out = call.out();
  if (a.size() < 2 || b.size() < 2 || out.size() < 2) return;
  call.unite(a[a.size() - 1], b[b.size() - 2]);
  call.unite(out[out.size() - 2], a[a.size() - 2]);
  call.unite(out[out.size() - 1], b[b.size() - 1]);
  if (a.size() != 3 || b.size() != 3 || out.size() != 3) return;
  call.unite(out[0], a[0]);
  call.unite(out[0], b[0]);
}

}  // namespace

void mm(ScalingCall& call) {
  multiply(call, call.in(std::size_t{0}), call.in(1));
}

void addmm(ScalingCall& call) {
  multiply(call, call.in(1), call.in(2));
  call.align(call.out(), call.in(std::size_t{0}));
}

// X of A X = B.
void solve(ScalingCall& call) {
  const Span matrix = call.in(std::size_t{0}), out = call.out();
  call.align(out, call.in(1));
  if (matrix.size() > 2 && out.size() > 2)
    call.align(out.first(out.size() - 2), matrix.first(matrix.size() - 2));
}

void mv(ScalingCall& call) {
  const Span a = call.in(std::size_t{0}), b = call.in(1);
  if (a.size() != 2 || b.size() != 1) return;
  call.unite(a[1], b[0]);
  call.unite(call.out()[0], a[0]);
}

void dot(ScalingCall& call) {
  call.align(call.in(std::size_t{0}), call.in(1));
}

// Where one operand is 2-dimensional its groups lie behind each other.
void grouped_mm(ScalingCall& call) {
  const Span a = call.in(std::size_t{0}), b = call.in(1), out = call.out();
  if (a.size() < 2 || b.size() < 2 || out.size() < 2) return;
  call.unite(a[a.size() - 1], b[b.size() - 2]);
  call.unite(out[out.size() - 2], a[a.size() - 2]);
  call.unite(out[out.size() - 1], b[b.size() - 1]);
  if (a.size() == 3 && b.size() == 3) call.unite(a[0], b[0]);
  if (out.size() == 3 && a.size() == 3) call.unite(out[0], a[0]);
  if (out.size() == 3 && b.size() == 3) call.unite(out[0], b[0]);
}

namespace {

// An extent that a step of 1 and as much padding as the windows reach leave as it is.
void keep_extents(ScalingCall& call, Span in, Span made) {
  const auto stride = call.find_param("stride");
  const auto steps = stride ? call.items(call.arg(*stride)) : std::vector<Arg>();
  for (std::size_t i = 2; i < in.size() && i < made.size(); ++i) {
    const std::size_t at = std::min(i - 2, steps.empty() ? 0 : steps.size() - 1);
    const bool is_each = at < steps.size() && steps[at].is_int() && steps[at].as_int() == 1;
    if (is_each && in[i] && made[i] && call.solver.number(in[i]) == call.solver.number(made[i]))
      call.unite(in[i], made[i]);
  }
}

}  // namespace

void convolution(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.empty() || out.size() != in.size()) return;
  call.unite(out[0], in[0]);
  keep_extents(call, in, out);
}

void convolution_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), in = call.in(1);
  if (grad.empty() || in.size() != grad.size()) return;
  call.unite(grad[0], in[0]);
  keep_extents(call, in, grad);
  for (std::size_t p = 1; p <= 2; ++p)
    if (call.out(p - 1).size() == call.in(p).size()) call.align(call.out(p - 1), call.in(p));
}

namespace {

void attend(ScalingCall& call, Span q, Span k, Span v) {
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return;
  call.unite(q[0], k[0]);
  call.unite(q[3], k[3]);
  call.unite(k[2], v[2]);
  call.unite(k[0], v[0]);
  call.unite(k[1], v[1]);
}

// A mask or bias: of batch, head, query and key, or it broadcasts to them.
void attention_bias(ScalingCall& call, Span q, Span k) {
  if (q.size() != 4 || k.size() != 4) return;
  const Extents scores = {q[0], q[1], q[2], k[2]};
  for (std::string_view name : {"attn_bias", "attn_mask"})
    if (const auto bias = call.find_param(name)) call.align(call.in(*bias), scores);
}

}  // namespace

void attention(ScalingCall& call) {
  const Span q = call.in(std::size_t{0}), k = call.in(1), v = call.in(2), out = call.out();
  attend(call, q, k, v);
  attention_bias(call, q, k);
  if (q.size() != 4 || v.size() != 4 || out.size() != 4) return;
  call.unite_except(out, q, 3);
  call.unite(out[3], v[3]);
  // Statistics of rows, whose number one kernel pads.
  const Span rows = call.out(1);
  const std::size_t known = call.node.op->type_rule == rules::efficient_attention ? 2 : 3;
  for (std::size_t i = 0; i < known && i < rows.size(); ++i) call.unite(rows[i], q[i]);
  if (call.node.op->type_rule == rules::flex_attention) call.align(call.out(2), rows);
}

namespace {

// A block mask: the lengths, then tables that have the query's batch and heads or broadcast to
// them.
void block_mask(ScalingCall& call, Span q, Span k) {
  const auto mask = call.find_param("block_mask");
  if (!mask || call.items(call.arg(*mask)).size() < 2 || q.size() != 4 || k.size() != 4) return;
  call.literal(*mask, 0, q[2]);
  call.literal(*mask, 1, k[2]);
  for (Arg table : call.items(call.arg(*mask)))
    for (std::size_t dim = 0; dim < 2 && dim < call.in(table).size(); ++dim)
      call.unite(call.in(table)[dim], q[dim]);
}

}  // namespace

void flex_attention(ScalingCall& call) {
  attention(call);
  block_mask(call, call.in(std::size_t{0}), call.in(1));
}

// (query, key, value, out, logsumexp, grad_out, grad_logsumexp, ...)
void flex_attention_backward(ScalingCall& call) {
  const Span q = call.in(std::size_t{0}), k = call.in(1), v = call.in(2);
  attend(call, q, k, v);
  for (std::size_t i = 0; i < 3; ++i) call.align(call.out(i), call.in(i));
  call.align(call.in(5), call.in(3));
  for (std::size_t p = 3; p < 7; ++p)
    for (std::size_t i = 0; i < 3 && i < call.in(p).size() && q.size() == 4; ++i)
      call.unite(call.in(p)[i], q[i]);
  block_mask(call, q, k);
}

// (grad_out, query, key, value, ..., out, logsumexp, ...)
void attention_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), q = call.in(1);
  attend(call, q, call.in(2), call.in(3));
  attention_bias(call, q, call.in(2));
  for (std::size_t i = 0; i < 3; ++i) call.align(call.out(i), call.in(i + 1));
  if (const auto bias = call.find_param("attn_bias")) call.align(call.out(3), call.in(*bias));
  const auto out = call.find_param("out");
  if (out) call.align(grad, call.in(*out));
  if (grad.size() == 4 && q.size() == 4) call.unite_except(grad, q, 3);
  for (std::string_view name : {"max_q", "max_k"}) {
    const auto length = call.find_param(name);
    const Span rows = name == "max_q" ? q : call.in(2);
    if (length && rows.size() == 4) call.literal(*length, std::nullopt, rows[2]);
  }
}

}  // namespace epweave::scaling
