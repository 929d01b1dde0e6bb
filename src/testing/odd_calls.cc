#include "testing/odd_calls.h"

#include <cstdint>
#include <vector>

namespace epweave {
namespace {

class OddMaker {
 public:
  OddMaker(StepBuilder& build, const OddContext& context) : build_(build), c_(context) {}

  std::optional<NodeId> make(std::size_t which) {
    const bool needs_slots = (which >= 20 && which < 29) || which >= 31;
    if (needs_slots && !c_.slots) return std::nullopt;
    switch (which) {
      case 0:  // along the divided dimension
        return call("aten.cumsum.default", {arg(c_.rows), number(0)});
      case 1:  // a weight that is a sum over the tokens
        return item(call("aten._fused_rms_norm.default",
                         {arg(c_.rows), list({8}), arg(sum_of_rows()), build_.arg(1e-5)}),
                    0);
      case 2:
        return call("aten.index.Tensor", {arg(c_.rows), build_.list({arg(columns()), arg(columns())})});
      case 3:  // rows of a wider value, by number
        return call("aten.gather.default", {arg(doubled()), number(1), arg(column(columns()))});
      case 4:
        return call("aten.sub.Tensor", {arg(c_.rows), arg(sum_of_rows())});
      case 5:
        return call("aten.amax.default", {arg(c_.rows), list({0})});
      case 6:  // rows written where the data says
        return call("aten.index_put.default",
                    {arg(zeros()), build_.list({arg(c_.tokens)}), arg(c_.rows), build_.flag(true)});
      case 7: {
        build_.in_module(c_.outside);
        const NodeId square =
            call("aten.mm.default", {arg(c_.stream), arg(call("aten.t.default", {arg(c_.stream)}))});
        build_.in_module(c_.module);
        return call("aten.relu.default", {arg(square)});
      }
      case 8: {
        const NodeId view = call("aten.view.default", {arg(c_.counter), list({-1})});
        const NodeId two = call("aten.slice.Tensor", {arg(c_.rows), number(1), number(0), number(2)});
        return call("aten.add_.Tensor",
                    {arg(view), arg(call("aten.sum.dim_IntList", {arg(two), list({0})}))});
      }
      case 9: {
        build_.in_module(c_.outside);
        const NodeId made = call("aten.zeros_like.default", {arg(c_.stream)});
        build_.in_module(c_.module);
        return call("aten.scatter_.value", {arg(made), number(1), arg(column(columns())), build_.arg(1.0)});
      }
      case 10: {
        const NodeId made = call("aten.zeros.default", {list({16, 8})}, on_device());
        call("aten.add_.Tensor", {arg(made), build_.arg(1.0)});
        return call("aten.index_put.default",
                    {arg(made), build_.list({arg(c_.tokens)}), arg(c_.rows), build_.flag(true)});
      }
      case 11: {  // written outside, as a whole
        const NodeId made = call("aten.sin.default", {arg(c_.rows)});
        build_.in_module(c_.outside);
        call("aten.add_.Tensor", {arg(made), build_.arg(1.0)});
        build_.in_module(c_.module);
        return call("aten.cos.default", {arg(made)});
      }
      case 12:
        return call("aten.reshape.default", {arg(c_.rows), list({8, -1, 8})});
      case 13:
        return call("aten.argsort.stable", {arg(c_.tokens)}, {{"stable", build_.flag(true)}});
      case 14:
        return exchange("");
      case 15:
        return exchange("dispatch");
      case 16: {  // the groups of all rows
        const NodeId ends =
            call("aten.full.default", {list({2}), number(24)},
                 {{"dtype", build_.dtype("torch.int32")}, {"device", build_.device("cuda:0")}});
        return call("aten._grouped_mm.default", {arg(c_.rows), arg(weights()), arg(ends)});
      }
      case 17: {
        build_.in_module(c_.outside);
        const NodeId first = call("aten.slice.Tensor", {arg(c_.stream), number(0), number(0), number(1)});
        const NodeId longer =
            call("aten.cat.default", {build_.list({arg(c_.stream), arg(first)}), number(0)});
        build_.in_module(c_.module);
        return call("aten.relu.default", {arg(longer)});
      }
      case 18: {
        build_.in_module(c_.outside);
        const NodeId n = call("operator.add", {arg(size_of(c_.stream)), number(1)});
        build_.in_module(c_.module);
        return call("aten.new_ones.default", {arg(c_.rows), build_.list({arg(n), number(8)})});
      }
      case 19:  // two rows become one: not in parts of an odd number of rows
        return call("aten.reshape.default", {arg(c_.rows), list({-1, 16})});
      case 20:
        return call("aten._to_copy.default", {arg(c_.order)}, {{"dtype", build_.dtype("torch.float32")}});
      case 21:  // a table that all parts share
        return call("aten.index.Tensor", {arg(call("aten.zeros.default", {list({48, 2})}, on_device())),
                                          build_.list({arg(c_.order)})});
      case 22:
        return call("aten.sum.default", {arg(call("aten.reshape.default", {arg(c_.slots), list({-1, 16})}))});
      case 23:
        return call("aten.add.Tensor", {arg(c_.slots), arg(c_.rows)});
      case 24: {
        const NodeId made = zeros();
        call("aten.add_.Tensor", {arg(made), arg(c_.slots)});
        return call("aten.neg.default", {arg(made)});
      }
      case 25:  // updated by the module
        return call("aten.mul.Tensor", {arg(c_.counter), build_.arg(2.0)});
      case 26:
        return call("aten.neg.default", {arg(c_.slots)});
      case 27:
        return call("aten.reshape.default", {arg(call("aten.t.default", {arg(c_.slots)})), list({-1})});
      case 28: {
        const NodeId all = call("_c10d_functional.all_reduce.default",
                                {arg(c_.stream), build_.text("sum"), build_.text("0")});
        const NodeId done = call("_c10d_functional.wait_tensor.default", {arg(all)});
        const NodeId index = call("aten.expand.default", {arg(column(c_.order)), list({-1, 8})});
        return call("aten.scatter_add.default", {arg(zeros()), number(0), arg(index), arg(done)});
      }
      case 29: {  // rows that every rank has all of, beside those of the part
        const NodeId all = call("_c10d_functional.all_reduce.default",
                                {arg(c_.stream), build_.text("sum"), build_.text("0")});
        return call("aten.add.Tensor",
                    {arg(c_.rows), arg(call("_c10d_functional.wait_tensor.default", {arg(all)}))});
      }
      case 30: {  // a fifth of the rows, rounded: those of the parts are fewer
        const NodeId fifth = call("operator.floordiv", {arg(size_of(c_.rows)), number(5)});
        const NodeId ones =
            call("aten.new_ones.default", {arg(c_.rows), build_.list({arg(fifth), number(8)})});
        return call("aten.sum.dim_IntList", {arg(ones), list({0})});
      }
      case 31: {  // slots picked by numbers that could name one twice, and written back
        const NodeId numbers = call("aten.floor_divide.default", {arg(c_.order), number(1)});
        const NodeId picked = call("aten.index.Tensor", {arg(c_.slots), build_.list({arg(numbers)})});
        const NodeId index = call("aten.expand.default", {arg(column(c_.order)), list({-1, 8})});
        return call("aten.scatter_add.default", {arg(zeros()), number(0), arg(index), arg(picked)});
      }
      case 32: {  // put back by an inverse over which another one was written
        const NodeId unset = call("aten.empty_like.default", {arg(c_.order)});
        const NodeId back = call("aten.index_put_.default",
                                 {arg(unset), build_.list({arg(c_.order)}), arg(numbers_of(c_.order))});
        const NodeId other = downwards();
        call("aten.index_put_.default", {arg(unset), build_.list({arg(other)}), arg(numbers_of(other))});
        return call(
            "aten.add.Tensor",
            {arg(call("aten.index.Tensor", {arg(c_.slots), build_.list({arg(back)})})), arg(c_.rows)});
      }
      case 33: {  // by the inverse of another order
        const NodeId other = downwards();
        const NodeId way = call("aten.scatter.src", {arg(call("aten.zeros_like.default", {arg(other)})),
                                                     number(0), arg(other), arg(numbers_of(other))});
        return call("aten.add.Tensor",
                    {arg(call("aten.index.Tensor", {arg(c_.slots), build_.list({arg(way)})})), arg(c_.rows)});
      }
      default:
        return std::nullopt;
    }
  }

 private:
  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg number(std::int64_t n) const { return build_.arg(n); }
  Arg list(const std::vector<std::int64_t>& items) const {
    std::vector<Arg> args;
    for (std::int64_t each : items) args.push_back(build_.arg(each));
    return build_.list(args);
  }
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }
  NodeId item(NodeId tuple, std::int64_t i) { return call("operator.getitem", {arg(tuple), number(i)}); }
  StepBuilder::Keywords on_device() const {
    return {{"dtype", build_.dtype("torch.float32")}, {"device", build_.device("cuda:0")}};
  }
  NodeId zeros() { return call("aten.zeros_like.default", {arg(c_.rows)}); }
  NodeId sum_of_rows() { return call("aten.sum.dim_IntList", {arg(c_.rows), list({0})}); }
  NodeId columns() { return call("aten.remainder.Scalar", {arg(c_.tokens), number(8)}); }
  NodeId column(NodeId a) { return call("aten.unsqueeze.default", {arg(a), number(1)}); }
  // The order of the tokens' numbers, from the largest on.
  NodeId downwards() { return call("aten.argsort.default", {arg(c_.tokens), number(-1), build_.flag(true)}); }
  NodeId numbers_of(NodeId a) {
    return call("aten.arange.default", {arg(size_of(a))}, {{"device", build_.device("cuda:0")}});
  }
  NodeId size_of(NodeId a) { return call("aten.sym_size.int", {arg(a), number(0)}); }
  NodeId doubled() {
    const NodeId wide = call("aten.cat.default", {build_.list({arg(c_.rows), arg(c_.rows)}), number(1)});
    return call("aten.reshape.default", {arg(wide), list({-1, 8})});
  }
  NodeId weights() {
    auto slice = [&](NodeId a, std::int64_t dim) {
      return call("aten.slice.Tensor", {arg(a), number(dim), number(0), number(8)});
    };
    const Arg one = arg(call("aten.unsqueeze.default", {arg(slice(slice(c_.weight, 0), 1)), number(0)}));
    return call("aten.cat.default", {build_.list({one, one}), number(0)});
  }
  NodeId exchange(std::string_view label) {
    const NodeId half = call("operator.floordiv", {arg(size_of(c_.rows)), number(2)});
    const Arg halves = build_.list({arg(half), arg(half)});
    const NodeId launch =
        call("_c10d_functional.all_to_all_single.default", {arg(c_.rows), halves, halves, build_.text("1")});
    if (!label.empty()) build_.node(launch).ep.token_exchange = build_.word(label);
    return call("aten.sum.dim_IntList",
                {arg(call("_c10d_functional.wait_tensor.default", {arg(launch)})), list({0})});
  }

  StepBuilder& build_;
  const OddContext& c_;
};

}  // namespace

std::optional<NodeId> make_odd_call(StepBuilder& build, const OddContext& context, std::size_t which) {
  return OddMaker(build, context).make(which);
}

}  // namespace epweave
