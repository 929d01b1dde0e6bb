#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "ir/text/text.h"
#include "replay/kernels/host/cpu_table_test.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/product.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/host/vector_math.h"
#include "replay/kernels/missing_kernels.h"
#include "replay/run/executor.h"

namespace epweave::replay {
namespace {

class Fixture {
 public:
  Value run(const char* target, std::vector<Value> args) {
    const OpInfo* op = find_op(target);
    REQUIRE(op != nullptr);
    REQUIRE(args.size() == op->params.size());
    KernelCall call(*op, std::move(args), ~0u, memory_);
    call.set_nested();
    return table().find(*op)(call);
  }
  // Values spread over [-1, 1], never the same twice.
  Tensor random(Extents sizes, DType dtype = DType::kFloat32) {
    Tensor tensor = make_tensor(memory_, dtype, std::move(sizes));
    Buffer<float> values(static_cast<std::size_t>(tensor.numel()));
    for (float& value : values) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(static_cast<std::int32_t>(state_ >> 33)) / 1073741824.0f - 1.0f;
    }
    cpu::store_dense(values, tensor);
    return tensor;
  }
  Tensor integers(Buffer<std::int64_t> values, Extents sizes, DType dtype = DType::kInt32) {
    Tensor tensor = make_tensor(memory_, dtype, std::move(sizes));
    cpu::store_dense(values, tensor);
    return tensor;
  }
  Memory& memory() { return memory_; }

 private:
  HostMemory memory_{HostMemory::Fill::kPoison};
  std::uint64_t state_ = 1;
};

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes != b.sizes || a.dtype != b.dtype) return false;
  std::vector<std::byte> x(static_cast<std::size_t>(a.numel()) * a.element_bytes()), y(x.size());
  gather_elements(a, x.data());
  gather_elements(b, y.data());
  return x == y;
}
Tensor rows(const Tensor& t, std::int64_t first, std::int64_t count) {
  Extents sizes = t.sizes;
  sizes[0] = count;
  return t.view(sizes, t.strides, t.offset + first * t.strides[0]);
}

}  // namespace

TEST_CASE("every op of the op table has a kernel but these") {
  // Orders, choices and counts that are drawn; float8 has no type here; nothing executes
  // collectives of symmetric memory, and products that are fused with them. Special functions and
  // common divisors that training steps hardly have are typed and priced alone.
  const std::set<std::string_view> without = {
      "aten._scaled_grouped_mm.default",
      "aten._scaled_mm.default",
      "aten.digamma.default",
      "aten.erfinv.default",
      "aten.gcd.default",
      "aten.i0.default",
      "aten.lcm.default",
      "aten.lgamma.default",
      "aten.multinomial.default",
      "aten.nextafter.default",
      "aten.poisson.default",
      "aten.randperm.default",
      "aten.special_erfcx.default",
      "aten.special_i0e.default",
      "aten.special_i1.default",
      "aten.special_i1e.default",
      "aten.special_log_ndtr.default",
      "aten.special_ndtri.default",
      "cplib.flex_cp_allgather.default",
      "cplib.flex_cp_allgather_backward.default",
      "symm_mem.fused_all_gather_matmul.default",
      "symm_mem.fused_matmul_reduce_scatter.default",
      "symm_mem.multimem_all_reduce_.default",
      "symm_mem.one_shot_all_reduce.default",
      "symm_mem.two_shot_all_reduce_.default",
  };
  for (const OpInfo& op : ops()) {
    CAPTURE(op.target);
    CHECK(can_execute(op, table()) == !without.contains(op.target));
  }
}

TEST_CASE("what a call draws follows from its number and from the place of an element") {
  HostMemory memory(HostMemory::Fill::kPoison);
  const auto draw = [&](const char* target, std::vector<Value> args, std::uint64_t number) {
    KernelCall call(*find_op(target), std::move(args), ~0u, memory);
    call.set_nested();
    call.set_draw(number);
    return table().find(*find_op(target))(call);
  };
  const Value none;
  const Tensor rows = make_tensor(memory, DType::kFloat64, {4, 1000});
  const Tensor columns = make_tensor(memory, DType::kFloat64, {4, 1000}, {1, 4});
  const auto uniform = [&](const Tensor& into, std::uint64_t number) {
    return draw("aten.uniform_.default", {into, 2.0, 4.0, none}, number).tensor();
  };
  CHECK(same_bits(uniform(rows, 3), uniform(columns, 3)));
  const Tensor others = make_tensor(memory, DType::kFloat64, {4, 1000});
  CHECK_FALSE(same_bits(uniform(others, 4), rows));
  // The numbers themselves: splitmix64 of the place, by the number of the call.
  const Tensor first = draw("aten.rand_like.default", {rows, none, none, none, none, none}, 7).tensor();
  std::vector<double> numbers;
  for (std::size_t i = 0; i < 3; ++i) numbers.push_back(first.data<double>()[i] * 0x1p53);
  CHECK(numbers == std::vector<double>{280876042814767, 2520724128995064, 4291486097119967});
  // Of 4,000 numbers: the least and the largest, and their mean.
  struct Summary {
    double least, largest, mean;
  };
  const auto summary_of = [&](const Value& drawn) {
    Tensor copy = make_tensor(memory, DType::kFloat64, drawn.tensor().sizes);
    cpu::copy_elements(drawn.tensor(), copy);
    const auto* values = reinterpret_cast<const double*>(copy.storage->data());
    Summary summary{values[0], values[0], 0};
    for (std::int64_t i = 0; i < copy.numel(); ++i) {
      summary.least = std::min(summary.least, values[i]);
      summary.largest = std::max(summary.largest, values[i]);
      summary.mean += values[i] / static_cast<double>(copy.numel());
    }
    return summary;
  };
  const auto check = [&](const char* target, std::vector<Value> args, const Summary& low,
                         const Summary& high) {
    CAPTURE(target);
    const Summary found = summary_of(draw(target, std::move(args), 7));
    CHECK((found.least >= low.least && found.least <= high.least));
    CHECK((found.largest >= low.largest && found.largest <= high.largest));
    CHECK((found.mean >= low.mean && found.mean <= high.mean));
  };
  const Value size = Value::list({Value(std::int64_t{4}), Value(std::int64_t{1000})});
  const Value three(std::int64_t{3}), nine(std::int64_t{9});
  check("aten.uniform_.default", {rows, 2.0, 4.0, none}, {2, 3.99, 2.95}, {2.01, 4, 3.05});
  check("aten.rand_like.default", {rows, none, none, none, none, none}, {0, 0.99, 0.47}, {0.01, 1, 0.53});
  check("aten.normal_.default", {rows, 5.0, 2.0, none}, {-7, 11, 4.9}, {-1, 17, 5.1});
  check("aten.exponential_.default", {rows, 2.0, none}, {0, 3, 0.47}, {0.01, 9, 0.53});
  check("aten.log_normal_.default", {rows, 0.0, 0.5, none}, {0.05, 4, 1.09}, {0.3, 12, 1.18});
  check("aten.bernoulli_.float", {rows, 0.75, none}, {0, 1, 0.72}, {0, 1, 0.78});
  check("aten.geometric_.default", {rows, 0.5, none}, {1, 8, 1.9}, {1, 20, 2.1});
  check("aten.randint.low", {three, nine, size, none, none, none, none}, {3, 8, 5.4}, {3, 8, 5.6});
  // A number that is the result is not rounded to 1, and a range that is larger than a float's
  // digits has odd numbers.
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16})
    check("aten.rand_like.default", {rows, Value(dtype), none, none, none, none}, {0, 0.99, 0.47},
          {0.01, 0.9996, 0.53});
  const Value many(std::int64_t{1} << 40);
  const Tensor large =
      draw("aten.randint.default", {many, size, Value(DType::kInt64), none, none, none}, 7).tensor();
  check("aten.bitwise_and.Scalar", {large, Value(std::int64_t{1})}, {0, 1, 0.47}, {0, 1, 0.53});
  const Value dropped = draw("aten.native_dropout.default",
                             {draw("aten.rand.default", {size, none, none, none, none}, 1), 0.5, true}, 2);
  for (const Value& value : dropped.items()) CHECK(std::abs(summary_of(value).mean - 0.5) < 0.03);
}

TEST_CASE("what no kernel computes with is named before the run") {
  const auto problem_of = [](std::string_view call) {
    const Graph graph = parse_text(fmt::format(R"(epweave text 1
device cpu

graph
  %x = placeholder : f32[2]
  %d = placeholder : f64[2]
  %c = placeholder : c128[2]
  %raw = aten.empty.memory_format([2], dtype=f8e4m3fn, device=@cpu) : f8e4m3fn[2]
  {}
  output([%y])
)",
                                               call),
                                   "test");
    try {
      require_kernels(graph, table(), "G");
    } catch (const PassError& error) {
      return fmt::format("{} [{}] {}", error.problem(), error.id(), error.site().node);
    }
    return std::string();
  };
  const std::string id = " [replay.no-kernel-of-dtype] y";
  CHECK(problem_of("%y = aten._to_copy.default(%x, dtype=f8e5m2) : f8e5m2[2]") ==
        "G: no kernel computes with torch.float8_e5m2" + id);
  CHECK(problem_of("%y = aten._to_copy.default(%raw, dtype=f32) : f32[2]") ==
        "G: no kernel computes with torch.float8_e4m3fn" + id);
  CHECK(problem_of("%y = aten.zeros.default([2], dtype=f8e4m3fn, device=@cpu) : f8e4m3fn[2]") ==
        "G: no kernel computes with torch.float8_e4m3fn" + id);
  CHECK(problem_of("%y = aten.cat.default([%raw, %raw]) : f8e4m3fn[4]") == "");
  const std::string doubles = "G: no kernel computes with torch.complex128" + id;
  CHECK(problem_of("%y = aten.complex.default(%d, %d) : c128[2]") == doubles);
  CHECK(problem_of("%y = aten.view_as_complex.default(%d) : c128[]") == doubles);
  CHECK(problem_of("%y = aten.abs.default(%c) : f64[2]") == doubles);
  CHECK(problem_of("%y = aten.sum.default(%c) : c128[]") == doubles);
  CHECK(problem_of("%y = aten.cat.default([%c, %c]) : c128[4]") == "");
}

TEST_CASE("a sum is taken in 16 lanes") {
  Buffer<float> x(37);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i + 1);
  float lanes[16] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % 16] += x[i];
  for (std::size_t half : {8u, 4u, 2u, 1u})
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  CHECK(cpu::ordered_sum(x.data(), 37) == lanes[0]);
  float column = 0;
  cpu::ordered_column_sums(x.data(), 37, 1, &column);
  CHECK(column == lanes[0]);
}

TEST_CASE("a long sum is the sum of its tiles") {
  constexpr std::int64_t kTile = 262144, kCount = 2 * kTile + 5;
  std::vector<float> x(static_cast<std::size_t>(kCount));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i % 4099 + 1);
  const float tiles[3] = {cpu::ordered_sum(x.data(), kTile), cpu::ordered_sum(x.data() + kTile, kTile),
                          cpu::ordered_sum(x.data() + 2 * kTile, 5)};
  const float sum = cpu::ordered_sum(x.data(), kCount);
  CHECK(sum == cpu::ordered_sum(tiles, 3));
  float columns[2] = {};
  std::vector<float> pairs;
  for (const float each : x) pairs.insert(pairs.end(), {each, -each});
  cpu::ordered_column_sums(pairs.data(), kCount, 2, columns);
  CHECK(columns[0] == sum);
  CHECK(columns[1] == -sum);
}

TEST_CASE("a product is one chain of fused multiply-adds per element") {
  Fixture f;
  const Tensor a = f.random({11, 67}), b = f.random({67, 45});
  const Tensor c = f.run("aten.mm.default", {a, b}).tensor();
  const auto x = cpu::dense<float>(a), y = cpu::dense<float>(b), z = cpu::dense<float>(c);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 11; ++i)
    for (std::size_t j = 0; j < 45; ++j) {
      float sum = 0;
      for (std::size_t k = 0; k < 67; ++k) sum = math::fma(x[i * 67 + k], y[k * 45 + j], sum);
      wrong += sum != z[i * 45 + j];
    }
  CHECK(wrong == 0);
}

// A product of random numbers, both operands row by row or column by column, from zeros or from
// what is there: how many elements are not their chain.
template <class C>
std::size_t count_wrong(std::int64_t rows, std::int64_t depth, std::int64_t columns, bool by_column,
                        cpu::Start start) {
  const auto make = [](std::int64_t count, std::uint32_t seed) {
    Buffer<C> values(static_cast<std::size_t>(count));
    for (C& value : values)
      value = static_cast<C>(static_cast<std::int32_t>(seed = seed * 1664525 + 1013904223)) / C(1u << 30);
    return values;
  };
  const auto matrix = [&](const Buffer<C>& values, std::int64_t m, std::int64_t n) {
    return by_column ? cpu::Matrix<C>{values.data(), m, n, 1, m} : cpu::Matrix<C>{values.data(), m, n, n, 1};
  };
  const Buffer<C> x = make(rows * depth, 1), y = make(depth * columns, 2), before = make(rows * columns, 3);
  const cpu::Matrix<C> a = matrix(x, rows, depth), b = matrix(y, depth, columns);
  Buffer<C> c = before;
  cpu::multiply(a, b, c.data(), columns, start);
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<std::size_t>(i * columns + j);
      C sum = start == cpu::Start::kZero ? C(0) : before[at];
      for (std::int64_t k = 0; k < depth; ++k)
        sum = math::fma(a.data[i * a.row_stride + k * a.column_stride],
                        b.data[k * b.row_stride + j * b.column_stride], sum);
      wrong += sum != c[at];
    }
  return wrong;
}

TEST_CASE("products of all layouts, float32 and float64, are chains where blocks and tiles end") {
  struct Sizes {
    std::int64_t rows, depth, columns;
  };
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{7, 3, 5}, Sizes{8, 16, 16}, Sizes{9, 257, 33},
                         Sizes{137, 20, 47}, Sizes{3, 513, 9}, Sizes{5, 31, 521}, Sizes{4, 0, 6}})
    for (const bool by_column : {false, true})
      for (const cpu::Start start : {cpu::Start::kZero, cpu::Start::kAccumulate}) {
        CAPTURE(s.rows, s.depth, s.columns, by_column, start);
        CHECK(count_wrong<float>(s.rows, s.depth, s.columns, by_column, start) == 0);
        CHECK(count_wrong<double>(s.rows, s.depth, s.columns, by_column, start) == 0);
      }
}

TEST_CASE("vector code gives the bits of the scalar functions") {
  Buffer<float> x(1003), out(1003);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (static_cast<float>(i) - 500.0f) * 0.23f;
  const auto agrees = [&](auto run, auto scalar) {
    run(static_cast<std::int64_t>(x.size()), out.data(), x.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      if (math::bits_of(out[i]) != math::bits_of(scalar(x[i]))) return false;
    return true;
  };
  CHECK(agrees(cpu::exp_run, [](float v) { return math::exp(v); }));
  CHECK(agrees(cpu::sigmoid_run, [](float v) { return math::sigmoid(v); }));
  CHECK(agrees(cpu::silu_run, [](float v) { return math::silu(v); }));
}

TEST_CASE("a row does not depend on how many rows there are") {
  Fixture f;
  const Tensor x = f.random({13, 70}, DType::kBfloat16), w = f.random({70, 33}, DType::kBfloat16);
  const Tensor scale = f.random({70}, DType::kBfloat16);
  const auto check = [&](auto run) {
    const Tensor whole = run(x);
    for (std::int64_t first : {0, 4, 12}) {
      const std::int64_t count = first == 4 ? 8 : first == 0 ? 4 : 1;
      CHECK(same_bits(run(rows(x, first, count)), rows(whole, first, count)));
    }
  };
  check([&](const Tensor& t) { return f.run("aten.mm.default", {t, w}).tensor(); });
  check([&](const Tensor& t) { return f.run("aten.silu.default", {t}).tensor(); });
  check([&](const Tensor& t) {
    return f.run("aten._softmax.default", {t, std::int64_t{-1}, false}).tensor();
  });
  check([&](const Tensor& t) {
    return f.run("aten._fused_rms_norm.default", {t, Value::list({std::int64_t{70}}), scale, 1e-5})
        .items()[0]
        .tensor();
  });
  check([&](const Tensor& t) {
    return f.run("aten.sum.dim_IntList", {t, Value::list({std::int64_t{1}}), true, Value()}).tensor();
  });
}

TEST_CASE("a mutation is seen through every view") {
  Fixture f;
  const Tensor base = f.integers(Buffer<std::int64_t>(12, 1), {3, 4});
  const Tensor turned = f.run("aten.t.default", {base}).tensor();
  const Tensor column = f.run("aten.select.int", {turned, std::int64_t{0}, std::int64_t{2}}).tensor();
  f.run("aten.add_.Tensor", {column, std::int64_t{5}, std::int64_t{1}});
  CHECK(cpu::dense<std::int64_t>(base) == Buffer<std::int64_t>{1, 1, 6, 1, 1, 1, 6, 1, 1, 1, 6, 1});
}

TEST_CASE("losses over classes with too few weights, gradients or totals are refused") {
  Fixture f;
  const Tensor x = f.random({4, 3}), grads = f.random({4}), total = f.random({}), weight = f.random({3}),
               few = f.random({2}), targets = f.integers({0, 1, 2, 2}, {4}, DType::kInt64);
  const auto loss = [&](const Tensor& weights) {
    f.run("aten.nll_loss_forward.default", {x, targets, weights, std::int64_t{1}, std::int64_t{-100}});
  };
  CHECK_NOTHROW(loss(weight));
  CHECK_THROWS_AS(loss(few), KernelError);
  const auto gradient = [&](const Tensor& of_loss, const Tensor& weights, const Tensor& sum) {
    f.run("aten.nll_loss_backward.default",
          {of_loss, x, targets, weights, std::int64_t{0}, std::int64_t{-100}, sum});
  };
  CHECK_NOTHROW(gradient(grads, weight, total));
  CHECK_THROWS_AS(gradient(grads, few, total), KernelError);
  CHECK_THROWS_AS(gradient(few, weight, total), KernelError);
  CHECK_THROWS_AS(gradient(grads, weight, few), KernelError);
}

TEST_CASE("indices out of range are refused") {
  Fixture f;
  const Tensor x = f.random({4, 3});
  const Tensor bad = f.integers({4}, {1}, DType::kInt64);
  CHECK_THROWS_AS(f.run("aten.index.Tensor", {x, Value::list({bad})}), KernelError);
  CHECK_THROWS_AS(f.run("aten.embedding.default", {x, bad, std::int64_t{-1}, false, false}), KernelError);
  CHECK_THROWS_AS(f.run("aten.index_select.default", {x, std::int64_t{0}, bad}), KernelError);
  CHECK_THROWS_AS(f.run("aten.topk.default", {x, std::int64_t{4}, std::int64_t{-1}, true, true}),
                  KernelError);
}

TEST_CASE("gradients of cuts go where the cut was, or are refused") {
  using Numbers = std::vector<std::int64_t>;
  Fixture f;
  const auto list = [](const Numbers& numbers) {
    return Value::list(std::vector<Value>(numbers.begin(), numbers.end()));
  };
  const auto run = [&](const char* target, const Tensor& grad, const Numbers& sizes, const Numbers& cut) {
    std::vector<Value> args = {grad, list(sizes)};
    args.insert(args.end(), cut.begin(), cut.end());
    return cpu::dense<std::int64_t>(f.run(target, std::move(args)).tensor());
  };
  const auto select = [&](const Tensor& grad, const Numbers& sizes, const Numbers& cut) {
    return run("aten.select_backward.default", grad, sizes, cut);
  };
  const auto slice = [&](const Tensor& grad, const Numbers& sizes, const Numbers& cut) {
    return run("aten.slice_backward.default", grad, sizes, cut);
  };
  const Tensor one = f.integers({7}, {1}), pair = f.integers({7, 8}, {2}), row = f.integers({7, 8}, {1, 2}),
               rows = f.integers({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(select(pair, {2, 2}, {0, -1}) == Buffer<std::int64_t>{0, 0, 7, 8});
  CHECK(select(one, {2, 3}, {0, 1}) == Buffer<std::int64_t>{0, 0, 0, 7, 7, 7});
  CHECK(slice(row, {4, 2}, {0, 1, 4, 2}) == Buffer<std::int64_t>{0, 0, 7, 8, 0, 0, 7, 8});
  CHECK(slice(rows, {4, 2}, {0, 1, INT64_MAX, 1}) == Buffer<std::int64_t>{0, 0, 1, 2, 3, 4, 5, 6});
  for (const std::int64_t index : {2, -3, 1'000'000})
    CHECK_THROWS_AS(select(pair, {2, 2}, {0, index}), KernelError);
  CHECK_THROWS_AS(select(pair, {2, 3}, {0, 1}), KernelError);
  CHECK_THROWS_AS(select(pair, {-2, 2}, {0, 1}), KernelError);
  CHECK_THROWS_AS(slice(rows, {4, 2}, {0, 1, 4, 2}), KernelError);
  CHECK_THROWS_AS(slice(rows, {2, 2}, {0, 0, 3, 1}), KernelError);
  CHECK_THROWS_AS(slice(rows, {4, 2}, {0, 0, 3, 0}), KernelError);
}

namespace {

// FlexAttention's arguments with causal blocks of 4 queries and 4 keys.
struct FlexSetup {
  Fixture& f;
  Tensor query, key, value;
  Value score, joint, mask, block_mask;

  explicit FlexSetup(Fixture& fixture, std::int64_t full_blocks)
      : f(fixture),
        query(f.random({1, 4, 10, 8})),
        key(f.random({1, 2, 10, 8})),
        value(f.random({1, 2, 10, 6})) {
    score = Function{"score", 5, [](std::span<const Value> args) { return args[0]; }};
    joint = Function{"joint", 6, [](std::span<const Value> args) {
                       return Value::list({args[5], Value(), Value(), Value(), Value()});
                     }};
    mask = Function{"mask", 4, [this](std::span<const Value> args) {
                      return f.run("aten.ge.Tensor", {args[2], args[3]});
                    }};
    // Query block i sees key blocks 0..i: the diagonal is masked, the others are full or masked as
    // asked.
    const bool is_full = full_blocks != 0;
    const auto counts = [&](Buffer<std::int64_t> v) { return f.integers(std::move(v), {1, 1, 3}); };
    const auto lists = [&](Buffer<std::int64_t> v) { return f.integers(std::move(v), {1, 1, 3, 3}); };
    const Value kv_count = is_full ? counts({1, 1, 1}) : counts({1, 2, 3});
    const Value kv_list = is_full ? lists({0, 7, 7, 1, 7, 7, 2, 7, 7}) : lists({0, 1, 2, 1, 0, 2, 0, 2, 1});
    const Value full_count = is_full ? Value(counts({0, 1, 2})) : Value();
    const Value full_list = is_full ? Value(lists({0, 0, 0, 0, 7, 7, 1, 0, 7})) : Value();
    const Value q_count = is_full ? counts({1, 1, 1}) : counts({3, 2, 1});
    const Value q_list = is_full ? lists({0, 7, 7, 1, 7, 7, 2, 7, 7}) : lists({0, 1, 2, 1, 2, 7, 2, 7, 7});
    const Value full_q_count = is_full ? Value(counts({2, 1, 0})) : Value();
    const Value full_q_list = is_full ? Value(lists({1, 2, 7, 2, 7, 7, 7, 7, 7})) : Value();
    block_mask = Value::tuple({std::int64_t{10}, std::int64_t{10}, kv_count, kv_list, full_count, full_list,
                               q_count, q_list, full_q_count, full_q_list, Value(), Value(), Value(), Value(),
                               std::int64_t{4}, std::int64_t{4}, mask});
  }
  std::vector<Value> forward() {
    return f
        .run("higher_order.flex_attention",
             {query, key, value, score, block_mask, 0.3, Dict{}, Value::tuple({}), Value::tuple({})})
        .items();
  }
  std::vector<Value> backward(const Tensor& out, const Tensor& lse, const Tensor& grad) {
    return f
        .run("higher_order.flex_attention_backward",
             {query, key, value, out, lse, grad, Value(), score, joint, block_mask, 0.3, Dict{},
              Value::tuple({}), Value::tuple({})})
        .items();
  }
};

}  // namespace

TEST_CASE("flex attention with causal tables is causal attention, bit for bit") {
  for (const std::int64_t full : {0, 1}) {
    Fixture f;
    FlexSetup flex(f, full);
    const std::vector<Value> got = flex.forward();
    const std::vector<Value> want = f.run("aten._scaled_dot_product_flash_attention.default",
                                          {flex.query, flex.key, flex.value, 0.0, true, false, 0.3})
                                        .items();
    CHECK(same_bits(got[0].tensor(), want[0].tensor()));
    const Tensor grad = f.random({1, 4, 10, 6});
    const std::vector<Value> grads = flex.backward(got[0].tensor(), got[1].tensor(), grad);
    const std::vector<Value> expected =
        f.run("aten._scaled_dot_product_flash_attention_backward.default",
              {grad, flex.query, flex.key, flex.value, want[0], want[1], Value(), Value(), std::int64_t{10},
               std::int64_t{10}, 0.0, true, Value(), Value(), 0.3})
            .items();
    // The logsumexp goes through units of log 2: a rounding more.
    for (std::size_t i = 0; i < 3; ++i) {
      const auto a = cpu::dense<float>(grads[i].tensor()), b = cpu::dense<float>(expected[i].tensor());
      float most = 0;
      for (std::size_t k = 0; k < a.size(); ++k) most = std::max(most, math::abs(a[k] - b[k]));
      CHECK(most < 2e-6f);
    }
  }
}

TEST_CASE("attention adds up its weights by the keys' positions, whatever the blocks of keys are") {
  Fixture f;
  const std::int64_t keys = 60;
  const Tensor query = f.random({1, 1, 5, 8}), key = f.random({1, 1, keys, 8}),
               value = f.random({1, 1, keys, 6});
  const Tensor want =
      f.run("aten._scaled_dot_product_flash_attention.default", {query, key, value, 0.0, false, false, 0.3})
          .items()[0]
          .tensor();
  const Value score = Function{"score", 5, [](std::span<const Value> args) { return args[0]; }, 0};
  const Value mask = Function{"mask", 4, [](std::span<const Value>) { return Value(); }};
  for (const std::int64_t k_block : {17, 24, 32}) {
    INFO("blocks of " << k_block << " keys");
    const std::int64_t blocks = (keys + k_block - 1) / k_block;
    Buffer<std::int64_t> all(static_cast<std::size_t>(blocks));
    std::iota(all.begin(), all.end(), 0);
    const Value none_masked = f.integers({0}, {1, 1, 1}), no_list = f.integers({0}, {1, 1, 1, 1});
    const Value full = f.integers({blocks}, {1, 1, 1}), list = f.integers(all, {1, 1, 1, blocks});
    const Value block_mask =
        Value::tuple({std::int64_t{5}, keys, none_masked, no_list, full, list, Value(), Value(), Value(),
                      Value(), Value(), Value(), Value(), Value(), std::int64_t{128}, k_block, mask});
    const Tensor got = f.run("higher_order.flex_attention", {query, key, value, score, block_mask, 0.3,
                                                             Dict{}, Value::tuple({}), Value::tuple({})})
                           .items()[0]
                           .tensor();
    CHECK(same_bits(got, want));
  }
}

TEST_CASE("flex attention refuses what another call kept") {
  Fixture f;
  FlexSetup flex(f, 0);
  const std::vector<Value> got = flex.forward();
  const Tensor out = got[0].tensor(), sums = got[1].tensor(), other = f.random({1, 4, 9, 6});
  CHECK(flex.backward(out, sums, out).size() == 4);
  CHECK_THROWS_AS(flex.backward(other, sums, out), KernelError);
  CHECK_THROWS_AS(flex.backward(out, sums, other), KernelError);
  CHECK_THROWS_AS(flex.backward(out, f.random({1, 4, 9}), out), KernelError);
}

TEST_CASE("flex attention gives no gradient of what its score function captured") {
  Fixture f;
  FlexSetup flex(f, 0);
  const std::vector<Value> got = flex.forward();
  const Value captured = f.random({4});
  const auto backward = [&](const Value& of_captured) {
    flex.joint = Function{"joint", 7, [=](std::span<const Value> args) {
                            return Value::list({args[5], Value(), Value(), Value(), Value(), of_captured});
                          }};
    return f.run("higher_order.flex_attention_backward",
                 {flex.query, flex.key, flex.value, got[0], got[1], got[0], Value(), flex.score, flex.joint,
                  flex.block_mask, 0.3, Dict{}, Value::tuple({captured}), Value::tuple({})});
  };
  CHECK(backward(Value()).items().size() == 4);
  CHECK_THROWS_AS(backward(captured), KernelError);
}

TEST_CASE("what flex attention's block tables leave out is not attended to") {
  Fixture f;
  FlexSetup flex(f, 0);
  std::vector<Value> items = flex.block_mask.items();
  items[2] =
      f.integers({0, 1, 1}, {1, 1, 3});  // block 0: nothing; block 1: itself; block 2: key block 0 only
  flex.block_mask = Value::tuple(items);
  const std::vector<Value> got = flex.forward();
  const auto out = cpu::dense<float>(got[0].tensor()), lse = cpu::dense<float>(got[1].tensor());
  CHECK(std::all_of(out.begin(), out.begin() + 4 * 6, [](float x) { return x == 0.0f; }));
  CHECK(lse[0] == -std::numeric_limits<float>::infinity());
  // The first query of block 1 sees itself alone: its value.
  const auto value = cpu::dense<float>(flex.value);
  CHECK(std::equal(out.begin() + 4 * 6, out.begin() + 5 * 6, value.begin() + 4 * 6));
  // The backward tables by key still name the old pairs.
  CHECK_THROWS_AS(flex.backward(got[0].tensor(), got[1].tensor(), f.random({1, 4, 10, 6})), KernelError);
}

// An index that was expanded is read as one column.
TEST_CASE("gather and scatter by an expanded index give the bits of its copy") {
  Fixture f;
  const Tensor column = f.integers({3, 0, 3, 2}, {4, 1}, DType::kInt64);
  for (const std::int64_t dim : {0, 1}) {
    const Tensor self = dim == 0 ? f.random({5, 3}) : f.random({3, 5}),
                 source = dim == 0 ? f.random({4, 3}) : f.random({3, 4});
    const Tensor expanded = dim == 0 ? column.view({4, 3}, {1, 0}, 0) : column.view({3, 4}, {0, 1}, 0);
    const Tensor whole = make_tensor(f.memory(), DType::kInt64, expanded.sizes);
    cpu::copy_elements(expanded, whole);
    const auto gathered = [&](const Tensor& index) {
      return f.run("aten.gather.default", {self, dim, index, false}).tensor();
    };
    const auto added = [&](const Tensor& index) {
      return f.run("aten.scatter_add.default", {self, dim, index, source}).tensor();
    };
    CHECK(same_bits(gathered(expanded), gathered(whole)));
    CHECK(same_bits(added(expanded), added(whole)));
  }
}

}  // namespace epweave::replay
