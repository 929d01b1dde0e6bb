#include "ops/random_draws.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

bool draws_random(const Context& context, const Node& node) {
  const OpInfo* op = node.op;
  if (op == nullptr || op->is_random || op->family != OpFamily::kAttention)
    return op != nullptr && op->is_random;
  const auto dropout = op->find_param("dropout_p");
  const bool is_forward = !op->params.empty() && op->params.front().name == "query";
  if (!dropout || !is_forward) return false;
  const Arg p = arg_of(context, node, *dropout);
  const bool is_zero = (p.is(ArgKind::kReal) && p.as_real() == 0) || (p.is_int() && p.as_int() == 0);
  return !p.is_none() && !is_zero;
}

}  // namespace epweave
