#include "ops/named_arg.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

Arg named_arg(const Context& context, const Node& node, std::string_view name) {
  const auto param = node.op->find_param(name);
  return param ? arg_of(context, node, *param) : Arg::none();
}

std::span<const Arg> named_items(const Context& context, const Node& node, std::string_view name) {
  const Arg list = named_arg(context, node, name);
  return list.is_list() ? context.args.children(list) : std::span<const Arg>();
}

bool is_zero_number(Arg arg) {
  return (arg.is_int() && arg.as_int() == 0) || (arg.is(ArgKind::kReal) && arg.as_real() == 0.0);
}

}  // namespace epweave
