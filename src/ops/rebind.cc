#include "ops/rebind.h"

#include <vector>

#include "ops/op.h"

namespace epweave {

void rebind(Context& context, Node& node, const Rebinding& rebinding) {
  const StringId name = context.strings.intern(node.op->params[rebinding.param].name);
  const auto kwargs = context.args[node.kwargs];
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) {
    if (kwargs[i].as_name() != name) continue;
    std::vector<Arg> changed(kwargs.begin(), kwargs.end());
    changed[i + 1] = rebinding.value;
    node.kwargs = context.args.add(changed);
    return;
  }
  const auto args = context.args[node.args];
  std::vector<Arg> changed(args.begin(), args.end());
  while (changed.size() <= rebinding.param) changed.push_back(rebinding.left_out);
  changed[rebinding.param] = rebinding.value;
  node.args = context.args.add(changed);
}

}  // namespace epweave
