#include "ops/random_draws.h"

#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {

bool has_dropout(const Context& context, const Node& node) {
  if (!has_family(node, OpFamily::kAttention)) return false;
  const auto dropout = node.op->find_param("dropout_p");
  if (!dropout) return false;
  const Arg p = arg_of(context, node, *dropout);
  return !p.is_none() && !is_zero_number(p);
}

bool draws_itself(const Context& context, const Node& node) {
  if (node.op == nullptr) return false;
  const bool is_forward = !node.op->params.empty() && node.op->params.front().name == "query";
  return node.op->is_random || (is_forward && has_dropout(context, node));
}

}  // namespace epweave
