#include "testing/elementwise_calls.h"

#include <charconv>

#include "base/error.h"

namespace epweave {
namespace {

// Operands, in order: x, y (rows), t, u (the same between -1 and 1), p, q (positive, from 1 on), b,
// c (conditions), i, j (small integers from 1 on), no (false), numbers, name=text for keywords. The
// result may be floats, integers or conditions.
struct ElementwiseRow {
  std::string_view target, operands;
};

constexpr ElementwiseRow kRows[] = {
    {"aten.add.Scalar", "x 0.5"},
    {"aten.sub.Scalar", "x 0.5"},
    {"aten.mul.Scalar", "x 0.5"},
    {"aten.div.Scalar", "x 2.0"},
    {"aten.div.Scalar_mode", "x 2.0 rounding_mode=floor"},
    {"aten.div.Tensor_mode", "x p rounding_mode=trunc"},
    {"aten.floor_divide.Scalar", "i 2"},
    {"aten.floor_divide.default", "i j"},
    {"aten.remainder.Scalar", "x 2.0"},
    {"aten.remainder.Tensor", "x p"},
    {"aten.pow.Scalar", "2.0 t"},
    {"aten.pow.Tensor_Tensor", "p t"},
    {"aten.rsub.Tensor", "x y"},
    {"aten.addcdiv.default", "x y p"},
    {"aten.addcmul.default", "x t u"},
    {"aten.lerp.Scalar", "x y 0.5"},
    {"aten.lerp.Tensor", "x y t"},
    {"aten.clamp.Tensor", "x t p"},
    {"aten.clamp_min.default", "x -1.0"},
    {"aten.clamp_min.Tensor", "x y"},
    {"aten.clamp_max.default", "x 1.0"},
    {"aten.clamp_max.Tensor", "x y"},
    {"aten.ceil.default", "x"},
    {"aten.round.default", "x"},
    {"aten.trunc.default", "x"},
    {"aten.square.default", "t"},
    {"aten.isinf.default", "x"},
    {"aten.isnan.default", "x"},
    {"aten.eq.Scalar", "i 2"},
    {"aten.eq.Tensor", "i j"},
    {"aten.ne.Scalar", "i 2"},
    {"aten.ne.Tensor", "i j"},
    {"aten.ge.Tensor", "x y"},
    {"aten.le.Tensor", "x y"},
    {"aten.lt.Tensor", "x y"},
    {"aten.logical_or.default", "b c"},
    {"aten.bitwise_and.Scalar", "i 3"},
    {"aten.bitwise_and.Tensor", "b c"},
    {"aten.bitwise_or.Scalar", "i 3"},
    {"aten.bitwise_xor.Tensor", "i j"},
    {"aten.bitwise_not.default", "b"},
    {"aten.where.Scalar", "b 1.0 2.0"},
    {"aten.where.ScalarOther", "b x 1.0"},
    {"aten.where.ScalarSelf", "b 1.0 x"},
    {"aten.alias.default", "x"},
    {"aten.detach.default", "x"},
    {"prims.convert_element_type.default", "x bf16"},
    {"aten._log_softmax_backward_data.default", "x y -1 f32"},
    {"aten.clone.default", "x"},
    {"aten.erf.default", "x"},
    {"aten.exp2.default", "t"},
    {"aten.expm1.default", "t"},
    {"aten.log1p.default", "p"},
    {"aten.log2.default", "p"},
    {"aten.elu.default", "x"},
    {"aten.gelu.default", "x"},
    {"aten.gelu_backward.default", "x y"},
    {"aten.elu_backward.default", "x 1.0 1.0 1.0 no y"},
    {"aten.hardsigmoid.default", "x"},
    {"aten.hardsigmoid_backward.default", "x y"},
    {"aten.hardswish.default", "x"},
    {"aten.hardswish_backward.default", "x y"},
    {"aten.mish.default", "x"},
    {"aten.mish_backward.default", "x y"},
    {"aten.hardtanh.default", "x"},
    {"aten.hardtanh_backward.default", "x y -1.0 1.0"},
    {"aten.leaky_relu.default", "x"},
    {"aten.leaky_relu_backward.default", "x y 0.01 no"},
    {"aten.logaddexp.default", "x y"},
    {"aten.softplus.default", "x"},
    {"aten.softplus_backward.default", "x y 1.0 20.0"},
    {"aten.nan_to_num.default", "x"},
};

class Maker {
 public:
  Maker(StepBuilder& build, NodeId x, NodeId y) : build_(build), x_(x), y_(y) {}

  NodeId make(const ElementwiseRow& row) {
    std::vector<Arg> args;
    StepBuilder::Keywords keywords;
    std::string_view rest = row.operands;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      if (const std::size_t equals = word.find('='); equals != word.npos)
        keywords.emplace_back(word.substr(0, equals), build_.text(word.substr(equals + 1)));
      else
        args.push_back(operand(word));
    }
    const NodeId made = build_.call(row.target, args, keywords);
    return build_.type_of(made).dtype == DType::kFloat32 ? made : to(made, "torch.float32");
  }

 private:
  Arg arg(NodeId id) const { return build_.arg(id); }
  NodeId call(std::string_view target, const std::vector<Arg>& args) { return build_.call(target, args); }
  NodeId to(NodeId a, std::string_view dtype) {
    return build_.call("aten._to_copy.default", {arg(a)}, {{"dtype", build_.dtype(dtype)}});
  }
  NodeId positive(NodeId a) {
    return call("aten.add.Tensor", {arg(call("aten.abs.default", {arg(a)})), build_.arg(1.0)});
  }
  NodeId integer(NodeId a) {
    return to(call("aten.clamp.default", {arg(positive(a)), build_.arg(1.0), build_.arg(6.0)}),
              "torch.int64");
  }
  NodeId condition(NodeId a) { return call("aten.gt.Scalar", {arg(a), build_.arg(0.25)}); }

  Arg operand(std::string_view word) {
    if (word == "x") return arg(x_);
    if (word == "y") return arg(y_);
    if (word == "t") return arg(call("aten.tanh.default", {arg(x_)}));
    if (word == "u") return arg(call("aten.tanh.default", {arg(y_)}));
    if (word == "p") return arg(positive(y_));
    if (word == "b") return arg(condition(x_));
    if (word == "c") return arg(condition(y_));
    if (word == "i") return arg(integer(x_));
    if (word == "j") return arg(integer(y_));
    if (word == "no") return build_.flag(false);
    if (word == "bf16") return build_.dtype("torch.bfloat16");
    if (word == "f32") return build_.dtype("torch.float32");
    if (word.find('.') == word.npos) {
      std::int64_t number = 0;
      std::from_chars(word.data(), word.data() + word.size(), number);
      return build_.arg(number);
    }
    return build_.arg(std::stod(std::string(word)));
  }

  StepBuilder& build_;
  NodeId x_, y_;
};

}  // namespace

NodeId make_elementwise_call(StepBuilder& build, Dice& dice, NodeId x, NodeId y) {
  return Maker(build, x, y).make(dice.pick(std::span<const ElementwiseRow>(kRows)));
}

}  // namespace epweave
