#include "ops/named_arg.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

Arg named_arg(const Context& context, const Node& node, std::string_view name) {
  const auto param = node.op->find_param(name);
  return param ? arg_of(context, node, *param) : Arg::none();
}

}  // namespace epweave
