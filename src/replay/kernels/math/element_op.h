// The elementwise ops by name; element_ops.h says what each computes.
#pragma once

#include <cstdint>

// clang-format off
#define EPWEAVE_UNARY_OPS(X) \
  X(Neg) X(Abs) X(Square) X(Conjugate) X(BitNot) X(Relu) X(SignOf) X(Floor) X(Ceil) X(Trunc) X(Round) \
  X(LogOf) X(Sin) X(Cos) X(Sqrt) X(Rsqrt) X(Tanh) X(Reciprocal) X(Exp) X(Sigmoid) X(Silu) \
  X(Expm1) X(Log1p) X(Log2) X(Exp2) X(Erf) X(Gelu) X(GeluTanh) X(LogSigmoid) X(Hardsigmoid) \
  X(Hardswish) X(Mish)
#define EPWEAVE_UNARY_TESTS(X) X(LogicalNot) X(IsNan) X(IsInf)
#define EPWEAVE_BINARY_OPS(X) \
  X(Mul) X(Div) X(FloorDiv) X(TruncDiv) X(Remainder) X(Fmod) X(Maximum) X(Minimum) X(BitAnd) X(BitOr) \
  X(BitXor) X(ShiftLeft) X(ShiftRight) X(SiluBackward) X(SigmoidBackward) X(TanhBackward) \
  X(ShiftedExp) X(LogSumExp) X(KeepScore) X(Atan2) X(PowerOf) X(MakeComplex) X(GeluBackward) \
  X(GeluTanhBackward) X(LogSigmoidBackward) X(LogAddExp) X(HardsigmoidBackward) X(HardswishBackward) \
  X(MishBackward) X(Glu) X(SquaredDifference) X(Difference) X(CrossEntropy) X(CrossEntropySlope)
#define EPWEAVE_BINARY_TESTS(X) \
  X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual) X(LogicalAnd) X(LogicalOr) \
  X(LogicalXor)
#define EPWEAVE_NUMBER_UNARY_OPS(X) X(Power) X(LeakyRelu)
#define EPWEAVE_NUMBER_BINARY_OPS(X) \
  X(AddScaled) X(SubScaled) X(ReverseSub) X(ThresholdBackward) X(KeepGradient) X(LeakyReluBackward) \
  X(SmoothL1) X(SmoothL1Slope) X(Huber) X(HuberSlope) X(ScaledProduct)
#define EPWEAVE_TERNARY_OPS(X) X(Lerp) X(Select) X(Clamp) X(DivideRow) X(Softplus) \
  X(GluBackward) X(LogitsCrossEntropy)
#define EPWEAVE_NUMBER_TERNARY_OPS(X) X(AddProduct) X(AddQuotient) X(ScaledSum) X(SoftplusBackward) \
  X(Elu) X(EluSlope) X(EluSlopeOfResult) X(ReplaceNan) X(HardtanhBackward)
// clang-format on

namespace epweave::math {

// kCopy: the element itself. kFill: the number.
// clang-format off
enum class ElementOp : std::uint8_t {
  kCopy,
  kFill,
#define EPWEAVE_NAME(Name) k##Name,
  EPWEAVE_UNARY_OPS(EPWEAVE_NAME)
  EPWEAVE_UNARY_TESTS(EPWEAVE_NAME)
  EPWEAVE_BINARY_OPS(EPWEAVE_NAME)
  EPWEAVE_BINARY_TESTS(EPWEAVE_NAME)
  EPWEAVE_NUMBER_UNARY_OPS(EPWEAVE_NAME)
  EPWEAVE_NUMBER_BINARY_OPS(EPWEAVE_NAME)
  EPWEAVE_TERNARY_OPS(EPWEAVE_NAME)
  EPWEAVE_NUMBER_TERNARY_OPS(EPWEAVE_NAME)
#undef EPWEAVE_NAME
};
// clang-format on

}  // namespace epweave::math
