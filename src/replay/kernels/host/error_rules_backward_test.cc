// Bounds of gradients: what an incoming gradient within its bound gives lies within the result's,
// and not far inside.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <random>

#include "ops/op.h"
#include "replay/bounds/error_bounds.h"
#include "replay/check/bound_comparison.h"
#include "replay/kernels/host/cpu_table_test.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

class Case {
 public:
  Tensor random(Extents sizes) {
    Tensor made = make_tensor(memory_, DType::kFloat32, std::move(sizes));
    std::uniform_real_distribution<float> number(-1, 1);
    for (std::int64_t i = 0; i < made.numel(); ++i) made.data<float>()[i] = number(engine_);
    return made;
  }
  Tensor integers(Extents sizes, std::int64_t number) {
    Tensor made = make_tensor(memory_, DType::kInt32, std::move(sizes));
    for (std::int64_t i = 0; i < made.numel(); ++i) store_integer(made, i, number);
    return made;
  }
  Value run(std::string_view target, const std::vector<Value>& args) {
    const OpInfo& op = *find_op(target);
    KernelCall call(op, args, (1U << args.size()) - 1, memory_);
    return table().find(op)(call);
  }

  // Argument `grad` gets bounds of up to 2^-8 of its size, then wanders within them. Of all results
  // that are tensors: the largest share of its bound that an element moved by.
  double largest_share(std::string_view target, std::vector<Value> args, std::size_t grad) {
    const Tensor given = args[grad].tensor();
    Tensor allowed = random(given.sizes);
    for (std::int64_t i = 0; i < allowed.numel(); ++i)
      allowed.data<float>()[i] = std::abs(allowed.data<float>()[i]) * 0x1p-8F;
    bounds_.set(given, allowed);
    const Value result = run(target, args);
    bounds_.follow({*find_op(target), args, result});
    REQUIRE(bounds_.without_bound().empty());
    double share = 0;
    for (int trial = 0; trial < 20; ++trial) {
      const Tensor moved = random(given.sizes);
      for (std::int64_t i = 0; i < moved.numel(); ++i)
        moved.data<float>()[i] = given.data<float>()[i] +
                                 allowed.data<float>()[i] * (moved.data<float>()[i] < 0 ? -0.999F : 0.999F);
      args[grad] = moved;
      share = std::max(share, compare(result, run(target, args)));
    }
    return share;
  }

  ErrorBounds& bounds() { return bounds_; }
  Memory& memory() { return memory_; }

 private:
  double compare(const Value& a, const Value& b) {
    if (a.is_tensor()) {
      const Tensor bound = bounds_.find_or_zero(a.tensor());
      double share = 0;
      for (std::int64_t i = 0; i < bound.numel(); ++i) {
        const double moved = std::abs(static_cast<double>(a.tensor().data<float>()[i]) -
                                      static_cast<double>(b.tensor().data<float>()[i]));
        if (moved > 0) share = std::max(share, moved / static_cast<double>(bound.data<float>()[i]));
      }
      return share;
    }
    double share = 0;
    if (a.is<List>())
      for (std::size_t i = 0; i < a.items().size(); ++i)
        share = std::max(share, compare(a.items()[i], b.items()[i]));
    return share;
  }

  HostMemory memory_;
  ErrorBounds bounds_{table(), memory_};
  std::mt19937 engine_{7};
};

// Attention of 12 queries to 12 keys, each seeing those before it.
struct Attention {
  Case& c;
  Tensor query = c.random({1, 4, 12, 8}), key = c.random({1, 2, 12, 8}), value = c.random({1, 2, 12, 6});
  Value score = Function{"score", 5, [](std::span<const Value> args) { return args[0]; }, 0};
  Value joint = Function{"joint", 6,
                         [](std::span<const Value> args) {
                           return Value::list({args[5], Value(), Value(), Value(), Value()});
                         },
                         5};

  Value block_mask(std::int64_t first_query, std::int64_t queries) const {
    Case* owner = &c;
    const Value mask =
        Function{"mask", 4, [owner, first_query](std::span<const Value> args) {
                   const Value row = owner->run("aten.add.Tensor", {args[2], first_query, std::int64_t{1}});
                   return owner->run("aten.ge.Tensor", {row, args[3]});
                 }};
    const Value count = c.integers({1, 1, 1}, 1), list = c.integers({1, 1, 1, 1}, 0), none;
    return Value::tuple({queries, std::int64_t{12}, count, list, none, none, count, list, none, none, none,
                         none, none, none, std::int64_t{16}, std::int64_t{16}, mask});
  }
  // The arguments of the backward call for some queries of all.
  std::vector<Value> backward(const Tensor& grad, std::int64_t first, std::int64_t queries) {
    const auto rows = [&](const Tensor& all) {
      return c.run("aten.slice.Tensor", {all, std::int64_t{2}, first, first + queries, std::int64_t{1}});
    };
    const Value none_captured = Value::tuple({});
    const Value forward =
        c.run("higher_order.flex_attention", {rows(query), key, value, score, block_mask(first, queries), 0.3,
                                              Dict{}, none_captured, none_captured});
    return {rows(query),
            key,
            value,
            forward.items()[0],
            forward.items()[1],
            rows(grad),
            Value(),
            score,
            joint,
            block_mask(first, queries),
            0.3,
            Dict{},
            none_captured,
            none_captured};
  }
};

constexpr std::string_view kFlexBackward = "higher_order.flex_attention_backward";

}  // namespace

TEST_CASE("gradients of float64 stay within bounds, too") {
  Case c;
  const auto wide = [&](const Tensor& tensor) {
    return c.bounds().apply("aten._to_copy.default", {tensor, DType::kFloat64});
  };
  const Tensor grad = wide(c.random({6, 8})), input = wide(c.random({6, 8})), weight = wide(c.random({8})),
               bias = wide(c.random({8}));
  const Tensor allowed = c.bounds().scale(c.bounds().magnitude(c.random({6, 8})), 0x1p-8);
  const Tensor moved = c.bounds().apply("aten.add.Tensor", {grad, wide(c.bounds().scale(allowed, 0.999))});
  const Value shape = Value::list({std::int64_t{8}});
  const Value norm = c.run("aten.native_layer_norm.default", {input, shape, weight, bias, 1e-5});
  const auto gradients = [&](const Tensor& of) {
    return std::vector<Value>{
        of, input, shape, norm.items()[1], norm.items()[2], weight, bias, Value::list({true, true, true})};
  };
  constexpr std::string_view kTarget = "aten.native_layer_norm_backward.default";
  c.bounds().set(grad, allowed);
  const std::vector<Value> args = gradients(grad);
  const Value result = c.run(kTarget, args), other = c.run(kTarget, gradients(moved));
  c.bounds().follow({*find_op(kTarget), args, result});
  CHECK(c.bounds().without_bound().empty());
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const Tensor& gradient = result.items()[i].tensor();
    REQUIRE(gradient.dtype == DType::kFloat64);
    const Buffer<double> a = read_numbers(gradient), b = read_numbers(other.items()[i].tensor()),
                         bound = read_numbers(c.bounds().find_or_zero(gradient));
    double share = 0;
    for (std::size_t j = 0; j < a.size(); ++j) share = std::max(share, std::abs(a[j] - b[j]) / bound[j]);
    CHECK(share > 0.2);
    CHECK(share <= 1);
  }
}

TEST_CASE("what a gradient within its bound gives lies within the result's bound") {
  const std::int64_t last = -1;
  const auto check = [](std::string_view target, double share) {
    INFO(target);
    CHECK(share <= 1);
    CHECK(share > 0.3);  // the bound is what errors of unlucky signs would reach
  };
  {
    Case c;
    check("silu", c.largest_share("aten.silu_backward.default", {c.random({5, 40}), c.random({5, 40})}, 0));
  }
  for (const char* target :
       {"aten.sigmoid_backward.default", "aten.tanh_backward.default", "aten.threshold_backward.default",
        "aten.gelu_backward.default", "aten.softplus_backward.default", "aten.hardtanh_backward.default",
        "aten.log_sigmoid_backward.default", "aten.hardswish_backward.default",
        "aten.hardsigmoid_backward.default", "aten.mish_backward.default"}) {
    Case c;
    std::vector<Value> args = {c.random({5, 40}), c.random({5, 40})};
    const std::size_t params = find_op(target)->params.size();
    if (params == 4) args.insert(args.end(), {Value(target[5] == 'h' ? -0.5 : 1.0), Value(0.5)});
    if (params == 3)
      args.emplace_back(target[5] == 'g'   ? Value(Text{ArgKind::kText, "tanh"})
                        : target[5] == 'l' ? Value(c.random({5, 40}))
                                           : Value(0.25));
    check(target, c.largest_share(target, args, 0));
  }
  {
    Case c;
    const Tensor output = c.run("aten._softmax.default", {c.random({5, 8}), last, false}).tensor();
    check("softmax", c.largest_share("aten._softmax_backward_data.default",
                                     {c.random({5, 8}), output, last, DType::kFloat32}, 0));
  }
  {
    Case c;
    const Tensor output = c.run("aten._log_softmax.default", {c.random({5, 8}), last, false}).tensor();
    check("log_softmax", c.largest_share("aten._log_softmax_backward_data.default",
                                         {c.random({5, 8}), output, last, DType::kFloat32}, 0));
  }
  // Where the output moves, too.
  for (const std::string_view target :
       {"aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"}) {
    Case c;
    const std::string_view forward =
        target.find("log") != std::string_view::npos ? "aten._log_softmax.default" : "aten._softmax.default";
    const Tensor grad = c.random({5, 8}), output = c.run(forward, {c.random({5, 8}), last, false}).tensor();
    check(target, c.largest_share(target, {grad, output, last, DType::kFloat32}, 1));
    Case both;
    both.bounds().set(grad, both.bounds().scale(both.bounds().magnitude(grad), 0x1p-8));
    CHECK(both.largest_share(target, {grad, output, last, DType::kFloat32}, 1) <= 1);
  }
  {
    Case c;
    const Tensor input = c.random({6, 8}), weight = c.random({8});
    const Value norm =
        c.run("aten._fused_rms_norm.default", {input, Value::list({std::int64_t{8}}), weight, 1e-5});
    check("rms_norm", c.largest_share("aten._fused_rms_norm_backward.default",
                                      {c.random({6, 8}), input, Value::list({std::int64_t{8}}),
                                       norm.items()[1], weight, Value::list({true, true})},
                                      0));
  }
  for (const bool has_weight : {true, false}) {
    Case c;
    const Tensor input = c.random({6, 8});
    const Value shape = Value::list({std::int64_t{8}}), weight = has_weight ? Value(c.random({8})) : Value(),
                bias = has_weight ? Value(c.random({8})) : Value();
    const Value norm = c.run("aten.native_layer_norm.default", {input, shape, weight, bias, 1e-5});
    check("layer_norm", c.largest_share("aten.native_layer_norm_backward.default",
                                        {c.random({6, 8}), input, shape, norm.items()[1], norm.items()[2],
                                         weight, bias, Value::list({true, has_weight, has_weight})},
                                        0));
  }
  {
    Case c;
    const auto ones = [](std::int64_t number) { return Value::list({number}); };
    const std::int64_t groups = 2;
    check("convolution",
          c.largest_share("aten.convolution_backward.default",
                          {c.random({3, 4, 7}), c.random({3, 6, 9}), c.random({4, 3, 3}), ones(4), ones(1),
                           ones(0), ones(1), false, ones(0), groups, Value::list({true, true, true})},
                          0));
  }
  {
    Case c;
    Attention attention{c};
    const Tensor grad = c.random({1, 4, 12, 6});
    check("flex_attention", c.largest_share(kFlexBackward, attention.backward(grad, 0, 12), 5));
  }
  for (const bool is_causal : {false, true}) {
    Case c;
    const Tensor query = c.random({1, 4, 12, 8}), key = c.random({1, 2, 12, 8}),
                 value = c.random({1, 2, 12, 6});
    const Value forward = c.run("aten._scaled_dot_product_flash_attention.default",
                                {query, key, value, 0.0, is_causal, false, Value()});
    check("scaled_dot_product",
          c.largest_share(
              "aten._scaled_dot_product_flash_attention_backward.default",
              {c.random({1, 4, 12, 6}), query, key, value, forward.items()[0], forward.items()[1], Value(),
               Value(), std::int64_t{12}, std::int64_t{12}, 0.0, is_causal, Value(), Value(), Value()},
              0));
  }
}

TEST_CASE("gradients of keys that parts of the queries share lie within their bounds") {
  Case c;
  Attention attention{c};
  const Tensor grad = c.random({1, 4, 12, 6});
  const OpInfo& op = *find_op(kFlexBackward);
  struct Found {
    Value result;
    std::vector<Tensor> bounds;
  };
  const auto find = [&](std::int64_t first, std::int64_t queries) {
    const std::vector<Value> args = attention.backward(grad, first, queries);
    Found found{c.run(kFlexBackward, args), {}};
    c.bounds().follow({op, args, found.result});
    for (std::size_t i = 0; i < 3; ++i)
      found.bounds.push_back(c.bounds().find_or_zero(found.result.items()[i].tensor()));
    return found;
  };
  const Found whole = find(0, 12), a = find(0, 5), b = find(5, 7);
  for (std::size_t i : {1U, 2U}) {
    const auto number = [&](const Found& found, std::int64_t k) {
      return static_cast<double>(found.result.items()[i].tensor().data<float>()[k]);
    };
    const auto bound = [&](const Found& found, std::int64_t k) {
      return static_cast<double>(found.bounds[i].data<float>()[k]);
    };
    double most = 0;
    for (std::int64_t k = 0; k < whole.bounds[i].numel(); ++k) {
      const double apart = std::abs(number(whole, k) - number(a, k) - number(b, k));
      const double allowed = bound(whole, k) + bound(a, k) + bound(b, k);
      CHECK(apart <= allowed);
      most = std::max(most, apart / allowed);
      CHECK(allowed < 1e-4);
    }
    CHECK(most > 0);
  }
}

TEST_CASE("before rounding, gradients of attention are those of exact arithmetic") {
  Case c;
  Attention attention{c};
  const Tensor grad = c.random({1, 4, 12, 6});
  const OpInfo& op = *find_op(kFlexBackward);
  const auto find = [&](std::int64_t first, std::int64_t queries) {
    const std::vector<Value> args = attention.backward(grad, first, queries);
    const Value result = c.run(kFlexBackward, args);
    c.bounds().follow({op, args, result});
    return result;
  };
  const Value whole = find(0, 12), a = find(0, 5), b = find(5, 7);
  for (std::size_t i : {1U, 2U}) {
    const auto ideals = [&](const Value& of) {
      return read_numbers(c.bounds().ideals().find(of.items()[i].tensor()));
    };
    const Buffer<double> all = ideals(whole), first = ideals(a), second = ideals(b),
                         stored = read_numbers(whole.items()[i].tensor());
    for (std::size_t k = 0; k < all.size(); ++k) {
      CHECK(std::abs(all[k] - first[k] - second[k]) < 1e-14);
      CHECK(std::abs(all[k] - stored[k]) < 1e-5);
    }
  }
}

// Operands of float64, a mask and what it has in common with float32: the same but for rounding.
TEST_CASE("scaled dot product's gradients in float64") {
  Case c;
  const Tensor query = c.random({1, 4, 12, 8}), key = c.random({1, 2, 12, 8}),
               value = c.random({1, 2, 12, 6}), grad = c.random({1, 4, 12, 6}), bias = c.random({12, 12});
  for (const bool is_causal : {false, true}) {
    const Value mask = is_causal ? Value() : Value(bias);
    const Value forward = c.run("aten._scaled_dot_product_flash_attention_for_cpu.default",
                                {query, key, value, 0.0, is_causal, mask, Value()});
    const auto gradients = [&](const auto& convert) {
      const Value converted_mask = is_causal ? Value() : Value(convert(bias));
      return c.run(
          "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
          {convert(grad), convert(query), convert(key), convert(value), convert(forward.items()[0].tensor()),
           convert(forward.items()[1].tensor()), 0.0, is_causal, converted_mask, Value()});
    };
    const Value narrow = gradients([](const Tensor& tensor) { return tensor; });
    const Value wide = gradients([&](const Tensor& tensor) {
      return c.bounds().apply("aten._to_copy.default", {tensor, DType::kFloat64});
    });
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(wide.items()[i].tensor().dtype == DType::kFloat64);
      const Buffer<double> x = read_numbers(narrow.items()[i].tensor()),
                           y = read_numbers(wide.items()[i].tensor());
      for (std::size_t k = 0; k < x.size(); ++k) CHECK(std::abs(x[k] - y[k]) < 1e-5);
    }
  }
}

TEST_CASE("a score function that changes gradients, or other activations, leave no bound") {
  for (const bool has_other_score : {true, false}) {
    Case c;
    Attention attention{c};
    const Tensor grad = c.random({1, 4, 12, 6});
    std::vector<Value> args = attention.backward(grad, 0, 12);
    if (has_other_score) {
      Function joint = args[8].as<Function>();
      joint.returned_param.reset();
      args[8] = joint;
    } else {
      c.bounds().set(args[1].tensor(), c.bounds().magnitude(args[1].tensor()));
    }
    const Value result = c.run(kFlexBackward, args);
    c.bounds().follow({*find_op(kFlexBackward), args, result});
    CHECK(c.bounds().without_bound() == std::set<std::string>{std::string(kFlexBackward)});
    CHECK(std::isinf(c.bounds().find_or_zero(result.items()[1].tensor()).data<float>()[0]));
  }
}

TEST_CASE("before rounding, complex numbers are pairs of reals") {
  Case c;
  const Tensor x = c.random({2, 3, 2}), y = c.random({2, 3, 2});
  const auto as_complex = [&](const Tensor& pairs) { return c.run("aten.view_as_complex.default", {pairs}); };
  const auto follow = [&](std::string_view target, const std::vector<Value>& args) {
    const Value result = c.run(target, args);
    c.bounds().follow({*find_op(target), args, result});
    return result;
  };
  c.bounds().set(x, c.bounds().magnitude(x));
  Tensor exact = c.bounds().apply("aten._to_copy.default", {x, DType::kFloat64});
  for (std::int64_t i = 0; i < 12; ++i) exact.data<double>()[i] += 1e-9;
  c.bounds().ideals().set(x, exact);
  const Value a = as_complex(x), b = as_complex(y);
  const auto number = [](const Buffer<double>& parts, std::size_t i) {
    return std::complex<double>(parts[2 * i], parts[2 * i + 1]);
  };
  const Buffer<double> of_a = read_numbers(exact), of_b = read_numbers(y);
  const auto check = [&](const Value& result, const auto& expected) {
    const Tensor parts = c.run("aten.view_as_real.default", {result}).tensor();
    const Buffer<double> found = read_numbers(c.bounds().ideals().find(parts));
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(std::abs(number(found, i) - expected(number(of_a, i), number(of_b, i))) < 1e-15);
  };
  using Z = std::complex<double>;
  check(follow("aten.mul.Tensor", {a, b}), [](Z p, Z q) { return p * q; });
  check(follow("aten.mul.Tensor", {b, a}), [](Z p, Z q) { return p * q; });
  check(follow("aten.mul.Tensor", {a, 3.0}), [](Z p, Z) { return 3.0 * p; });
  check(follow("aten.add.Tensor", {a, b, 2.0}), [](Z p, Z q) { return p + 2.0 * q; });
  check(follow("aten.neg.default", {a}), [](Z p, Z) { return -p; });
  check(follow("aten._conj.default", {a}), [](Z p, Z) { return std::conj(p); });
  check(follow("aten.clone.default", {a, Value()}), [](Z p, Z) { return p; });
}

// Of real operands with bounds of 2^-8: no element moves further than its bound, which says no more
// than some times as much.
TEST_CASE("complex numbers that are made of real ones have bounds, and are known before rounding") {
  for (const std::string_view target : {"aten.complex.default", "aten.polar.default"}) {
    CAPTURE(target);
    Case c;
    const Tensor x = c.random({64}), y = c.random({64});
    const auto make = [&](const Tensor& a, const Tensor& b) {
      return c.run("aten.view_as_real.default", {c.run(target, {a, b})}).tensor();
    };
    const Tensor allowed = c.bounds().ops().filled(DType::kFloat32, {64}, 0x1p-8);
    c.bounds().set(x, allowed);
    c.bounds().set(y, allowed);
    const Value result = c.run(target, {x, y});
    c.bounds().follow({*find_op(target), std::vector<Value>{x, y}, result});
    CHECK(c.bounds().without_bound().empty());
    const Tensor parts = c.run("aten.view_as_real.default", {result}).tensor();
    const Tensor bound = c.bounds().find_or_zero(parts), ideal = c.bounds().ideals().find(parts);
    double share = 0;
    for (const double of_x : {-0.999, 0.0, 0.999}) {
      for (const double of_y : {-0.999, 0.0, 0.999}) {
        const auto move = [&](const Tensor& tensor, double by) {
          return c.bounds().apply(named::kAdd, {tensor, by * 0x1p-8});
        };
        const Tensor moved = make(move(x, of_x), move(y, of_y));
        for (std::int64_t i = 0; i < 128; ++i)
          share = std::max(share, std::abs(moved.data<float>()[i] - parts.data<float>()[i]) /
                                      static_cast<double>(bound.data<float>()[i]));
      }
    }
    CHECK(share <= 1);
    CHECK(share > 0.2);
    const auto number = [](const Tensor& tensor, std::int64_t i) -> double {
      return tensor.data<float>()[i];
    };
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::complex<double> expected = target == "aten.polar.default"
                                                ? std::polar(1.0, number(y, i)) * number(x, i)
                                                : std::complex<double>(number(x, i), number(y, i));
      CHECK(std::abs(ideal.data<double>()[2 * i] - expected.real()) < 1e-15);
      CHECK(std::abs(ideal.data<double>()[2 * i + 1] - expected.imag()) < 1e-15);
    }
  }
}

TEST_CASE("the bounds of complex numbers are seen through their parts") {
  Case c;
  const Tensor pairs = c.random({3, 2});
  const Tensor numbers = c.run("aten.view_as_complex.default", {pairs}).tensor();
  Tensor allowed = make_tensor(c.memory(), DType::kFloat32, {3, 2});
  for (std::int64_t i = 0; i < 6; ++i) allowed.data<float>()[i] = static_cast<float>(i) * 0.125F;
  c.bounds().set(pairs, allowed);
  const Tensor of_numbers = c.bounds().find_or_zero(numbers);
  CHECK(of_numbers.sizes == Extents{3});
  CHECK(of_numbers.data<float>()[2] == 0.5F + 0.625F);  // of either part
  // Turned by 90 degrees the parts change places.
  const Tensor turn = c.random({3, 2});
  for (std::int64_t i = 0; i < 6; ++i) turn.data<float>()[i] = static_cast<float>(i % 2);
  const Value unit = c.run("aten.view_as_complex.default", {turn});
  const OpInfo& mul = *find_op("aten.mul.Tensor");
  const Value product = c.run("aten.mul.Tensor", {numbers, unit});
  c.bounds().follow({mul, std::vector<Value>{numbers, unit}, product});
  const Tensor parts = c.run("aten.view_as_real.default", {product}).tensor();
  const Tensor of_parts = c.bounds().find_or_zero(parts);
  CHECK(of_parts.sizes == Extents{3, 2});
  for (std::int64_t i = 0; i < 6; ++i) {
    const float other = allowed.data<float>()[i ^ 1];
    CHECK(of_parts.data<float>()[i] >= other);
    CHECK(of_parts.data<float>()[i] <= 2 * (allowed.data<float>()[i] + other) + 1e-5F);
  }
}

}  // namespace epweave::replay
