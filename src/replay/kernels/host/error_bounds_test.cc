// Bounds of single calls, where the op has a number among its arguments.
#include "replay/bounds/error_bounds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <type_traits>

#include "ops/op.h"
#include "replay/bounds/error_rules.h"
#include "replay/check/bound_comparison.h"
#include "replay/kernels/host/cpu_table_test.h"
#include "replay/kernels/host/sum.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

class Calls {
 public:
  Tensor tensor(const std::vector<float>& elements) {
    Tensor made = make_tensor(memory_, DType::kFloat32, {static_cast<std::int64_t>(elements.size())});
    std::copy(elements.begin(), elements.end(), made.data<float>());
    return made;
  }
  Tensor with_bound(const std::vector<float>& elements, const std::vector<float>& bound) {
    const Tensor made = tensor(elements);
    bounds_.set(made, tensor(bound));
    return made;
  }
  void set_bound(const Tensor& value, const std::vector<float>& bound) { bounds_.set(value, tensor(bound)); }
  Tensor cast(const Tensor& value, DType dtype) {
    return bounds_.apply("aten._to_copy.default", {value, dtype});
  }
  void cast_into(const Tensor& value, const Tensor& to) { bounds_.apply("aten.copy_.default", {to, value}); }
  Tensor view(const Tensor& value, Extents sizes) {
    std::vector<Value> list(sizes.begin(), sizes.end());
    return bounds_.apply("aten.view.default", {value, Value::list(std::move(list))});
  }
  Value run(std::string_view target, const std::vector<Value>& args) {
    return bounds_.ops().run(*find_op(target), args);
  }
  void make_unknown(const Tensor& value) { bounds_.set_unknown(value); }
  // The bound of the result.
  std::vector<float> bound_of_call(std::string_view target, const std::vector<Value>& args) {
    const OpInfo& op = *find_op(target);
    const Value result = bounds_.apply(target, args);
    bounds_.follow({op, args, result});
    const Tensor bound = bounds_.find_or_zero(result.tensor());
    return {bound.data<float>(), bound.data<float>() + bound.numel()};
  }

  Memory& memory() { return memory_; }
  ErrorBounds& bounds() { return bounds_; }

 private:
  HostMemory memory_;
  ErrorBounds bounds_{table(), memory_};
};

}  // namespace

TEST_CASE("padding is exact whatever the fill, and moves the bounds of the rest") {
  for (const double fill : {0.0, 1.0, -100.0, 1e30}) {
    CAPTURE(fill);
    Calls calls;
    const Tensor x = calls.with_bound({5, 6}, {0.25F, 0.5F});
    CHECK(calls.bound_of_call("aten.constant_pad_nd.default",
                              {x, Value::list({std::int64_t{1}, std::int64_t{2}}), fill}) ==
          std::vector<float>{0, 0.25F, 0.5F, 0, 0});
  }
}

TEST_CASE("a scalar is one element along the dimension that a scan names") {
  Calls calls;
  const Tensor x = calls.view(calls.tensor({2}), {});
  calls.bounds().set(x, calls.view(calls.tensor({0.5F}), {}));
  const std::vector<float> bound = calls.bound_of_call("aten.cumsum.default", {x, 0, {}});
  REQUIRE(bound.size() == 1);
  CHECK(bound[0] == Approx(0.5).epsilon(1e-5));
}

TEST_CASE("the bound of what is selected is that of the element it is") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const auto mask_of = [](Calls& calls, const std::vector<float>& bits) {
    return calls.cast(calls.tensor(bits), DType::kBool);
  };
  const auto selected = [&](std::string_view target, auto make_args) {
    Calls calls;
    const Tensor x = calls.with_bound({5, -6}, {0.25F, 0.5F}), y = calls.with_bound({7, 8}, {1, kUnknown});
    return calls.bound_of_call(target, make_args(mask_of(calls, {1, 0}), x, y));
  };
  using Args = std::vector<Value>;
  using T = Tensor;
  CHECK(selected("aten.where.self", [](T m, T x, T y) {
          return Args{m, x, y};
        }) == std::vector<float>{0.25F, kUnknown});
  CHECK(selected("aten.where.self", [](T m, T x, T y) {
          return Args{m, y, x};
        }) == std::vector<float>{1, 0.5F});
  CHECK(selected("aten.where.ScalarOther", [](T m, T x, T) {
          return Args{m, x, -3.0};
        }) == std::vector<float>{0.25F, 0});
  CHECK(selected("aten.where.ScalarSelf", [](T m, T x, T) {
          return Args{m, std::int64_t{-3}, x};
        }) == std::vector<float>{0, 0.5F});
  for (const std::string_view fill : {"aten.masked_fill.Scalar", "aten.masked_fill_.Scalar"})
    CHECK(selected(fill, [](T m, T x, T) { return Args{x, m, -1e30}; }) == std::vector<float>{0, 0.5F});
  for (const std::string_view triangle : {"aten.tril.default", "aten.triu.default"}) {
    Calls calls;
    const Tensor x = calls.with_bound({5, -6}, {0.25F, 0.5F});
    const Tensor square = calls.view(x, {1, 2});
    CHECK(calls.bound_of_call(triangle, {square, std::int64_t{0}}) ==
          std::vector<float>{0.25F, triangle == "aten.tril.default" ? 0 : 0.5F});
  }
}

TEST_CASE("rows that are written over have the bounds of what is written") {
  for (const std::string_view target :
       {"aten.scatter.src", "aten.scatter_.src", "aten.index_copy.default", "aten.index_copy_.default"}) {
    CAPTURE(target);
    Calls calls;
    const Tensor self = calls.with_bound({5, -6}, {0.25F, 0.5F}), source = calls.with_bound({9}, {2});
    Tensor index = make_tensor(calls.memory(), DType::kInt64, {1});
    index.data<std::int64_t>()[0] = 1;
    CHECK(calls.bound_of_call(target, {self, std::int64_t{0}, index, source}) ==
          std::vector<float>{0.25F, 2});
  }
  for (const std::string_view target :
       {"aten.scatter.value", "aten.scatter_.value", "aten.index_fill.int_Scalar"}) {
    CAPTURE(target);
    Calls calls;
    const Tensor self = calls.with_bound({5, -6}, {0.25F, 0.5F});
    Tensor index = make_tensor(calls.memory(), DType::kInt64, {1});
    index.data<std::int64_t>()[0] = 1;
    CHECK(calls.bound_of_call(target, {self, std::int64_t{0}, index, -4.0}) == std::vector<float>{0.25F, 0});
  }
}

// Bounds grow with each layer as if all errors had one sign.
TEST_CASE("a loose bound hides no error that shows before rounding") {
  Calls calls;
  constexpr std::int64_t kCount = 96;
  Tensor stored = make_tensor(calls.memory(), DType::kBfloat16, {2, kCount / 2}),
         bound = make_tensor(calls.memory(), DType::kFloat32, {2, kCount / 2}),
         ideal = make_tensor(calls.memory(), DType::kFloat64, {2, kCount / 2});
  for (std::int64_t i = 0; i < kCount; ++i) {
    ideal.data<double>()[i] = i == 5 ? 0.01 : 1 / (1.5 + static_cast<double>(i % 7));
    bound.data<float>()[i] = 1e9F;
  }
  calls.cast_into(ideal, stored);
  const auto other = [&](std::int64_t at, double factor) {
    Tensor changed = make_tensor(calls.memory(), DType::kFloat64, ideal.sizes);
    std::copy_n(ideal.data<double>(), kCount, changed.data<double>());
    changed.data<double>()[at] *= factor;
    return compare_bounded({stored, bound, ideal}, {{stored, bound, changed}});
  };
  CHECK(other(0, 1).is_within);
  CHECK(other(5, 1 + 1e-14).is_within);
  CHECK(other(7, 1 - 1e-14).is_within);
  const BoundComparison found = other(5, 1 + 0x1p-12);
  CHECK_FALSE(found.is_within);
  CHECK(found.is_unrounded);
  CHECK(found.index == 5);
  CHECK(compare_bounded({stored, bound, std::nullopt}, {{stored, bound, std::nullopt}}).is_within);
}

// A selected element is stored as the result is; an integer is exact.
TEST_CASE("a selected element that is stored in a narrower type is rounded") {
  Calls calls;
  const Tensor mask = calls.cast(calls.tensor({1, 0}), DType::kBool);
  const Tensor half = calls.cast(calls.tensor({1, 1}), DType::kBfloat16);
  const Tensor one = calls.view(calls.with_bound({1}, {0}), {});
  const std::vector<float> bound = calls.bound_of_call("aten.where.self", {mask, one, half});
  CHECK(bound[0] >= 0x1p-8F);
  CHECK(bound[1] == 0);
  const Tensor x = calls.with_bound({5, -6}, {0.25F, 0.5F}),
               whole = calls.cast(calls.tensor({-3, -4}), DType::kInt64);
  CHECK(calls.bound_of_call("aten.where.self", {mask, x, whole}) == std::vector<float>{0.25F, 0});
}

TEST_CASE("what is selected by a condition that may be another one has no bound") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  Calls calls;
  const Tensor mask = calls.cast(calls.tensor({1, 0}), DType::kBool);
  const Tensor x = calls.with_bound({5, -6}, {0.25F, 0.5F});
  calls.make_unknown(mask);
  CHECK(calls.bound_of_call("aten.where.self", {mask, x, x}) == std::vector<float>{kUnknown, kUnknown});
  CHECK(calls.bound_of_call("aten.where.Scalar", {mask, 1.0, 0.0}) == std::vector<float>{kUnknown, kUnknown});
  CHECK(calls.bound_of_call("aten.masked_fill.Scalar", {x, mask, 0.0}) ==
        std::vector<float>{kUnknown, kUnknown});
}

TEST_CASE("a cast to float16 rounds what is small, of bfloat16 too") {
  for (const DType from : {DType::kBfloat16, DType::kFloat32}) {
    CAPTURE(info(from).short_name);
    Calls calls;
    // Multiples of half of float16's smallest number: odd ones lie between two of its numbers.
    const float step = 0x1p-25F;
    std::vector<float> numbers, next, allowed(100, step);
    for (int k = 1; k <= 100; ++k) {
      numbers.push_back(static_cast<float>(k) * step);
      next.push_back(static_cast<float>(k + 1) * step);
    }
    const Tensor a = calls.cast(calls.tensor(numbers), from), b = calls.cast(calls.tensor(next), from);
    calls.set_bound(a, allowed);
    const std::vector<float> bound = calls.bound_of_call("aten._to_copy.default", {a, DType::kFloat16});
    const Buffer<double> of_a = read_numbers(calls.cast(a, DType::kFloat16)),
                         of_b = read_numbers(calls.cast(b, DType::kFloat16));
    for (std::size_t i = 0; i < bound.size(); ++i) {
      CHECK(std::abs(of_a[i] - of_b[i]) <= static_cast<double>(bound[i]));
      CHECK(bound[i] <= 2.1F * step);
    }
  }
}

TEST_CASE("a cast to a type that has all the numbers of the other rounds nothing") {
  Calls calls;
  const Tensor half = calls.cast(calls.tensor({1, 2}), DType::kFloat16);
  calls.set_bound(half, {0.25F, 0.5F});
  CHECK(calls.bound_of_call("aten._to_copy.default", {half, DType::kFloat32}) ==
        std::vector<float>{0.25F, 0.5F});
}

TEST_CASE("the sign of a factor is not that of a bound") {
  std::vector<std::vector<float>> found;
  for (const double alpha : {2.0, -2.0}) {
    Calls calls;
    const Tensor self = calls.tensor({0, 0}), source = calls.with_bound({1, 1}, {0.25F, 0.5F});
    Tensor index = make_tensor(calls.memory(), DType::kInt64, {2});
    index.data<std::int64_t>()[0] = 1;
    index.data<std::int64_t>()[1] = 0;
    found.push_back(
        calls.bound_of_call("aten.index_add.default", {self, std::int64_t{0}, index, source, alpha}));
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0][0] >= 1.0F);
  CHECK(found[0][0] < 1.001F);
  CHECK(found[0][1] >= 0.5F);
  CHECK(found[0][1] < 0.501F);
}

TEST_CASE("what is subtracted from counts by its factor") {
  const auto bound_of = [](std::string_view target, bool is_number) {
    Calls calls;
    const Tensor self = calls.with_bound({1, 2}, {0.25F, 0.5F}), other = calls.with_bound({3, 4}, {1, 0});
    return calls.bound_of_call(target, {self, is_number ? Value(3.0) : Value(other), -2.0});
  };
  const std::vector<float> tensors = bound_of("aten.rsub.Tensor", false),
                           number = bound_of("aten.rsub.Scalar", true);
  CHECK(tensors[0] == Approx(1.5).epsilon(1e-5));
  CHECK(tensors[1] == Approx(1).epsilon(1e-5));
  CHECK(number[0] == Approx(0.5).epsilon(1e-5));
  CHECK(number[1] == Approx(1).epsilon(1e-5));
}

// beta c + alpha a b, with beta = -3 and alpha = 2: of a = (1, -2) and b = (3, 4).
TEST_CASE("a product that is added to has the bounds of all three") {
  const auto bound_of = [](float of_c, float of_a, float of_b) {
    Calls calls;
    const auto matrix = [&](const std::vector<float>& elements, float bound, Extents sizes) {
      return calls.view(calls.with_bound(elements, std::vector<float>(elements.size(), bound)),
                        std::move(sizes));
    };
    const Tensor c = matrix({5}, of_c, {1, 1}), a = matrix({1, -2}, of_a, {1, 2}),
                 b = matrix({3, 4}, of_b, {2, 1});
    return calls.bound_of_call("aten.addmm.default", {c, a, b, -3.0, 2.0})[0];
  };
  CHECK(bound_of(0.25F, 0, 0) == Approx(3 * 0.25).epsilon(1e-4));
  CHECK(bound_of(0, 0.25F, 0) == Approx(2 * 0.25 * (3 + 4)).epsilon(1e-4));
  CHECK(bound_of(0, 0, 0.25F) == Approx(2 * 0.25 * (1 + 2)).epsilon(1e-4));
  CHECK(bound_of(0, 0.25F, 0.5F) == Approx(2 * (0.25 * 7 + 0.5 * 3 + 2 * 0.25 * 0.5)).epsilon(1e-4));
  CHECK(bound_of(0, 0, 0) >= (3 * 5 + 2 * (3 + 8)) * 0x1p-24F);
}

// As far as the function is steep, which is not seen where what it gives was rounded, or X before 1
// was added.
TEST_CASE("an exponential and a logarithm are bounded where rounding hides how steep they are") {
  const auto reach_of = [](std::string_view target, DType dtype, double x, float bound) {
    Calls calls;
    const Tensor value = make_tensor(calls.memory(), DType::kFloat64, {1});
    *value.data<double>() = x;
    const Tensor operand = calls.cast(value, dtype);
    calls.set_bound(operand, {bound});
    return static_cast<double>(calls.bound_of_call(target, {operand})[0]) * (1 + kBoundSlack);
  };
  // What bfloat16 takes for exp(x) is below it by almost half a unit.
  CHECK(reach_of("aten.exp.default", DType::kBfloat16, 0.056884765625, 1) >=
        std::exp(1.056884765625) - 1.0546875);
  CHECK(reach_of("aten.exp2.default", DType::kBfloat16, 0.08203125, 1) >= std::exp2(1.08203125) - 1.0546875);
  CHECK(reach_of("aten.expm1.default", DType::kBfloat16, 3.5, 1) >= std::expm1(4.5) - 32);
  CHECK(reach_of("aten.exp.default", DType::kFloat32, -110, 60) >= std::exp(-50.0));  // exp(-110) is 0
  // log(2^-24) - log(2^-24 - 2^-26), and in float64 of a number that float32 takes for another one.
  CHECK(reach_of("aten.log1p.default", DType::kFloat32, -1 + 0x1p-24, 0x1p-26F) >= std::log(4.0 / 3));
  CHECK(reach_of("aten.log1p.default", DType::kFloat64, -1 + 0x1.4p-25, 0x1p-27F) >= std::log(1.25));
  // float64's mish is off by more than 4 units of the last place.
  constexpr long double kAt = -1.6676626834838615;
  Calls calls;
  const Tensor at = make_tensor(calls.memory(), DType::kFloat64, {1});
  *at.data<double>() = static_cast<double>(kAt);
  const double computed = *calls.bounds().apply("aten.mish.default", {at}).data<double>();
  const long double exact = kAt * std::tanh(std::log1p(std::exp(kAt)));
  CHECK(reach_of("aten.mish.default", DType::kFloat64, static_cast<double>(kAt), 0) >=
        static_cast<double>(std::abs(exact - static_cast<long double>(computed))));
}

TEST_CASE("activations with numbers and sums of exponentials move no further than their bound") {
  const std::vector<float> at = {-3, -0.25F, 0.125F, 19.75F, 0.5F, 40}, off = {0.5F, 0.5F, 0.25F, 0.5F, 0, 0};
  const auto check = [&](std::string_view target, const std::vector<Value>& numbers, float most) {
    CAPTURE(target);
    Calls calls;
    const auto made = [&](float factor) {
      std::vector<float> moved = at;
      for (std::size_t i = 0; i < at.size(); ++i) moved[i] += factor * off[i];
      std::vector<Value> args = {calls.tensor(moved)};
      args.insert(args.end(), numbers.begin(), numbers.end());
      const Tensor result = calls.bounds().apply(target, args);
      return std::vector<float>(result.data<float>(), result.data<float>() + result.numel());
    };
    std::vector<Value> args = {calls.with_bound(at, off)};
    args.insert(args.end(), numbers.begin(), numbers.end());
    const std::vector<float> bound = calls.bound_of_call(target, args), here = made(0);
    for (const float factor : {-1.0F, -0.5F, 0.5F, 1.0F}) {
      const std::vector<float> there = made(factor);
      for (std::size_t i = 0; i < at.size(); ++i) {
        CAPTURE(i, factor);
        CHECK(std::abs(there[i] - here[i]) <= bound[i]);
        CHECK(bound[i] <= most * 0.5F + 1e-4F);
      }
    }
    CHECK(calls.bounds().without_bound().empty());
  };
  check("aten.softplus.default", {1.0, 20.0}, 1);
  check("aten.softplus.default", {2.0, 3.0}, 1.05F);  // a step of log(1 + exp(-3)) / 2
  check("aten.elu.default", {1.0, 1.0, 1.0}, 1);
  check("aten.elu.default", {1.5, -2.0, 0.5}, 2);
  check("aten.elu.default", {3.0, 1.0, 2.0}, 6);
  check("aten.leaky_relu.default", {0.125}, 1);
  check("aten.leaky_relu.default", {-3.0}, 3);
  check("aten.logcumsumexp.default", {std::int64_t{0}}, 1);
  Calls calls;
  const std::vector<float> unknown(1, std::numeric_limits<float>::infinity());
  CHECK(calls.bound_of_call("aten.softplus.default", {calls.with_bound({1}, {0.5F}), -1.0, 20.0}) == unknown);
  CHECK(calls.bound_of_call("aten.elu.default", {calls.with_bound({1}, {0.5F}), 1.0, 1.0, -1.0}) == unknown);
}

TEST_CASE("a loss of operands that are off moves no further than its bound") {
  const std::vector<float> x = {0.25F, 0.5F, 0.75F, 0.125F}, off_x = {0.125F, 0, 0.0625F, 0.03125F};
  const std::vector<float> t = {1, 0, 0.5F, 0.25F}, off_t = {0, 0.125F, 0, 0.0625F};
  const auto moved = [](std::vector<float> at, const std::vector<float>& off, float factor) {
    for (std::size_t i = 0; i < at.size(); ++i) at[i] += factor * off[i];
    return at;
  };
  const auto check = [&](std::string_view target, const std::vector<Value>& more, float most) {
    CAPTURE(target);
    Calls calls;
    const auto made = [&](float of_x, float of_t) {
      std::vector<Value> args = {calls.tensor(moved(x, off_x, of_x)), calls.tensor(moved(t, off_t, of_t))};
      args.insert(args.end(), more.begin(), more.end());
      const Tensor result = calls.bounds().apply(target, args);
      return std::vector<float>(result.data<float>(), result.data<float>() + result.numel());
    };
    std::vector<Value> args = {calls.with_bound(x, off_x), calls.with_bound(t, off_t)};
    args.insert(args.end(), more.begin(), more.end());
    const std::vector<float> bound = calls.bound_of_call(target, args), here = made(0, 0);
    for (const float of_x : {-1.0F, 0.5F, 1.0F})
      for (const float of_t : {-1.0F, 0.0F, 1.0F}) {
        const std::vector<float> there = made(of_x, of_t);
        REQUIRE(there.size() == bound.size());
        for (std::size_t i = 0; i < there.size(); ++i) {
          CAPTURE(i, of_x, of_t);
          CHECK(std::abs(there[i] - here[i]) <= bound[i]);
          CHECK(bound[i] <= most);
        }
      }
    CHECK(calls.bounds().without_bound().empty());
  };
  constexpr std::int64_t kTerms = 0, kMean = 1, kSum = 2;
  for (const std::int64_t reduction : {kTerms, kMean, kSum}) {
    check("aten.mse_loss.default", {reduction}, 0.5F);
    check("aten.smooth_l1_loss.default", {reduction, 0.25}, 0.5F);
    check("aten.huber_loss.default", {reduction, 0.25}, 0.125F);
    check("aten.binary_cross_entropy.default", {Value(), reduction}, 40);
  }
  Calls calls;
  const std::vector<float> unknown(1, std::numeric_limits<float>::infinity());
  const auto loss = [&](const Value& of, const Value& weight) {
    return calls.bound_of_call("aten.binary_cross_entropy.default", {of, calls.tensor({1}), weight, kTerms});
  };
  // A logarithm of what may be below 0.
  CHECK(loss(calls.with_bound({0.25F}, {0.5F}), Value()) == unknown);
  CHECK(calls.bounds().without_bound().empty());
  CHECK(loss(calls.with_bound({0.25F}, {0.125F}), calls.tensor({2})) == unknown);
  CHECK(calls.bounds().without_bound() == std::set<std::string>{"aten.binary_cross_entropy.default"});
}

// Which rows it takes is not known, of integers and of numbers without an error of their own, too.
TEST_CASE("an index that may be another one leaves no bound") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  Calls calls;
  const auto integers = [&](std::int64_t first, std::int64_t second) {
    Tensor made = make_tensor(calls.memory(), DType::kInt64, {2});
    made.data<std::int64_t>()[0] = first;
    made.data<std::int64_t>()[1] = second;
    return made;
  };
  const Tensor rows = calls.with_bound({1, 2}, {0.25F, 0}), exact = calls.tensor({3, 4});
  const Tensor known = integers(1, 0), guessed = integers(1, 0), counts = integers(5, 6);
  calls.make_unknown(guessed);
  const auto selected = [&](const Tensor& from, const Tensor& index) {
    return calls.bound_of_call("aten.index_select.default", {from, std::int64_t{0}, index});
  };
  CHECK(selected(rows, known) == std::vector<float>{0, 0.25F});
  for (const Tensor& from : {rows, exact, counts})
    CHECK(selected(from, guessed) == std::vector<float>{kUnknown, kUnknown});
  CHECK(calls.bound_of_call("aten.sum.default", {guessed, Value()}) == std::vector<float>{kUnknown});
}

TEST_CASE("what is taken out of a tuple, and what has only the shape of another, needs no rule") {
  HostMemory memory;
  ErrorBounds bounds(table(), memory);
  Tensor x = make_tensor(memory, DType::kFloat32, {2}), bound = make_tensor(memory, DType::kFloat32, {2});
  for (int i = 0; i < 2; ++i) x.data<float>()[i] = bound.data<float>()[i] = 1;
  bounds.set(x, bound);
  const auto follow = [&](std::string_view target, const std::vector<Value>& args, const Value& result) {
    bounds.follow({*find_op(target), args, result});
    return bounds.find(result.tensor()).has_value();
  };
  CHECK(follow("operator.getitem", {Value::tuple({x, Value()}), std::int64_t{0}}, x));
  CHECK_FALSE(follow("aten.zeros_like.default", {x}, bounds.apply("aten.zeros_like.default", {x})));
  CHECK(bounds.without_bound().empty());
  CHECK(*bounds.find(x)->data<float>() == 1);
}

namespace {

// A call of tensors [64] of numbers between `least` and `most`, each with a bound of up to 2^-8 of
// it, and of other arguments.
struct BoundCase {
  std::string_view target;
  std::vector<std::optional<Value>> args;  // none: such a tensor
  float least = -1, most = 1;
  bool is_of_itself = false;  // one tensor is all of them
};

// An operand of a call, and what is within its bound.
class Operands {
 public:
  Operands(Calls& calls, const BoundCase& step) : calls_(calls), step_(step) {
    std::uniform_real_distribution<float> number(step.least, step.most), share(0, 0x1p-8F);
    for (std::size_t i = 0; i < step.args.size(); ++i) {
      numbers_.emplace_back();
      allowed_.emplace_back();
      for (int j = 0; j < 64 && !step.args[i]; ++j) {
        numbers_.back().push_back(number(engine_));
        allowed_.back().push_back(std::abs(numbers_.back().back()) * share(engine_));
      }
    }
  }
  // Of new tensors, as some calls write over them.
  std::vector<Value> as_given() { return make(0); }
  std::vector<Value> moved() { return make(0.999F); }
  void set_bounds(const std::vector<Value>& args) {
    for (std::size_t i = 0; i < args.size(); ++i)
      if (!step_.args[i] && !repeats_first(i)) calls_.set_bound(args[i].tensor(), allowed_[i]);
  }

 private:
  std::vector<Value> make(float share) {
    std::vector<Value> args;
    for (std::size_t i = 0; i < step_.args.size(); ++i) {
      if (repeats_first(i)) {
        args.push_back(args.front());
        continue;
      }
      std::vector<float> numbers = numbers_[i];
      for (std::size_t j = 0; j < numbers.size(); ++j)
        numbers[j] += share * allowed_[i][j] * (engine_() % 2 == 0 ? 1.0F : -1.0F);
      args.push_back(step_.args[i] ? *step_.args[i] : Value(calls_.tensor(numbers)));
    }
    return args;
  }

  bool repeats_first(std::size_t i) const { return step_.is_of_itself && i > 0 && !step_.args[i]; }

  Calls& calls_;
  const BoundCase& step_;
  std::vector<std::vector<float>> numbers_, allowed_;
  std::mt19937 engine_{7};
};

std::vector<BoundCase> list_steps() {
  constexpr std::nullopt_t kTensor = std::nullopt;
  const Value none, rows = Value::list({std::int64_t{0}});
  std::vector<BoundCase> steps = {
      {"aten.sqrt.default", {kTensor}, 0.01F},
      {"aten.reciprocal.default", {kTensor}, 0.1F},
      {"aten.clamp.default", {kTensor, -0.5, 0.5}},
      {"aten.clamp_max.default", {kTensor, 0.5}},
      {"aten.clamp_min.default", {kTensor, -0.5}},
      {"aten.maximum.default", {kTensor, kTensor}},
      {"aten.minimum.default", {kTensor, kTensor}},
      {"aten.nansum.default", {kTensor, rows}},
      {"aten.div.Tensor", {kTensor, kTensor}, 0.1F},
      {"aten.div_.Tensor", {kTensor, kTensor}, 0.1F},
      {"aten.mul_.Tensor", {kTensor, kTensor}},
      {"aten.fmax.default", {kTensor, kTensor}},
      {"aten.fmin.default", {kTensor, kTensor}},
      {"aten.clamp.Tensor", {kTensor, kTensor, 0.5}},
      {"aten.square.default", {kTensor}},
      {"aten.log.default", {kTensor}, 0.1F},
      {"aten.log2.default", {kTensor}, 0.1F},
      {"aten.log1p.default", {kTensor}, -0.5F},
  };
  for (const std::string_view function :
       {"atan", "cos", "erf", "exp", "exp2", "expm1", "mish", "sigmoid", "silu", "sin", "tanh"})
    steps.push_back({find_op("aten." + std::string(function) + ".default")->target, {kTensor}, -2, 2});
  for (const std::string_view in_place : {"aten.tanh_.default", "aten.exp_.default"})
    steps.push_back({in_place, {kTensor}});
  steps.push_back({"aten.mul_.Tensor", {kTensor, kTensor}, -1, 1, true});
  for (const double power : {1.0, 2.0, 3.0, 5.0})
    steps.push_back({"aten.pow.Tensor_Scalar", {kTensor, power}});
  for (const double power : {0.5, 0.25, 1.5, -0.5, -1.0, -2.0})
    steps.push_back({"aten.pow.Tensor_Scalar", {kTensor, power}, 0.1F});
  steps.push_back({"aten.pow.Tensor_Scalar", {kTensor, -3.0}, -1, -0.1F});
  steps.push_back({"aten.rsqrt.default", {kTensor}, 0.1F});
  for (const std::string_view target : {"aten.amax.default", "aten.amin.default"})
    steps.push_back({target, {kTensor, rows}});
  for (const std::string_view target : {"aten.abs.default", "aten.max.default", "aten.min.default"})
    steps.push_back({target, {kTensor}});
  steps.push_back({"aten.lerp_.Scalar", {kTensor, kTensor, 0.3}, -1, 1, true});
  for (const double order : {1.0, 2.0, static_cast<double>(std::numeric_limits<float>::infinity())})
    steps.push_back({"aten.linalg_vector_norm.default", {kTensor, order, rows}});
  for (const std::string_view lerp : {"aten.lerp.Scalar", "aten.lerp_.Scalar"})
    for (const double weight : {0.1, 0.9, -0.3, 1.5}) steps.push_back({lerp, {kTensor, kTensor, weight}});
  for (const std::string_view target : {"aten.addcmul.default", "aten.addcmul_.default"})
    steps.push_back({target, {kTensor, kTensor, kTensor, -0.5}});
  for (const std::string_view target : {"aten.addcdiv.default", "aten.addcdiv_.default"})
    steps.push_back({target, {kTensor, kTensor, kTensor, -0.5}, 0.1F});
  return steps;
}

}  // namespace

TEST_CASE("what clips gradients and steps an optimizer moves as far as its bound, and no further") {
  for (const BoundCase& step : list_steps()) {
    CAPTURE(step.target);
    Calls calls;
    ErrorBounds& bounds = calls.bounds();
    Operands operands(calls, step);
    const OpInfo& op = *find_op(step.target);
    std::vector<Value> args = operands.as_given();
    operands.set_bounds(args);
    bounds.keep_written(op, args);
    for (std::size_t i = args.size(); i < op.params.size(); ++i)
      args.push_back(op.params[i].default_value == "False" ? Value(false) : Value());
    const Tensor result = bounds.apply(step.target, args);
    bounds.follow({op, args, result});
    REQUIRE(bounds.without_bound().empty());
    const Tensor bound = bounds.find_or_zero(result);
    double share = 0;
    for (int trial = 0; trial < 50; ++trial) {
      const Tensor other = bounds.apply(step.target, operands.moved());
      for (std::int64_t i = 0; i < bound.numel(); ++i) {
        const double moved = std::abs(static_cast<double>(other.data<float>()[i] - result.data<float>()[i]));
        if (moved > 0) share = std::max(share, moved / static_cast<double>(bound.data<float>()[i]));
      }
    }
    CHECK(share <= 1);
    CHECK(share > 0.2);
    CHECK_FALSE(std::isnan(*bounds.ideals().find(result).data<double>()));
  }
}

namespace {

// Of how many additions, of numbers other than 0, a sum is made at most, one upon the other.
struct Depth {
  int additions = -1;  // of the number 0
};
Depth operator+(Depth a, Depth b) {
  if (a.additions < 0 || b.additions < 0) return {std::max(a.additions, b.additions)};
  return {std::max(a.additions, b.additions) + 1};
}

}  // namespace

TEST_CASE("the norm of all gradients of a large model is bounded by the order of its sum") {
  constexpr double kUnit = 0x1p-24;
  for (const std::int64_t terms : {1, 2, 16, 17, 100, 4096, 100'001, 262'144, 262'145, 700'000}) {
    CAPTURE(terms);
    const std::vector<Depth> numbers(static_cast<std::size_t>(terms), Depth{0});
    const int additions = cpu::ordered_sum(numbers.data(), terms).additions;
    CHECK(norm_error(terms, DType::kFloat32) >= (additions + 2) * kUnit);
    CHECK(norm_error(terms, DType::kFloat32) <= (additions + 8) * kUnit * 1.01);
  }
  CHECK(norm_error(200'000'000, DType::kFloat32) < 0.0011);
  CHECK(norm_error(std::int64_t{1} << 40, DType::kFloat32) < 0.0025);
  CHECK(norm_error(std::int64_t{1} << 40, DType::kFloat64) < 1e-11);
}

// Where the divisor may be 0 nothing is known, but where it is a root to which a number was added.
TEST_CASE("a power of what may be 0 is bounded where it is a root, or a whole power") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const auto bound_of = [](double power, float x) {
    Calls calls;
    return calls.bound_of_call("aten.pow.Tensor_Scalar", {calls.with_bound({x}, {0x1p-4F}), power})[0];
  };
  CHECK(bound_of(0.5, 0.0F) == Approx(0.25));
  CHECK(bound_of(2, 0.0F) == Approx(0x1p-7));
  CHECK_FALSE(std::isfinite(bound_of(0.5, -0.5F)));
  CHECK(bound_of(1.5, 0.0F) == kUnknown);
  CHECK(bound_of(-0.5, 0x1p-5F) == kUnknown);
  CHECK(bound_of(-1, 0.0F) == kUnknown);
  Calls calls;
  const Tensor exact = calls.with_bound({0}, {0});
  CHECK(calls.bound_of_call("aten.pow.Tensor_Scalar", {exact, 1.5})[0] < 0x1p-100F);
}

TEST_CASE("a comparison is exact where no bound reaches over it") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const auto is_exact = [](std::string_view target, float x, float bound, auto other) {
    Calls calls;
    const Tensor value = calls.with_bound({x}, {bound});
    std::vector<Value> args = {value};
    if constexpr (std::is_same_v<decltype(other), double>)
      args.emplace_back(other);
    else
      other(calls, args);
    calls.bound_of_call(target, args);
    return calls.bounds().without_bound().empty();
  };
  for (const std::string_view target : {"aten.eq.Scalar", "aten.ne.Scalar", "aten.lt.Scalar",
                                        "aten.le.Scalar", "aten.gt.Scalar", "aten.ge.Scalar"}) {
    CAPTURE(target);
    CHECK(is_exact(target, 1, 0.25F, 0.5));
    CHECK_FALSE(is_exact(target, 1, 0.5F, 0.5));
    CHECK(is_exact(target, 0.5F, 0, 0.5));
    CHECK(is_exact(target, 1, 0.25F, std::numeric_limits<double>::infinity()));
    CHECK_FALSE(is_exact(target, 1, kUnknown, std::numeric_limits<double>::infinity()));
  }
  const auto itself = [](Calls&, std::vector<Value>& args) { args.push_back(args[0]); };
  const auto near = [](Calls& calls, std::vector<Value>& args) {
    args.emplace_back(calls.with_bound({2}, {0.5F}));
  };
  CHECK(is_exact("aten.eq.Tensor", 1, 0.25F, itself));
  CHECK_FALSE(is_exact("aten.eq.Tensor", 1, kUnknown, itself));
  CHECK(is_exact("aten.lt.Tensor", 1, 0.25F, near));
  CHECK_FALSE(is_exact("aten.lt.Tensor", 1, 0.625F, near));
  const auto alone = [](Calls&, std::vector<Value>&) {};
  for (const std::string_view target : {"aten.isnan.default", "aten.isinf.default"}) {
    CHECK(is_exact(target, 1, 0.25F, alone));
    CHECK_FALSE(is_exact(target, 1, kUnknown, alone));
  }
}

TEST_CASE("integers become numbers that are off by their rounding") {
  Calls calls;
  Tensor counts = make_tensor(calls.memory(), DType::kInt64, {1});
  store_integer(counts, 0, 3);
  CHECK(calls.bound_of_call("aten._to_copy.default", {counts, DType::kFloat32})[0] == Approx(3 * 0x1p-24));
  CHECK(calls.bounds().without_bound().empty());
}

TEST_CASE("a quotient is bounded where the divisor is known not to be 0") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  Calls calls;
  const Tensor squares = calls.with_bound({0, 0x1p-20F, 1}, {0x1p-20F, 0x1p-20F, 0});
  const std::vector<float> of_roots = calls.bound_of_call("aten.sqrt.default", {squares});
  CHECK(of_roots[0] >= 0x1p-10F);
  CHECK(of_roots[0] < 1.01F * 0x1p-10F);
  CHECK(of_roots[1] >= 0x1p-10F);
  const std::vector<float> of_others =
      calls.bound_of_call("aten.sqrt.default", {calls.with_bound({-1, 4}, {0.5F, 0})});
  CHECK_FALSE(std::isfinite(of_others[0]));
  CHECK(of_others[1] == 0x1p-23F);
  ErrorBounds& bounds = calls.bounds();
  const auto follow = [&](std::string_view target, const std::vector<Value>& args) {
    const OpInfo& op = *find_op(target);
    bounds.keep_written(op, args);
    const Tensor result = bounds.apply(target, args);
    bounds.follow({op, args, result});
    return result;
  };
  const Tensor one = calls.with_bound({1, 1, 1}, {0, 0, 0});
  const Tensor roots = follow("aten.sqrt.default", {squares});
  const auto divided = [&] {
    const Tensor bound = bounds.find_or_zero(follow("aten.div.Tensor", {one, roots}));
    return std::vector<float>(bound.data<float>(), bound.data<float>() + 3);
  };
  CHECK(bounds.floor_of(roots) == 0.0);
  CHECK(divided()[0] == kUnknown);
  CHECK(divided()[2] < 0x1p-22F);
  follow("aten.div_.Scalar", {roots, 0.5});
  follow("aten.add_.Scalar", {roots, 0.25, std::int64_t{1}});
  CHECK(bounds.floor_of(roots) == 0.25);
  // |1 / X| is at most 4, and so is |1 / x|.
  CHECK(divided()[0] >= 4 * 4 * 2 * of_roots[0]);
  CHECK(divided()[0] < 4.1F * 4 * 2 * of_roots[0]);
  follow("aten.mul_.Scalar", {roots, -1.0});
  CHECK(bounds.floor_of(roots) == std::nullopt);
}

// What a rule would read is no longer there, or not bounded.
TEST_CASE("a quotient that is written over its divisor has no bound, nor has one of complex numbers") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  Calls calls;
  ErrorBounds& bounds = calls.bounds();
  const Tensor x = calls.with_bound({1, 2}, {0.25F, 0});
  const std::vector<Value> over_divisor = {x, calls.view(x, {2})};
  bounds.keep_written(*find_op("aten.div_.Tensor"), over_divisor);
  CHECK(calls.bound_of_call("aten.div_.Tensor", over_divisor) == std::vector<float>{kUnknown, kUnknown});
  const auto complex = [&](const Tensor& parts) {
    return bounds.apply("aten.view_as_complex.default", {calls.view(parts, {1, 2})});
  };
  const Tensor z = complex(calls.with_bound({1, 2}, {0.25F, 0.25F})), w = complex(calls.tensor({3, 4}));
  for (const auto& [target, args] : {std::pair{"aten.div.Tensor", std::vector<Value>{z, w}},
                                     {"aten.addcdiv.default", {z, w, w, 1.0}},
                                     {"aten.addcdiv.default", {w, z, complex(calls.tensor({1, 1})), 1.0}}}) {
    CAPTURE(target);
    const Tensor result = complex(calls.tensor({1, 1}));
    bounds.follow({*find_op(target), args, result});
    CHECK(bounds.find_or_zero(result).data<float>()[0] == kUnknown);
  }
}

TEST_CASE("without a rule nothing is known of all that a call writes") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  Calls calls;
  ErrorBounds& bounds = calls.bounds();
  const Tensor x = calls.with_bound({1, 2}, {0.25F, 0}), first = calls.tensor({1}),
               second = calls.tensor({2});
  const OpInfo& op = *find_op("aten.split_with_sizes_copy.out");
  const std::vector<Value> args = {x, Value::list({std::int64_t{1}, std::int64_t{1}}), std::int64_t{0},
                                   Value::list({first, second})};
  bounds.keep_written(op, args);
  for (const Tensor& written : {first, second}) CHECK(bounds.ideals().has_any(written));
  bounds.follow({op, args, Value()});
  for (const Tensor& written : {first, second})
    CHECK(bounds.find_or_zero(written).data<float>()[0] == kUnknown);
  CHECK(bounds.without_bound() == std::set<std::string>{"aten.split_with_sizes_copy.out"});
}

TEST_CASE("a product that is stored in float64 is added up as its operands are") {
  Calls calls;
  const Tensor rows = calls.view(calls.tensor({1, 1, 1, 1}), {2, 2}),
               weights = calls.view(calls.tensor({1, 1, 1, 1}), {1, 2, 2});
  Tensor ends = make_tensor(calls.memory(), DType::kInt32, {1});
  store_integer(ends, 0, 2);
  for (const float bound :
       calls.bound_of_call("aten._grouped_mm.default", {rows, weights, ends, Value(), DType::kFloat64}))
    CHECK(bound >= 2 * 2 * 0x1p-24F);
}

TEST_CASE("which elements of a row come first is exact where the next one is further than both are off") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  // The bounds of values and of indices; none: unknown.
  const auto bounds_of = [](std::string_view target, std::vector<Value> args, const std::vector<float>& row,
                            const std::vector<float>& bound) {
    Calls calls;
    args.insert(args.begin(), calls.with_bound(row, bound));
    const OpInfo& op = *find_op(target);
    const Value result = calls.run(target, args);
    calls.bounds().follow({op, args, result});
    std::vector<std::vector<float>> made;
    const auto add = [&](const Value& value) {
      const Tensor of = calls.bounds().find_or_zero(value.tensor());
      made.emplace_back(of.data<float>(), of.data<float>() + of.numel());
    };
    if (result.is_tensor()) {
      add(result);
    } else {
      for (const Value& element : result.items()) add(element);
    }
    return made;
  };
  using Rows = std::vector<std::vector<float>>;
  const std::vector<Value> two = {std::int64_t{2}, std::int64_t{-1}, true, true};
  const std::vector<Value> two_least = {std::int64_t{2}, std::int64_t{-1}, false, true};
  const std::vector<float> row = {1, 8, 4, 1.25F}, bound = {0.25F, 0.5F, 0, 0.25F};
  CHECK(bounds_of("aten.topk.default", two, row, bound) == Rows{{0.5F, 0.5F}, {0, 0}});
  // 1 and 1.25 are not told apart, nor is what follows 4 where all may be off by 1.5.
  CHECK(bounds_of("aten.topk.default", two_least, row, bound) ==
        Rows{{kUnknown, kUnknown}, {kUnknown, kUnknown}});
  CHECK(bounds_of("aten.topk.default", two, row, {1.5F, 0, 0, 0}) ==
        Rows{{kUnknown, kUnknown}, {kUnknown, kUnknown}});
  CHECK(bounds_of("aten.topk.default", two, row, {0, 0, 0, 0}) == Rows{{0, 0}, {0, 0}});
  const std::vector<Value> last = {std::int64_t{-1}, false};
  const Rows four_unknown = {{kUnknown, kUnknown, kUnknown, kUnknown},
                             {kUnknown, kUnknown, kUnknown, kUnknown}};
  CHECK(bounds_of("aten.sort.default", last, row, bound) == four_unknown);
  CHECK(bounds_of("aten.sort.default", last, {1, 8, 4, 2.5F}, bound) ==
        Rows{{0.5F, 0.5F, 0.5F, 0.5F}, {0, 0, 0, 0}});
  CHECK(bounds_of("aten.argsort.default", last, {1, 8, 4, 2.5F}, bound) == Rows{{0, 0, 0, 0}});
  CHECK(bounds_of("aten.argmax.default", last, row, bound) == Rows{{0}});
  CHECK(bounds_of("aten.argmin.default", last, row, bound) == Rows{{kUnknown}});
  CHECK(bounds_of("aten.max.dim", last, row, bound) == Rows{{0.5F}, {0}});
  CHECK(bounds_of("aten.min.dim", last, {8, 1, 4, 2.5F}, bound) == Rows{{0.5F}, {0}});
  // Equal elements that are exact are equal in both graphs.
  CHECK(bounds_of("aten.argmax.default", last, {4, 4, 1, 1}, {0, 0, 0, 0}) == Rows{{0}});
  CHECK(bounds_of("aten.argmax.default", last, {4, 4, 1, 1}, {0.25F, 0, 0, 0}) == Rows{{kUnknown}});
}

// Half of what float32 takes for the difference of 1 and a float64 near it.
TEST_CASE("elements of a row are told apart in their own type") {
  Calls calls;
  const Tensor row = make_tensor(calls.memory(), DType::kFloat64, {2});
  row.data<double>()[0] = 1;
  row.data<double>()[1] = 1 + 0x1.1p-24;
  calls.set_bound(row, {0x1.4p-25F, 0x1.4p-25F});
  CHECK(calls.bound_of_call("aten.argmax.default", {row, std::int64_t{0}, false}) ==
        std::vector<float>{std::numeric_limits<float>::infinity()});
  calls.set_bound(row, {0x1p-26F, 0x1p-26F});
  CHECK(calls.bound_of_call("aten.argmax.default", {row, std::int64_t{0}, false}) == std::vector<float>{0});
}

TEST_CASE("rows of any dimension are added where an index says") {
  for (const std::string_view target : {"aten.index_add.default", "aten.index_add_.default"}) {
    CAPTURE(target);
    Calls calls;
    const Tensor self = calls.view(calls.with_bound({0, 0, 0, 0}, {0, 0, 0, 0}), {2, 2}),
                 source = calls.view(calls.with_bound({1, 2, 3, 4}, {0.25F, 0.5F, 1, 2}), {2, 2});
    Tensor index = make_tensor(calls.memory(), DType::kInt64, {2});
    index.data<std::int64_t>()[0] = 1;
    index.data<std::int64_t>()[1] = 1;
    const OpInfo& op = *find_op(target);
    const std::vector<Value> args = {self, std::int64_t{1}, index, source, 1.0};
    calls.bounds().keep_written(op, args);
    const std::vector<float> bound = calls.bound_of_call(target, args);
    REQUIRE(bound.size() == 4);
    CHECK(bound[0] < 1e-30F);
    CHECK(bound[2] < 1e-30F);
    CHECK(bound[1] == Approx(0.75).epsilon(1e-5));
    CHECK(bound[3] == Approx(3).epsilon(1e-5));
  }
}

TEST_CASE("a sum of integers that is stored as a fraction is off by its rounding alone") {
  for (const std::string_view target : {"aten.sum.default", "aten.cumsum.default"}) {
    CAPTURE(target);
    Calls calls;
    const Tensor counts = calls.cast(calls.tensor({-3, 5, -4}), DType::kInt64);
    const bool is_scan = target == "aten.cumsum.default";
    const std::vector<Value> args = is_scan ? std::vector<Value>{counts, std::int64_t{0}, DType::kFloat32}
                                            : std::vector<Value>{counts, DType::kFloat32};
    const std::vector<float> bound = calls.bound_of_call(target, args);
    CHECK(bound.back() >= 12 * 0x1p-24F);
    CHECK(bound.back() <= 100 * 0x1p-24F);
  }
}

TEST_CASE("integers that are written over are exact where all that is written is") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  using Args = std::vector<Value>;
  const auto bound_of = [](std::string_view target, auto make_args, bool is_known) {
    Calls calls;
    const Tensor self = calls.cast(calls.tensor({1, 2, 3}), DType::kInt64),
                 source = calls.cast(calls.tensor({7}), DType::kInt64),
                 index = calls.cast(calls.tensor({1}), DType::kInt64);
    calls.make_unknown(self);
    calls.bound_of_call("aten.zero_.default", {self});
    if (!is_known) calls.make_unknown(source);
    return calls.bound_of_call(target, make_args(self, index, source));
  };
  const auto put = [](const Tensor& self, const Tensor& index, const Tensor& source) {
    return Args{self, Value::list({index}), source, false};
  };
  const auto scatter = [](const Tensor& self, const Tensor& index, const Tensor& source) {
    return Args{self, std::int64_t{0}, index, source};
  };
  const auto reduce = [](const Tensor& self, const Tensor& index, const Tensor& source) {
    return Args{self, std::int64_t{0}, index, source, Text{ArgKind::kText, "amax"}, true};
  };
  const std::vector<float> exact = {0, 0, 0}, unknown = {kUnknown, kUnknown, kUnknown};
  for (const bool is_known : {true, false}) {
    CAPTURE(is_known);
    const std::vector<float>& expected = is_known ? exact : unknown;
    CHECK(bound_of("aten.index_put_.default", put, is_known) == expected);
    CHECK(bound_of("aten.scatter_.src", scatter, is_known) == expected);
    CHECK(bound_of("aten.scatter_add_.default", scatter, is_known) == expected);
    CHECK(bound_of("aten.scatter_reduce.two", reduce, is_known) == expected);
  }
}

TEST_CASE("a softmax of no elements is exact") {
  for (const std::string_view target : {"aten._softmax.default", "aten._log_softmax.default"}) {
    CAPTURE(target);
    Calls calls;
    const Tensor x = make_tensor(calls.memory(), DType::kFloat32, {2, 0});
    calls.bounds().set(x, x);
    CHECK(calls.bound_of_call(target, {x, std::int64_t{-1}, false}).empty());
    CHECK(calls.bounds().without_bound().empty());
  }
}

TEST_CASE("a sum of integers is exact where they are") {
  Calls calls;
  const Tensor counts = calls.cast(calls.tensor({1, 0, 1}), DType::kInt64);
  const std::vector<Value> all = {Value::list({std::int64_t{0}}), false};
  CHECK(calls.bound_of_call("aten.sum.dim_IntList", {counts, all[0], all[1], Value()}) ==
        std::vector<float>{0});
  CHECK(calls.bound_of_call("aten.cumsum.default", {counts, std::int64_t{0}, Value()}) ==
        std::vector<float>{0, 0, 0});
  calls.make_unknown(counts);
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  CHECK(calls.bound_of_call("aten.sum.dim_IntList", {counts, all[0], all[1], Value()}) ==
        std::vector<float>{kUnknown});
}

TEST_CASE("variance and deviation move no further than their bound") {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (const float size : {0.0F, 1.0F, 100.0F}) {
    for (const float off : {1e-6F, 0.01F, 3.0F}) {
      std::vector<float> row(9), moved(9);
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = size + draw(random);
        moved[i] = row[i] + off * draw(random);
      }
      for (const std::string_view target : {"aten.var.correction", "aten.std.correction"}) {
        for (const std::int64_t correction : {0, 1}) {
          CAPTURE(target, size, off, correction);
          Calls calls;
          const auto value_of = [&](const std::vector<float>& x) {
            return *calls.run(target, {calls.tensor(x), Value::list({std::int64_t{0}}), correction, false})
                        .tensor()
                        .data<float>();
          };
          const std::vector<float> bound =
              calls.bound_of_call(target, {calls.with_bound(row, std::vector<float>(9, off)),
                                           Value::list({std::int64_t{0}}), correction, false});
          CHECK(std::abs(value_of(moved) - value_of(row)) <= bound.at(0));
          CHECK(bound.at(0) < 20 * off * (1 + off) + 1e-3F * (1 + size));
        }
      }
    }
  }
}

TEST_CASE("what is no number is left out of a sum where it is exact") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bound : {0.0F, kUnknown}) {
    Calls calls;
    const Tensor x = calls.with_bound({nan, 2}, {bound, 0.5F});
    const float found = calls.bound_of_call("aten.nansum.default", {x, Value(), false, Value()})[0];
    CHECK((found > 0.5F && found < 0.501F) == (bound == 0));
  }
}

TEST_CASE("a histogram of exact elements is exact while its type has all the counts") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const auto count = [](Calls& calls, const Tensor& x) {
    return calls.bound_of_call("aten.histc.default", {x, std::int64_t{2}, 0.0, 2.0});
  };
  for (const float bound : {0.0F, 0.25F}) {
    Calls calls;
    CHECK(count(calls, calls.with_bound({0, 1, 1}, {0, bound, 0})) ==
          std::vector<float>(2, bound == 0 ? 0 : kUnknown));
  }
  Calls calls;
  for (const std::size_t many : {std::size_t{128}, std::size_t{256}}) {
    const Tensor x = calls.cast(calls.tensor(std::vector<float>(many, 1)), DType::kBfloat16);
    CHECK(count(calls, x) == std::vector<float>(2, many == 128 ? 0 : kUnknown));
  }
}

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What float64 gives of elements moved by up to their bounds, and how that lies in the bound of
// what float32 gave of those as they are.
class MovedRows {
 public:
  MovedRows(std::vector<float> numbers, std::vector<float> allowed)
      : numbers_(std::move(numbers)), allowed_(std::move(allowed)) {
    row_ =
        calls_.view(calls_.tensor(numbers_), {static_cast<std::int64_t>(numbers_.size()) / kLength, kLength});
    calls_.bounds().set(row_, calls_.view(calls_.tensor(allowed_), row_.sizes));
  }
  // The largest share of its bound by which an element of a result is off; none: unbounded.
  std::optional<double> share_of(std::string_view target, std::vector<Value> args,
                                 DType dtype = DType::kFloat32) {
    const OpInfo& op = *find_op(target);
    Tensor row = row_;
    if (dtype != DType::kFloat32) {
      row = calls_.cast(row_, dtype);
      calls_.bounds().set(row, calls_.view(calls_.tensor(allowed_), row_.sizes));
    }
    args.insert(args.begin(), row);
    const Value result = calls_.run(target, args);
    calls_.bounds().follow({op, args, result});
    REQUIRE(calls_.bounds().without_bound().empty());
    const Buffer<double> base = read_numbers(row);
    double share = 0;
    for (int trial = 0; trial < 30; ++trial) {
      const Tensor moved = make_tensor(calls_.memory(), DType::kFloat64, row_.sizes);
      for (std::size_t i = 0; i < numbers_.size(); ++i)
        moved.data<double>()[i] =
            std::isinf(base[i]) ? base[i] : base[i] + static_cast<double>(allowed_[i]) * side(trial);
      args[0] = moved;
      const Value other = calls_.run(target, args);
      const auto add = [&](const Tensor& made, const Tensor& exact) {
        const Buffer<double> a = read_numbers(made), b = read_numbers(exact),
                             bound = read_numbers(calls_.bounds().find_or_zero(made));
        for (std::size_t i = 0; i < a.size(); ++i)
          if (a[i] != b[i]) share = std::fmax(share, std::abs(a[i] - b[i]) / bound[i]);
        for (const double of : bound) is_bounded_ = is_bounded_ && std::isfinite(of);
      };
      if (result.is_tensor()) {
        add(result.tensor(), other.tensor());
      } else {
        for (std::size_t i = 0; i < result.items().size(); ++i)
          add(result.items()[i].tensor(), other.items()[i].tensor());
      }
    }
    return is_bounded_ ? std::optional(share) : std::nullopt;
  }

  static constexpr std::int64_t kLength = 9;

 private:
  double side(int trial) {
    if (trial < 20) return engine_() % 2 == 0 ? 0.999 : -0.999;
    return std::uniform_real_distribution<double>(-1, 1)(engine_);
  }

  Calls calls_;
  std::vector<float> numbers_, allowed_;
  Tensor row_;
  bool is_bounded_ = true;
  std::mt19937 engine_{3};
};

}  // namespace

// What a mask adds is rounded by as much as the other elements are, or more.
TEST_CASE("rows with masked elements are bounded by the others") {
  const std::int64_t last = -1;
  const std::vector<Value> softmax = {last, false};
  for (const float mask : {0.0F, -30.0F, -70.0F, -1e4F, -1e9F, -3.4e38F, kMinusInfinity}) {
    for (const float off : {1e-6F, 1e-2F}) {
      CAPTURE(mask, off);
      std::mt19937 engine(11);
      std::uniform_real_distribution<float> draw(-8, 8);
      std::vector<float> numbers, allowed;
      for (int i = 0; i < 8 * MovedRows::kLength; ++i) {
        const bool is_masked = i % MovedRows::kLength > i / MovedRows::kLength;
        const float x = draw(engine) + (is_masked ? mask : 0);
        numbers.push_back(x);
        allowed.push_back(std::isinf(x) ? 0 : off + (is_masked ? std::abs(x) * 0x1p-8F : 0));
      }
      for (const std::string_view target : {"aten._softmax.default", "aten._log_softmax.default"}) {
        CAPTURE(target);
        const auto share = MovedRows(numbers, allowed).share_of(target, softmax);
        REQUIRE(share);
        CHECK(*share <= 1);
        if (off > 1e-3F) CHECK(*share > 0.1);
      }
      const auto safe = MovedRows(numbers, allowed).share_of("aten._safe_softmax.default", {last, Value()});
      REQUIRE(safe);
      CHECK(*safe <= 1);
      const auto sum =
          MovedRows(numbers, allowed).share_of("aten.logsumexp.default", {Value::list({last}), false});
      REQUIRE(sum);
      CHECK(*sum <= 1);
      if (off > 1e-3F) CHECK(*sum > 0.05);
    }
  }
}

TEST_CASE("a row of which all is masked is bounded where it is zeros") {
  const std::vector<float> row(MovedRows::kLength, kMinusInfinity), exact(MovedRows::kLength, 0),
      unknown(MovedRows::kLength, std::numeric_limits<float>::infinity());
  const std::vector<Value> args = {std::int64_t{-1}, Value()};
  CHECK(MovedRows(row, exact).share_of("aten._safe_softmax.default", args) == 0.0);
  CHECK_FALSE(MovedRows(row, unknown).share_of("aten._safe_softmax.default", args));
  CHECK_FALSE(MovedRows(row, exact).share_of("aten._softmax.default", {std::int64_t{-1}, false}));
}

TEST_CASE("products, variances and deviations of moved elements lie within their bounds") {
  const std::int64_t last = -1;
  const Value rows = Value::list({last});
  std::mt19937 engine(5);
  for (const float size : {1e-25F, 1e-6F, 1.0F, 30.0F, 1e9F}) {
    for (const float off : {0.0F, 1e-6F, 0.1F}) {
      for (const float spread : {0.0F, 1e-3F, 2.0F}) {
        for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
          CAPTURE(size, off, spread, info(dtype).short_name);
          std::uniform_real_distribution<float> draw(1 - spread, 1 + spread);
          std::vector<float> numbers, allowed;
          for (int i = 0; i < 4 * MovedRows::kLength; ++i) {
            numbers.push_back(size * draw(engine));
            allowed.push_back(size * off);
          }
          const auto check = [&](std::string_view target, std::vector<Value> args) {
            CAPTURE(target);
            const auto share = MovedRows(numbers, allowed).share_of(target, std::move(args), dtype);
            if (share) CHECK(*share <= 1);
            if (size < 100) CHECK(share.has_value());
          };
          check("aten.var.correction", {rows, std::int64_t{1}, false});
          check("aten.std.correction", {rows, std::int64_t{1}, false});
          check("aten.var_mean.correction", {rows, std::int64_t{0}, true});
          check("aten.std_mean.correction", {rows, std::int64_t{0}, false});
          check("aten.prod.dim_int", {last, false, Value()});
          check("aten.cumprod.default", {last, Value()});
        }
      }
    }
  }
}

TEST_CASE("a product whose steps leave the range of its type is bounded by what is left of them") {
  const auto share_of = [](std::vector<float> numbers) {
    const std::size_t count = numbers.size();
    return MovedRows(std::move(numbers), std::vector<float>(count, 0))
        .share_of("aten.prod.dim_int", {std::int64_t{-1}, false, Value()});
  };
  const auto lost = share_of({1e-30F, 1e-30F, 1e30F, 1e30F, 1, 1, 1, 1, 1});
  CHECK((!lost || *lost <= 1));
  CHECK_FALSE(share_of({1e30F, 1e30F, 1e-30F, 1e-30F, 1, 1, 1, 1, 1}));
}

TEST_CASE("what is infinite in an operand stays so, and what overflows has no bound") {
  Calls calls;
  const Tensor x = calls.with_bound({1, 3e38F, 2}, {0.25F, 0.5F, 0}),
               mask = calls.tensor({kMinusInfinity, 3e38F, 0});
  for (const std::string_view target : {"aten.add.Tensor", "aten.rsub.Tensor", "aten.sub.Tensor"}) {
    CAPTURE(target);
    const std::vector<float> bound = calls.bound_of_call(target, {x, mask, std::int64_t{1}});
    CHECK(bound[0] == 0);
    CHECK(std::isinf(bound[1]) == (target == "aten.add.Tensor"));
    CHECK(bound[2] < 1e-6F);
  }
  const Tensor masked = calls.with_bound({kMinusInfinity, 3e38F, 2}, {0, 0, 0.25F});
  CHECK(calls.bound_of_call("aten.mul.Scalar", {masked, 2.0})[0] == 0);
  CHECK(std::isinf(calls.bound_of_call("aten.mul.Scalar", {masked, 2.0})[1]));
  CHECK(calls.bound_of_call("aten.div.Scalar", {masked, 8.0})[0] == 0);
  CHECK(calls.bound_of_call("aten._to_copy.default", {masked, DType::kBfloat16})[0] == 0);
}

TEST_CASE("what is drawn is exact, and what is kept of a value has its bound") {
  constexpr float kUnknown = std::numeric_limits<float>::infinity();
  const auto follow = [](Calls& calls, std::string_view target, std::vector<Value> args) {
    const OpInfo& op = *find_op(target);
    const unsigned given = (1U << args.size()) - 1;
    args.resize(op.params.size());
    KernelCall call(op, args, given, calls.memory());
    call.set_draw(3);
    calls.bounds().keep_written(op, args);
    const Value result = table().find(op)(call);
    calls.bounds().follow({op, call.args(), result});
    return result;
  };
  const auto bound_of = [](Calls& calls, const Value& value) {
    const Tensor bound = calls.bounds().find_or_zero(value.tensor());
    return std::vector<float>(bound.data<float>(), bound.data<float>() + bound.numel());
  };
  const std::vector<float> numbers(16, 0.5F), allowed(16, 0.25F), exact(16, 0), unknown(16, kUnknown);
  for (const std::string_view target :
       {"aten.rand_like.default", "aten.bernoulli.p", "aten.uniform_.default"}) {
    CAPTURE(target);
    Calls calls;
    std::vector<Value> args = {calls.with_bound(numbers, allowed)};
    if (target == "aten.bernoulli.p") args.emplace_back(0.5);
    if (target == "aten.uniform_.default") args.insert(args.end(), {Value(0.0), Value(1.0)});
    CHECK(bound_of(calls, follow(calls, target, args)) == exact);
    CHECK(calls.bounds().without_bound().empty());
  }
  // What a chance decides may be another one. About a mean the same numbers lie.
  Calls calls;
  const std::vector<float> about =
      bound_of(calls, follow(calls, "aten.normal.Tensor_float", {calls.with_bound(numbers, allowed), 2.0}));
  for (const float bound : about) CHECK(bound == Approx(0.25).margin(1e-5));
  CHECK(bound_of(calls, follow(calls, "aten.normal.Tensor_float", {calls.with_bound(numbers, exact), 2.0})) ==
        exact);
  CHECK(bound_of(calls, follow(calls, "aten.bernoulli.default", {calls.with_bound(numbers, allowed)})) ==
        unknown);
  CHECK(bound_of(calls, follow(calls, "aten.bernoulli.default", {calls.with_bound(numbers, exact)})) ==
        exact);
  for (const double p : {0.0, 0.5, 1.0}) {
    CAPTURE(p);
    const Tensor x = calls.with_bound(numbers, allowed);
    const Value made = follow(calls, "aten.native_dropout.default", {x, p, true});
    const std::vector<float> bound = bound_of(calls, made.items().at(0));
    const Tensor &output = made.items().at(0).tensor(), ideal = calls.bounds().ideals().find(output);
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const bool is_kept = output.data<float>()[i] != 0;
      CHECK(bound[i] == Approx(is_kept ? 0.25 / (1 - p) : 0).margin(1e-6));
      CHECK(ideal.data<double>()[i] == Approx(is_kept ? 0.5 / (1 - p) : 0));
    }
    CHECK(bound_of(calls, made.items().at(1)) == exact);
  }
}

TEST_CASE("the same infinity in both graphs is within its bound") {
  Calls calls;
  const auto compare = [&](float a, float b, float bound) {
    const auto value = [&](float x) {
      return BoundedValue{calls.tensor({1, x}), calls.tensor({0x1p-20F, bound}),
                          calls.cast(calls.tensor({1, x}), DType::kFloat64)};
    };
    return compare_bounded(value(a), {value(b)});
  };
  const float infinity = -kMinusInfinity;
  CHECK(compare(infinity, infinity, 0).is_within);
  CHECK(compare(infinity, infinity, 0).is_bounded);
  CHECK(compare(infinity, infinity, 0).has_ideals);
  CHECK_FALSE(compare(infinity, infinity, infinity).is_bounded);
  CHECK_FALSE(compare(infinity, kMinusInfinity, 0).is_bounded);
  CHECK_FALSE(compare(kMinusInfinity, 1, 0).is_within);
}

}  // namespace epweave::replay
