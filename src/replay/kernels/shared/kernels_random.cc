// Random numbers of the replay's own: torch's generators are not imitated.
//
// Element i of a call's result, in row-major order, is made of i and of the number of the call
// (KernelCall::draw) alone: two graphs that draw in the same order draw the same, whatever lies
// between, on any device and with any strides.
//
//   bits(i)    splitmix64 of i, by the draw: tasks/draw_task.h
//   uniform    the upper bits, read as k / 2^digits: in [0, 1); 53, or as many as the result's dtype
//              holds where the number itself is the result, so that it is not rounded to 1
//   normal     sqrt(-2 log(1 - u)) cos(2 pi v)        u, v: two streams
#include "replay/kernels/host/in_double.h"
#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {
namespace {

using namespace cpu;  // NOLINT: the elementwise ops

class Draws : public InDouble {
 public:
  using InDouble::InDouble;

  // A number that the call is given.
  Tensor argument(std::size_t param) { return number_tensor(call_, call_[param], DType::kFloat64); }

  // In [0, 1), of so many binary digits.
  void draw_into(const Tensor& out, unsigned digits) {
    const std::uint64_t stream = call_.draw() * 2 + stream_++;
    const std::uint64_t salt = stream * 0xd1342543de82ef95 + 0x2545f4914f6cdd1d;
    const Tensor to = out.is_contiguous() ? out.view({out.numel()}, {1}, out.offset) : out;
    tasks::DrawTask task{shape_of(to.sizes), strided(to, to.sizes), salt, digits};
    task.out.stored = stored_of(to.dtype);
    Scratch(call_).launch(task, to.numel(), {&to});
  }
  Tensor uniform(const Extents& sizes, unsigned digits = 53) {
    Tensor out = call_.make(DType::kFloat64, sizes);
    draw_into(out, digits);
    return out;
  }
  Tensor normal(const Extents& sizes) {
    const Tensor u = uniform(sizes), v = uniform(sizes);
    const Tensor length = map<Sqrt>(map<Mul>(map<LogOf>(map<Difference>(number(1.0), u)), number(-2.0)));
    return map<Mul>(length, map<Cos>(map<Mul>(v, number(6.283185307179586))));
  }
  // Of mean 1.
  Tensor exponential(const Extents& sizes) {
    return map<Neg>(map<LogOf>(map<Difference>(number(1.0), uniform(sizes))));
  }
  // first + factor * second.
  Tensor sum(const Tensor& first, const Tensor& factor, const Tensor& second) {
    return map<Difference>(first, map<Neg>(map<Mul>(factor, second)));
  }

 private:
  std::uint64_t stream_ = 0;
};

DType asked_dtype(const KernelCall& call, std::string_view param, DType otherwise) {
  const auto position = call.op().find_param(param);
  const bool is_given = position && call[*position].is<DType>();
  return is_given ? call[*position].as<DType>() : call.result_dtype(0, otherwise);
}

// Written over the first operand of `uniform_` and its like, else a new tensor.
DType result_dtype(const KernelCall& call) {
  if (call.op().writes) return call.tensor(0).dtype;
  return asked_dtype(call, "dtype", call[0].is_tensor() ? call.tensor(0).dtype : DType::kFloat32);
}
// Of its elements.
unsigned count_digits(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return 8;
    case DType::kFloat16:
      return 11;
    case DType::kFloat32:
      return 24;
    default:
      return 53;
  }
}

// The extents of what is drawn: `size`, else those of the first operand.
Extents sizes_of(const KernelCall& call) {
  const auto position = call.op().find_param("size");
  return position ? Extents(call[*position].integers()) : call.tensor(0).sizes;
}

Tensor result_of(KernelCall& call, const Extents& sizes) {
  return call.op().writes ? call.tensor(0) : call.make_result(0, result_dtype(call), sizes);
}
Value store(KernelCall& call, const Tensor& values) {
  const Tensor out = result_of(call, values.sizes);
  copy_elements(values, out);
  return out;
}

Value uniform(KernelCall& call) {
  const Tensor out = result_of(call, sizes_of(call));
  Draws(call).draw_into(out, count_digits(out.dtype));
  return out;
}
Value normal(KernelCall& call) {
  return store(call, Draws(call).normal(sizes_of(call)));
}
Value between(KernelCall& call) {
  Draws by(call);
  const Tensor from = by.argument(1), width = by.map<Difference>(by.argument(2), from);
  const Tensor drawn = by.uniform(sizes_of(call), count_digits(result_dtype(call)));
  return store(call, by.sum(from, width, drawn));
}
// Whole numbers from `low` on below `high`, the second of two numbers behind `first`; one alone is
// `high`.
template <std::size_t First, std::size_t Count>
Value whole_numbers(KernelCall& call) {
  Draws by(call);
  const Tensor low = Count == 2 ? by.argument(First) : by.number(0.0), high = by.argument(First + Count - 1);
  const Tensor within = by.map<Floor>(by.map<Mul>(by.uniform(sizes_of(call)), by.map<Difference>(high, low)));
  return store(call, by.sum(low, by.number(1.0), within));
}
// `mean` and `std`, the first of them a tensor or a number.
template <std::size_t First>
Value normal_about(KernelCall& call) {
  Draws by(call);
  const Tensor mean = call[First].is_tensor() ? by.operand(First) : by.argument(First);
  return store(call, by.sum(mean, by.argument(First + 1), by.normal(sizes_of(call))));
}
Value log_normal(KernelCall& call) {
  Draws by(call);
  const Tensor exponent = by.sum(by.argument(1), by.argument(2), by.normal(sizes_of(call)));
  return store(call, by.map<Exp>(exponent));
}
Value exponential(KernelCall& call) {
  Draws by(call);
  return store(call, by.map<Div>(by.exponential(sizes_of(call)), by.argument(1)));
}
// How often until a chance of p comes.
Value geometric(KernelCall& call) {
  Draws by(call);
  const Tensor rate = by.map<LogOf>(by.map<Difference>(by.number(1.0), by.argument(1)));
  const Tensor times = by.map<Ceil>(by.map<Div>(by.map<Neg>(by.exponential(sizes_of(call))), rate));
  return store(call, by.map<Maximum>(times, by.number(1.0)));
}
Value cauchy(KernelCall& call) {
  Draws by(call);
  const Tensor half = by.map<Difference>(by.uniform(sizes_of(call)), by.number(0.5));
  const Tensor angle = by.map<Mul>(half, by.number(3.141592653589793));
  const Tensor tangent = by.map<Div>(by.map<Sin>(angle), by.map<Cos>(angle));
  return store(call, by.sum(by.argument(1), by.argument(2), tangent));
}
// 1 with the chance that the parameter says, which is a number or one for each element.
template <std::size_t Chance>
Value chosen(KernelCall& call) {
  Draws by(call);
  const Tensor chance = call[Chance].is_tensor() ? by.operand(Chance) : by.argument(Chance);
  return store(call, by.map<Less>(by.uniform(sizes_of(call)), chance));
}
// The kept elements scaled, and which are kept.
Value dropout(KernelCall& call) {
  Draws by(call);
  const Tensor& x = call.tensor(0);
  const bool drops = call[2].is_none() || call.boolean(2);
  const double chance = drops ? 1 - call.real(1) : 1;
  const Tensor kept = by.map<Less>(by.uniform(x.sizes), by.number(chance));
  const Tensor scaled =
      by.map<Mul>(by.map<Mul>(by.values_of(x), kept), by.number(chance == 0 ? 0 : 1 / chance));
  const Tensor out = call.make_result(0, x.dtype, x.sizes), mask = call.make_result(1, DType::kBool, x.sizes);
  copy_elements(scaled, out);
  copy_elements(kept, mask);
  return Value::tuple({out, mask});
}

constexpr KernelRow kRows[] = {
    {"aten.bernoulli.default", chosen<0>},
    {"aten.bernoulli.p", chosen<1>},
    {"aten.bernoulli_.Tensor", chosen<1>},
    {"aten.bernoulli_.float", chosen<1>},
    {"aten.cauchy_.default", cauchy},
    {"aten.exponential.default", exponential},
    {"aten.exponential_.default", exponential},
    {"aten.geometric_.default", geometric},
    {"aten.log_normal_.default", log_normal},
    {"aten.native_dropout.default", dropout},
    {"aten.normal.Tensor_float", normal_about<0>},
    {"aten.normal.float_float", normal_about<0>},
    {"aten.normal_.default", normal_about<1>},
    {"aten.normal_functional.default", normal_about<1>},
    {"aten.rand.default", uniform},
    {"aten.rand_like.default", uniform},
    {"aten.randint.default", whole_numbers<0, 1>},
    {"aten.randint.low", whole_numbers<0, 2>},
    {"aten.randint_like.default", whole_numbers<1, 1>},
    {"aten.randint_like.low_dtype", whole_numbers<1, 2>},
    {"aten.randn.default", normal},
    {"aten.randn_like.default", normal},
    {"aten.uniform.default", between},
    {"aten.uniform_.default", between},
};

}  // namespace

std::span<const KernelRow> random_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
