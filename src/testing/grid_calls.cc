#include "testing/grid_calls.h"

namespace epweave {

Arg GridCalls::list(const std::vector<std::int64_t>& items) const {
  std::vector<Arg> args;
  for (std::int64_t each : items) args.push_back(number(each));
  return build_.list(args);
}

NodeId GridCalls::merged(NodeId grid) {
  return call("aten.reshape.default", {arg(grid), list({-1, width(grid)})});
}

NodeId GridCalls::unmerged(NodeId rows) {
  return call("aten.reshape.default",
              {arg(rows), list(grid_shape(layout_, {build_.number(rows, 1).value()}))});
}

NodeId GridCalls::partial(NodeId grid) {
  return call("aten.sum.dim_IntList", {arg(grid), list({0, 1})});
}

NodeId GridCalls::grow(NodeId grid, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) grid = step(grid);
  return grid;
}

NodeId GridCalls::step(NodeId grid) {
  const Arg x = arg(grid);
  switch (dice_.below(9)) {
    case 0:
      return call("aten.silu.default", {x});
    case 1:
      return call("aten.add.Tensor", {x, arg(call("aten.tanh.default", {x}))});
    case 2:
      return call("aten._softmax.default", {x, number(-1), build_.flag(false)});
    case 3: {  // over the dimension that is no symbol
      const NodeId mean = call("aten.mean.dim", {x, list({plain_dim()}), build_.flag(true)});
      return call("aten.sub.Tensor", {x, arg(mean)});
    }
    case 4: {
      const NodeId turned = call("aten.transpose.int", {x, number(0), number(1)});
      const NodeId sines = call("aten.sin.default", {arg(turned)});
      return call("aten.transpose.int", {arg(sines), number(0), number(1)});
    }
    case 5: {  // the last of the plain dimension first
      const auto cut = [&](std::int64_t from, std::int64_t to) {
        return arg(call("aten.slice.Tensor", {x, number(plain_dim()), number(from), number(to)}));
      };
      return call(
          "aten.cat.default",
          {build_.list({cut(kGridExtent - 1, kGridExtent), cut(0, kGridExtent - 1)}), number(plain_dim())});
    }
    case 6: {
      const NodeId first = call("aten.select.int", {x, number(plain_dim()), number(0)});
      const NodeId wide = call("aten.unsqueeze.default", {arg(first), number(plain_dim())});
      return call("aten.mul.Tensor", {x, arg(wide)});
    }
    case 7: {
      const NodeId sum = call("aten.cumsum.default", {x, number(plain_dim())});
      return call("aten.clamp.default", {arg(sum), build_.arg(-4.0), build_.arg(4.0)});
    }
    default: {  // rows and back
      const NodeId rows = call("aten.neg.default", {arg(merged(grid))});
      return unmerged(rows);
    }
  }
}

}  // namespace epweave
