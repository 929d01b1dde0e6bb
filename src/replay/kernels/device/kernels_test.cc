// Every kernel of the device against the CPU's: the same bits. Run by the emulated device, or by
// the GPU where EPWEAVE_TEST_DEVICE is `cuda`.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "replay/kernels/device/both_devices.h"
#include "replay/kernels/device/dense_launches.h"
#include "replay/kernels/device/launcher.h"
#include "replay/kernels/device/product.h"
#include "replay/kernels/device/testing/listed_launches.h"
#include "replay/kernels/host/conformance_cases.h"

namespace epweave::replay {
namespace {

Tensor transposed(const Tensor& t) {
  return t.view({t.sizes[1], t.sizes[0]}, {t.strides[1], t.strides[0]}, t.offset);
}

}  // namespace

TEST_CASE("kernels of the device give the CPU's bits on PyTorch's cases") {
  const Json cases = read_cases();
  const KernelTable& kernels = tested_device().kernels();
  std::size_t compared = 0;
  for (const Json& json : cases) {
    HostMemory memory;
    CaseReader reader(memory, call_where_args_are);
    const OpInfo* op = find_op(json.at("op").get<std::string>());
    REQUIRE(op != nullptr);
    if (kernels.find(*op) == nullptr) continue;  // named by the test below
    std::vector<Value> args;
    for (const Json& arg : json.at("args")) args.push_back(reader.value(arg));
    const std::string difference = run_both(*op, args);
    INFO("case " << compared << " " << json["op"] << ": " << difference);
    CHECK(difference == (json.value("is_refused", false) ? "refused" : ""));
    ++compared;
  }
  CHECK(compared > 2000);
}

TEST_CASE("every CPU kernel has one on the device") {
  std::set<std::string> missing;
  for (const KernelRow& row : cpu_kernel_rows())
    if (tested_device().kernels().find(*find_op(row.target)) == nullptr) missing.emplace(row.target);
  CHECK(missing == std::set<std::string>());
}

TEST_CASE("the device draws the CPU's random numbers") {
  Random random;
  const Value none, half(0.5), two(2.0), yes(true);
  const std::int64_t low = 3, high = 1000;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat64}) {
    const Tensor x = random.tensor({6, 50}, dtype);
    for (const Tensor& over : {x, transposed(x)}) {
      for (const char* target : {"aten.uniform_.default", "aten.normal_.default", "aten.log_normal_.default",
                                 "aten.cauchy_.default"})
        CHECK(run_both(target, {over, half, two, none}) == "");
      for (const char* target :
           {"aten.bernoulli_.float", "aten.exponential_.default", "aten.geometric_.default"})
        CHECK(run_both(target, {over, half, none}) == "");
      CHECK(run_both("aten.native_dropout.default", {over, half, yes}) == "");
      CHECK(run_both("aten.randint_like.low_dtype", {over, low, high, none, none, none, none, none}) == "");
      for (const char* target : {"aten.rand_like.default", "aten.randn_like.default"})
        CHECK(run_both(target, {over, none, none, none, none, none}) == "");
    }
  }
}

TEST_CASE("indices that reach beyond the other tensors of a call are refused") {
  Random random;
  const Tensor x = random.tensor({4, 3}), tall = random.tensor({6, 3}), wide = random.tensor({4, 5});
  const Tensor two = random.integers({0, 1}, {2});
  const Tensor all = random.integers(std::vector<std::int64_t>(18, 0), {6, 3});
  const std::int64_t rows = 0, columns = 1, once = 1, no_padding = -1;
  for (const char* target : {"aten.index_add.default", "aten.index_add_.default"}) {
    INFO(target);
    for (const Extents& sizes : {Extents{4, 3}, {1, 3}, {2, 5}, {2}})
      CHECK(run_both(target, {x, rows, two, random.tensor(sizes), once}) == "refused");
    CHECK(run_both(target, {x, columns, two, random.tensor({6, 2}), once}) == "refused");
    CHECK(run_both(target, {random.tensor({}), rows, two, random.tensor({2}), once}) == "refused");
    CHECK(run_both(target, {x, rows, two, random.tensor({2, 3}), once}) == "");
  }
  for (const char* target : {"aten.index_copy.default", "aten.index_copy_.default"}) {
    INFO(target);
    CHECK(run_both(target, {x, rows, two, x}) == "refused");
    CHECK(run_both(target, {x, columns, two, random.tensor({6, 2})}) == "refused");
  }
  for (const bool accumulates : {false, true})
    CHECK(run_both("aten.index_put.default", {x, Value::list({two}), wide, accumulates}) == "refused");
  CHECK(run_both("aten.gather.default", {x, columns, all, false}) == "refused");
  CHECK(run_both("aten.scatter.src", {x, columns, all, tall}) == "refused");
  CHECK(run_both("aten.scatter.value", {x, columns, all, 1.0}) == "refused");
  CHECK(run_both("aten.scatter_add.default", {x, columns, all, tall}) == "refused");
  // One column of rows.
  const Tensor column = two.view({2, 5}, {1, 0}, 0);
  CHECK(run_both("aten.scatter_add.default", {x, rows, column, wide}) == "refused");
  CHECK(run_both("aten.scatter_reduce.two", {x, columns, all, tall, Text{ArgKind::kText, "sum"}, true}) ==
        "refused");
  CHECK(run_both("aten.embedding_dense_backward.default", {x, two, std::int64_t{8}, no_padding, false}) ==
        "refused");
}

TEST_CASE("an element is found the same way by 32 bits and by 64") {
  device::Shape shape{3, true, {5, 7, 11}};
  const std::int64_t strides[] = {-1000, 13, 100000000000};
  for (std::int64_t i = 0; i < 5 * 7 * 11; ++i) {
    shape.is_small = true;
    const std::int64_t found = device::offset_of(shape, strides, i);
    CHECK(found == -1000 * (i / 77) + 13 * (i / 11 % 7) + 100000000000 * (i % 11));
    shape.is_small = false;
    CHECK(device::offset_of(shape, strides, i) == found);
  }
  CHECK(device::shape_of(Extents{1 << 16, 1 << 14}).is_small);
  CHECK_FALSE(device::shape_of(Extents{1 << 16, 1 << 15}).is_small);
}

// Each dense kernel, and what has none: sizes that are no multiple of a vector, addresses that are
// no multiple of its bytes, rows, columns and single elements that are broadcast, NaN.
TEST_CASE("maps, copies and fills of dense operands") {
  Random random;
  const Value none, one = std::int64_t{1};
  const auto part = [](const Tensor& all, Extents sizes, Extents strides, std::int64_t offset) {
    return all.view(std::move(sizes), std::move(strides), offset);
  };
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kComplex64}) {
    const DType other = dtype == DType::kBfloat16 ? DType::kFloat32 : DType::kBfloat16;
    const auto elements = [&] {
      if (dtype != DType::kComplex64) return random.tensor({3000}, dtype);
      return Tensor{dtype, {3000}, {1}, 0, random.tensor({6000}).storage};
    };
    const Tensor all = elements(), more = elements();
    if (dtype == DType::kFloat32) all.data<float>()[77] = std::numeric_limits<float>::quiet_NaN();
    const auto check = [&](const Tensor& x, const Tensor& y) {
      INFO(info(dtype).name << " " << x.numel() << " of stride " << (x.rank() == 0 ? 0 : x.strides.back())
                            << ", " << y.numel());
      CHECK(run_both("aten.add.Tensor", {x, y, one}) == "");
      CHECK(run_both("aten.mul.Tensor", {x, y}) == "");
      CHECK(run_both("aten.clone.default", {x, none}) == "");
      if (dtype == DType::kComplex64) return;
      CHECK(run_both("aten.add.Tensor", {x, y, 0.3}) == "");
      CHECK(run_both("aten._to_copy.default", {x, other, none, none, none, false, none}) == "");
      CHECK(run_both("aten.silu.default", {x}) == "");
      CHECK(run_both("aten.exp.default", {x}) == "");
      if (x.sizes == y.sizes) CHECK(run_both("aten.silu_backward.default", {x, y}) == "");
    };
    for (const std::int64_t n : {0, 1, 3, 4, 7, 8, 9, 64, 513, 2999})
      for (const std::int64_t offset : {0, 1}) check(part(all, {n}, {1}, offset), part(more, {n}, {1}, 0));
    for (const std::int64_t width : {4, 16, 23}) {
      const Tensor matrix = part(all, {5, width}, {width, 1}, 0),
                   rows = part(all, {5, width}, {width + 8, 1}, 0);
      for (const Tensor& y : {part(more, {5, width}, {width + 1, 1}, 3), part(more, {width}, {1}, 1),
                              part(more, {5, 1}, {2, 1}, 1), part(more, {}, {}, 5),
                              part(more, {5, width}, {1, 5}, 0), part(more, {5, width}, {width * 2, 2}, 0)}) {
        check(matrix, y);
        check(rows, y);
        check(transposed(y.rank() == 2 ? y : matrix), transposed(rows));
      }
      const Tensor cube = part(all, {3, 5, width}, {width, 3 * width, 1}, 0);
      check(cube, part(more, {3, 5, width}, {5 * width, width, 1}, 8));
      const Tensor target = part(more, {5, width}, {width + 8, 1}, 2);
      CHECK(run_both("aten.copy_.default", {target, rows, false}) == "");
      CHECK(run_both("aten.fill_.Scalar", {target, 1.5}) == "");
      CHECK(run_both("aten.cat.default", {Value::list({matrix, rows, matrix}), std::int64_t{1}}) == "");
    }
  }
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUint8, DType::kBool}) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < 35 * 16; ++i) numbers.push_back(i * i * 7919 % 101);
    const Tensor x = random.integers(numbers, {35, 16}, dtype), y = part(x, {5, 13}, {16, 1}, 1);
    for (const Tensor& each : {x, y, transposed(x)}) {
      CHECK(run_both("aten.clone.default", {each, none}) == "");
      CHECK(run_both("aten.fill_.Scalar", {each, std::int64_t{1}}) == "");
    }
  }
}

// Strides and addresses arrive as they were given: what lies between the fields of a task is
// cleared before it is launched, and nothing else.
TEST_CASE("strides of many dimensions that need more than 16 bits") {
  Random random;
  const Extents sizes(6, 2);
  const Tensor x = random.tensor({140100}).view(sizes, {1, 2, 4, 8, 70000, 16}, 0), y = random.tensor(sizes);
  CHECK(run_both("aten.sub.Tensor", {x, y, std::int64_t{2}}) == "");
  CHECK(run_both("aten.sub.Tensor", {y, x, std::int64_t{2}}) == "");
  CHECK(run_both("aten.where.self",
                 {random.integers(std::vector<std::int64_t>(64, 1), sizes, DType::kBool), x, y}) == "");
  CHECK(run_both("aten.neg.default", {x}) == "");
}

TEST_CASE("which kernel does a map or a copy") {
  using device::Stored;
  using device::TaskKind;
  alignas(16) std::byte memory[64];
  device::MapTask<2> map{};
  map.shape = {2, true, {3, 8}};
  for (device::Strided* operand : {&map.out, &map.in[0], &map.in[1]})
    *operand = {memory, {8, 1}, Stored::kBfloat16};
  map.op = device::ElementOp::kMul;
  map.compute = device::Compute::kFloat;
  REQUIRE(device::find_dense(map));
  CHECK(device::find_dense(map)->kind == TaskKind::kMulBfloat16);
  CHECK(device::find_dense(map)->task.rows.all == 3);
  const auto is_general = [&](auto change) {
    device::MapTask<2> changed = map;
    change(changed);
    return !device::find_dense(changed);
  };
  CHECK_FALSE(is_general([](auto& m) { m.in[1].strides[1] = 0; }));
  CHECK_FALSE(is_general([](auto& m) { m.out.strides[0] = 100; }));
  CHECK(is_general([](auto& m) { m.in[1].strides[1] = 2; }));
  CHECK(is_general([](auto& m) { m.out.strides[1] = 2; }));
  CHECK(is_general([](auto& m) { m.in[0].stored = Stored::kFloat32; }));
  CHECK(is_general([](auto& m) { m.op = device::ElementOp::kFmod; }));
  CHECK(is_general([](auto& m) { m.compute = device::Compute::kDouble; }));
  CHECK(is_general([](auto& m) { m.shape.sizes[1] = 7; }));
  CHECK(is_general([](auto& m) { m.shape.rank = 0; }));

  const auto kind_of_copy = [&](std::int64_t row, std::int64_t stride, std::ptrdiff_t first, int bytes) {
    device::CopyTask copy{};
    copy.shape = {2, true, {3, row}};
    copy.to = {memory, {row, 1}, Stored::kUint8};
    copy.from = {memory + first, {stride, 1}, Stored::kUint8};
    copy.bytes = bytes;
    const auto dense = device::find_dense(copy);
    return dense ? dense->kind : TaskKind::kCopy;
  };
  CHECK(kind_of_copy(8, 8, 0, 2) == TaskKind::kCopy16);
  CHECK(kind_of_copy(8, 12, 0, 2) == TaskKind::kCopy8);
  CHECK(kind_of_copy(8, 8, 4, 2) == TaskKind::kCopy4);
  CHECK(kind_of_copy(7, 8, 0, 2) == TaskKind::kCopy2);
  CHECK(kind_of_copy(7, 8, 0, 1) == TaskKind::kCopy);
  CHECK(kind_of_copy(6, 6, 0, 8) == TaskKind::kCopy16);
  CHECK(kind_of_copy(6, 7, 0, 8) == TaskKind::kCopy8);
}

TEST_CASE("products of sizes that are no tiles") {
  Random random;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat64, DType::kFloat16}) {
    for (const auto& [m, k, n] :
         {std::array<std::int64_t, 3>{130, 67, 45}, {1, 300, 1}, {64, 16, 64}, {5, 0, 3}}) {
      const Tensor a = random.tensor({m, k}, dtype), b = random.tensor({k, n}, dtype);
      CHECK(run_both("aten.mm.default", {a, b}) == "");
      CHECK(run_both("aten.mm.default", {transposed(random.tensor({k, m}, dtype)), b}) == "");
      CHECK(run_both("aten.mm.default", {a, transposed(random.tensor({n, k}, dtype))}) == "");
    }
  }
}

// A product per batch, by large tiles where there are 132 batches.
TEST_CASE("products of every layout and dtype, by tiles of 64 and of 128") {
  Random random;
  const auto turned = [](const Tensor& t) {
    return t.view({t.sizes[0], t.sizes[2], t.sizes[1]}, {t.strides[0], t.strides[2], t.strides[1]}, t.offset);
  };
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kFloat64})
    for (const auto& [batches, m, k, n] : {std::array<std::int64_t, 4>{132, 9, 17, 40},
                                           {132, 5, 16, 8},
                                           {3, 70, 33, 65},
                                           {33, 129, 40, 131},
                                           {132, 3, 0, 2}}) {
      const Tensor a = random.tensor({batches, m, k}, dtype), b = random.tensor({batches, k, n}, dtype);
      const Tensor a_turned = turned(random.tensor({batches, k, m}, dtype));
      const Tensor b_turned = turned(random.tensor({batches, n, k}, dtype));
      INFO(info(dtype).name << " " << batches << " x " << m << " x " << k << " x " << n);
      CHECK(run_both("aten.bmm.default", {a, b}) == "");
      CHECK(run_both("aten.bmm.default", {a, b_turned}) == "");
      CHECK(run_both("aten.bmm.default", {a_turned, b}) == "");
      CHECK(run_both("aten.bmm.default", {a_turned, b_turned}) == "");
    }
}

TEST_CASE("a product has no steps beyond its depth, and reads no element beyond its edges") {
  HostMemory memory;
  // -1e-30 * 1e-30 rounds to -0, to which 0 * 0 would add +0.
  for (const DType dtype : {DType::kFloat32, DType::kFloat64})
    for (const std::int64_t batches : {1, 132})
      for (const std::int64_t depth : {1, 7, 15, 17}) {
        const double small = dtype == DType::kFloat32 ? 1e-30 : 1e-200;
        const Tensor a = make_tensor(memory, dtype, {batches, 3, depth});
        const Tensor b = make_tensor(memory, dtype, {batches, depth, 5});
        cpu::store_dense(Buffer<double>(static_cast<std::size_t>(a.numel()), -small), a);
        cpu::store_dense(Buffer<double>(static_cast<std::size_t>(b.numel()), small), b);
        CHECK(run_both("aten.bmm.default", {a, b}) == "");
      }
  // A part of matrices whose other elements are NaN, at addresses that are no multiple of 16 bytes.
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat64}) {
    const Tensor all = make_tensor(memory, dtype, {64, 64});
    cpu::store_dense(Buffer<float>(64 * 64, std::numeric_limits<float>::quiet_NaN()), all);
    const Tensor a = all.view({19, 23}, {64, 1}, 3), b = all.view({23, 21}, {64, 1}, 64 * 20 + 1);
    cpu::store_dense(Buffer<float>(19 * 23, 0.1f), a);
    cpu::store_dense(Buffer<float>(23 * 21, 0.3f), b);
    CHECK(run_both("aten.mm.default", {a, b}) == "");
    CHECK(run_both("aten.mm.default", {transposed(b), transposed(a)}) == "");
  }
}

TEST_CASE("the kernel of a product follows from layout, dtype and number of tiles") {
  using device::Stored;
  using device::TaskKind;
  device::MatmulProblem p{};
  const std::int64_t n = 1024;  // 64 tiles of 128
  p.rows = p.columns = p.depth = n;
  p.a = p.b = p.c = {nullptr, n, 1, 0, 1, Stored::kBfloat16};
  const auto kind = [&](std::int64_t batches) {
    p.batches = batches;
    return device::kind_of_product(p);
  };
  CHECK(kind(1) == TaskKind::kMatmulBfloat16NN4);
  CHECK(kind(3) == TaskKind::kMatmulBfloat16NN8);
  p.c.stored = Stored::kFloat32;
  CHECK(kind(3) == TaskKind::kMatmulBfloat16NN8);
  p.b.row_stride = 1;
  p.b.column_stride = n;
  CHECK(kind(3) == TaskKind::kMatmulBfloat16NT8);
  std::swap(p.a, p.b);
  p.a.stored = p.b.stored = Stored::kFloat16;
  CHECK(kind(3) == TaskKind::kMatmulFloat16TN8);
  p.a.stored = p.b.stored = Stored::kFloat32;
  CHECK(kind(1) == TaskKind::kMatmulFloat32TN4);
  for (device::MatrixPlace* place : {&p.a, &p.b, &p.c}) place->stored = Stored::kFloat64;
  CHECK(kind(1) == TaskKind::kMatmulFloat64TN4);
  CHECK(kind(3) == TaskKind::kMatmulFloat64TN8);
  p.c.stored = Stored::kFloat32;
  CHECK(kind(3) == TaskKind::kMatmulDouble);
  p.a.stored = p.b.stored = p.c.stored = Stored::kInt32;
  CHECK(kind(3) == TaskKind::kMatmulInt);
  p.a.stored = p.b.stored = p.c.stored = Stored::kFloat32;
  // What only the general kernel takes.
  const auto is_general = [&](auto change) {
    device::MatmulProblem changed = p;
    changed.batches = 3;
    change(changed);
    return device::kind_of_product(changed) == TaskKind::kMatmul;
  };
  const std::uint8_t block = 1;
  CHECK_FALSE(is_general([](auto&) {}));
  CHECK_FALSE(is_general([&](auto& q) { q.wanted.data = &block; }));
  CHECK(is_general([](auto& q) { q.a.stored = Stored::kBfloat16; }));
  CHECK(is_general([](auto& q) { q.c.stored = Stored::kFloat64; }));
  CHECK(is_general([](auto& q) { q.b = q.a; }));
  CHECK(is_general([](auto& q) { q.a.row_stride = 2; }));
  CHECK(is_general([](auto& q) { q.depth = std::int64_t{1} << 31; }));
  // Chains that leave blocks out, sums that are added to or divided: a is of float32.
  p.b.stored = Stored::kBfloat16;
  p.accumulates = true;
  CHECK(kind(1) == TaskKind::kCoveredBfloat16TN4);
  p.accumulates = false;
  p.summed = {&block, 128, 128, 8, 1, 64};
  p.c.stored = Stored::kFloat16;
  CHECK(kind(3) == TaskKind::kCoveredBfloat16TN8);
  p.a.row_stride = n;
  p.a.column_stride = 1;
  p.b.stored = Stored::kFloat32;
  CHECK(kind(3) == TaskKind::kCoveredFloat32NN8);
  CHECK(is_general([](auto& q) { q.accumulates = true; }));  // to float16
  const float divisor = 1;
  CHECK_FALSE(is_general([&](auto& q) { q.divisors = &divisor; }));
  CHECK(is_general([&](auto& q) {
    q.divisors = &divisor;
    std::swap(q.a.row_stride, q.a.column_stride);
  }));
  CHECK(is_general([](auto& q) { q.a.stored = Stored::kBfloat16; }));
  CHECK(is_general([](auto& q) { q.summed.row_block = 64; }));
  CHECK(is_general([](auto& q) { q.summed.column_block = 40; }));
  CHECK_FALSE(is_general([](auto& q) { q.summed.row_block = q.summed.column_block = 1025; }));
}

TEST_CASE("grouped products of every layout") {
  Random random;
  const Value none;
  const Tensor ends = random.integers({3, 3, 70, 80}, {4}, DType::kInt32);
  const auto bf16 = [&](Extents sizes) { return random.tensor(std::move(sizes), DType::kBfloat16); };
  for (const DType dtype : {DType::kBfloat16, DType::kFloat64, DType::kInt64}) {
    INFO(info(dtype).name);
    const auto tensor = [&](Extents sizes) {
      if (dtype != DType::kInt64) return random.tensor(std::move(sizes), dtype);
      std::vector<std::int64_t> numbers;
      for (std::int64_t i = 0; i < count_elements(sizes); ++i) numbers.push_back(i * i * 7919 % 101 - 50);
      return random.integers(numbers, std::move(sizes));
    };
    const auto check = [&](Extents a, Extents b, const Value& offs) {
      CHECK(run_both("aten._grouped_mm.default", {tensor(a), tensor(b), offs, none, none}) == "");
    };
    check({90, 33}, {4, 33, 20}, ends);
    check({4, 20, 33}, {33, 90}, ends);
    check({20, 90}, {90, 70}, ends);
    check({4, 20, 33}, {4, 33, 66}, none);
    CHECK(run_both("aten._grouped_mm.default",
                   {tensor({90, 33}), tensor({4, 20, 33}).view({4, 33, 20}, {660, 1, 33}, 0), ends, none,
                    none}) == "");
    CHECK(run_both("aten._grouped_mm.default",
                   {transposed(tensor({90, 20})), tensor({90, 70}), ends, none, none}) == "");
  }
  const Tensor wrong = random.integers({3, 2, 70, 91}, {4}, DType::kInt32);
  CHECK(run_both("aten._grouped_mm.default", {bf16({90, 33}), bf16({4, 33, 20}), wrong, none, none}) ==
        "refused");
}

TEST_CASE("sums and softmax of long rows and short ones") {
  Random random;
  const Value none;
  for (const std::int64_t length : {0, 1, 15, 16, 17, 1000}) {
    const Tensor x = random.tensor({7, length}), g = random.tensor({7, length});
    const Value last = Value::list({std::int64_t{1}}), first = Value::list({std::int64_t{0}});
    CHECK(run_both("aten.sum.dim_IntList", {x, last, true, none}) == "");
    CHECK(run_both("aten.sum.dim_IntList", {x, first, false, none}) == "");
    CHECK(run_both("aten.mean.dim", {x, last, true, none}) == "");
    CHECK(run_both("aten._log_softmax.default", {x, std::int64_t{-1}, false}) == "");
    CHECK(run_both("aten._softmax.default", {x, std::int64_t{0}, false}) == "");
    CHECK(run_both("aten._log_softmax_backward_data.default", {g, x, std::int64_t{1}, DType::kFloat32}) ==
          "");
    CHECK(run_both("aten.cumsum.default", {x, std::int64_t{1}, none}) == "");
  }
  const Tensor x = random.tensor({9, 70}, DType::kBfloat16), g = random.tensor({9, 70}, DType::kBfloat16);
  const Tensor weight = random.tensor({70}, DType::kBfloat16), rstd = random.tensor({9, 1});
  const Value shape = Value::list({std::int64_t{70}});
  CHECK(run_both("aten._fused_rms_norm.default", {x, shape, weight, 1e-5}) == "");
  CHECK(run_both("aten._fused_rms_norm_backward.default",
                 {g, x, shape, rstd, weight, Value::list({true, true})}) == "");
}

// Sums of more elements than one tile has: of a whole tensor, of rows that are dense or not, that
// are whole tiles or not, and of columns, where they lie or as products that a norm's weight gets.
TEST_CASE("sums in tiles") {
  Random random;
  const Value none, no = false, yes = true, last = Value::list({std::int64_t{-1}}),
                    first = Value::list({std::int64_t{0}});
  constexpr std::int64_t kTile = math::kSumTile;
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat64}) {
    INFO(info(dtype).name);
    for (const std::int64_t length : {kTile - 1, kTile, kTile + 1, 3 * kTile, 3 * kTile - 7}) {
      const Tensor x = random.tensor({length}, dtype);
      CHECK(run_both("aten.sum.default", {x, none}) == "");
      CHECK(run_both("aten.mean.default", {x, none}) == "");
      CHECK(run_both("aten.linalg_vector_norm.default", {x, std::int64_t{2}, none, no, none}) == "");
    }
    for (const std::int64_t length : {2 * kTile, kTile + 3}) {
      const Tensor x = random.tensor({2, length + 5}, dtype);
      CHECK(run_both("aten.sum.dim_IntList", {x, last, yes, none}) == "");
      const Tensor apart = x.view({2, length}, {length + 5, 1}, 1);
      CHECK(run_both("aten.sum.dim_IntList", {apart, last, no, none}) == "");
      CHECK(run_both("aten.mean.dim", {apart, last, no, none}) == "");
      CHECK(run_both("aten._softmax.default", {apart, std::int64_t{-1}, no}) == "");
    }
    const Tensor columns = random.tensor({kTile + 9, 2}, dtype);
    CHECK(run_both("aten.sum.dim_IntList", {columns, first, no, none}) == "");
    CHECK(run_both("aten.mean.dim", {columns, first, no, none}) == "");
    if (dtype == DType::kFloat64) continue;
    const Tensor gradient = random.tensor({kTile + 9, 2}, dtype), weight = random.tensor({2}, dtype),
                 scale = random.tensor({kTile + 9, 1});
    CHECK(
        run_both("aten._fused_rms_norm_backward.default", {gradient, columns, Value::list({std::int64_t{2}}),
                                                           scale, weight, Value::list({true, true})}) == "");
  }
  const Tensor counts = random.integers(std::vector<std::int64_t>(kTile + 2, 3), {kTile + 2});
  CHECK(run_both("aten.sum.default", {counts, none}) == "");
}

// Of many rows each has fewer threads, and more tiles.
TEST_CASE("softmax, RMS norm and sums of many rows") {
  Random random;
  const Value none, last = std::int64_t{-1}, no = false;
  for (const auto& [rows, length, dtype] :
       {std::tuple<std::int64_t, std::int64_t, DType>{6500, 260, DType::kBfloat16},
        {3400, 603, DType::kFloat32},
        {900, 2051, DType::kFloat32}}) {
    INFO(rows << " x " << length);
    const Tensor x = random.tensor({rows, length}, dtype), y = random.tensor({rows, length}, dtype);
    const Value dims = Value::list({length}), weight = random.tensor({length}, dtype);
    CHECK(run_both("aten._softmax.default", {x, last, no}) == "");
    CHECK(run_both("aten._log_softmax.default", {x, last, no}) == "");
    CHECK(run_both("aten._softmax_backward_data.default", {y, x, last, dtype}) == "");
    CHECK(run_both("aten._log_softmax_backward_data.default", {y, x, last, dtype}) == "");
    CHECK(run_both("aten._fused_rms_norm.default", {x, dims, weight, 1e-5}) == "");
    CHECK(run_both("aten._fused_rms_norm_backward.default",
                   {y, x, dims, random.tensor({rows, 1}), weight, Value::list({true, true})}) == "");
    CHECK(run_both("aten.sum.dim_IntList", {x, Value::list({std::int64_t{1}}), no, none}) == "");
  }
}

// Which threads a row has: 16 where many rows are short, all of a block where few are long.
TEST_CASE("the threads of a row follow from its length and the number of rows") {
  using Sum = device::WholeRowTask<device::RowSum>;
  using Norm = device::WholeRowTask<device::RmsNormRow>;
  CHECK(Sum::bits_for(64, 1) == 4);
  CHECK(Sum::bits_for(8192, 1) == 8);
  CHECK(Sum::bits_for(8192, 8192) == 6);
  CHECK(Sum::bits_for(8192, 1100) == 7);
  CHECK(Norm::bits_for(2048, 16384) == 6);
  CHECK(Norm::bits_for(2048, 4) == 7);
  CHECK(Norm::bits_for(102400, 16384) == 8);
}

// Rows that one kernel does whole: shorter and longer than a tile, side by side in a block, at
// addresses that are no multiple of a vector's bytes, with NaN, infinities and zeros of both signs.
TEST_CASE("softmax, RMS norm and sums of whole rows") {
  Random random;
  const Value none, last = std::int64_t{-1}, no = false;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16})
    for (const auto& layout : {std::array<std::int64_t, 4>{1, 1, 1, 0},
                               {3, 5, 5, 0},
                               {37, 64, 64, 0},
                               {5, 256, 260, 1},
                               {5, 257, 264, 0},
                               {4, 1000, 1000, 0},
                               {3, 4096, 4096, 8},
                               {2, 4097, 4100, 0},
                               {2, 9001, 9001, 3},
                               {0, 16, 16, 0},
                               {2, 0, 1, 0}}) {
      const std::int64_t rows = layout[0], length = layout[1], stride = layout[2], offset = layout[3];
      const Extents sizes{rows, length}, one{rows, 1};
      const auto tensor = [&] {
        return random.tensor({offset + rows * stride + length}, dtype).view(sizes, {stride, 1}, offset);
      };
      const Tensor x = tensor(), y = tensor(), weight = random.tensor({length}, dtype);
      const Tensor rstd = random.tensor(one);
      INFO(info(dtype).name << " " << rows << " x " << length);
      const auto check = [&] {
        CHECK(run_both("aten._softmax.default", {x, last, no}) == "");
        CHECK(run_both("aten._log_softmax.default", {x, last, no}) == "");
        CHECK(run_both("aten._softmax_backward_data.default", {y, x, last, dtype}) == "");
        CHECK(run_both("aten._log_softmax_backward_data.default", {y, x, last, dtype}) == "");
        const Value dims = Value::list({length});
        for (const Value& given : {Value(weight), none}) {
          CHECK(run_both("aten._fused_rms_norm.default", {x, dims, given, 1e-5}) == "");
          CHECK(run_both("aten._fused_rms_norm_backward.default",
                         {y, x, dims, rstd, given, Value::list({true, true})}) == "");
        }
        for (const std::int64_t dim : {0, 1}) {
          CHECK(run_both("aten.sum.dim_IntList", {x, Value::list({dim}), no, none}) == "");
          CHECK(run_both("aten.mean.dim", {x, Value::list({dim}), no, none}) == "");
        }
        CHECK(run_both("aten.sum.default", {x, none}) == "");
        CHECK(run_both("aten._softmax.default", {x, std::int64_t{0}, no}) == "");
      };
      check();
      if (x.numel() < 8) continue;
      // -0 and 0 as a row's largest; all of a row -inf; NaN and inf.
      Buffer<float> values(static_cast<std::size_t>(x.numel()), -1.0f);
      const auto width = static_cast<std::size_t>(length);
      values[width - 1] = 0.0f;
      values[width / 2] = -0.0f;
      for (std::size_t j = 0; rows > 1 && j < width; ++j) values[width + j] = -infinite;
      if (rows > 2) {
        values[2 * width] = nan;
        values[2 * width + 1] = infinite;
      }
      cpu::store_dense(values, x);
      check();
    }
  // Rows of three dimensions together, and a half that becomes float32.
  const Tensor cube = random.tensor({3, 7, 40}, DType::kBfloat16);
  CHECK(run_both("aten._softmax.default", {cube, last, true}) == "");
  CHECK(run_both("aten._fused_rms_norm.default", {cube, Value::list({std::int64_t{7}, std::int64_t{40}}),
                                                  random.tensor({7, 40}), none}) == "");
  CHECK(run_both("aten.sum.dim_IntList", {cube, Value::list({std::int64_t{1}}), no, none}) == "");
  CHECK(run_both("aten.sum.dim_IntList", {cube, Value::list({std::int64_t{0}, std::int64_t{1}}), no, none}) ==
        "");
}

TEST_CASE("many sources in one destination are added in order") {
  Random random;
  const std::int64_t n = 500, rows = 7, width = 19;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i) index.push_back(i * i % rows);
  const Tensor self = random.tensor({rows, width}, DType::kBfloat16),
               values = random.tensor({n, width}, DType::kBfloat16);
  const Tensor at = random.integers(index, {n});
  const Value indices = Value::list({at});
  CHECK(run_both("aten.index_put.default", {self, indices, values, true}) == "");
  CHECK(run_both("aten.index_put_.default", {self, indices, values, false}) == "");
  CHECK(run_both("aten.embedding_dense_backward.default", {values, at, rows, std::int64_t{3}, false}) == "");
  const Tensor spread = at.view({n, width}, {1, 0}, 0);
  CHECK(run_both("aten.scatter_add.default", {self, std::int64_t{0}, spread, values}) == "");
  CHECK(run_both("torchtitan.deterministic_scatter_add.default", {self, spread, values}) == "");
  CHECK(run_both("aten.gather.default", {self, std::int64_t{0}, spread, false}) == "");
}

// Blocks of every length up to more than a vector, at addresses that are no multiple of one, and
// targets that are not row-major.
TEST_CASE("rows and blocks are read, written and added where they lie") {
  Random random;
  const std::int64_t n = 40, rows = 6, padding = 2, first = 0;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i) index.push_back(i * i % rows);
  const Tensor at = random.integers(index, {n}), pairs = at.view({20, 2}, {2, 1}, 0);
  const Value indices = Value::list({at}), by_two = Value::list({pairs});
  for (const DType dtype :
       {DType::kFloat32, DType::kBfloat16, DType::kFloat16, DType::kFloat64, DType::kInt64, DType::kUint8})
    for (const std::int64_t width : {1, 3, 4, 8, 17, 64})
      for (const std::int64_t offset : {0, 1}) {
        INFO(info(dtype).name << " " << width << " " << offset);
        const auto tensor = [&](std::int64_t count) {
          const Tensor all = random.tensor({offset + count * (width + 4)}, DType::kFloat32);
          const Tensor scaled = random.tensor({offset + count * (width + 4)}, dtype);
          Buffer<float> values = cpu::dense<float>(all);
          for (float& value : values) value *= 100;
          cpu::store_dense(values, scaled);
          return scaled.view({count, width}, {width + 4, 1}, offset);
        };
        const Tensor self = tensor(rows), source = tensor(n);
        const Tensor across =
            random.tensor({width * (rows + 4)}, dtype).view({rows, width}, {1, rows + 4}, 0);
        for (const bool accumulates : {false, true}) {
          CHECK(run_both("aten.index_put.default", {self, indices, source, accumulates}) == "");
          CHECK(run_both("aten.index_put_.default", {self, indices, source, accumulates}) == "");
          CHECK(run_both("aten.index_put.default",
                         {self, by_two, source.view({20, 2, width}, {2 * (width + 4), width + 4, 1}, offset),
                          accumulates}) == "");
        }
        CHECK(run_both("aten.index.Tensor", {self, indices}) == "");
        CHECK(run_both("aten.index.Tensor", {self, by_two}) == "");
        const Tensor spread = at.view({n, width}, {1, 0}, 0);
        CHECK(run_both("aten.scatter_add.default", {self, first, spread, source}) == "");
        CHECK(run_both("aten.scatter.src", {self, first, spread, source}) == "");
        CHECK(run_both("aten.gather.default", {self, first, spread, false}) == "");
        if (dtype == DType::kInt64 || dtype == DType::kUint8) continue;
        for (const bool by_frequency : {false, true})
          CHECK(run_both("aten.embedding_dense_backward.default",
                         {source, at, rows, padding, by_frequency}) == "");
        CHECK(run_both("aten.index_put_.default", {across, indices, source, true}) == "");
      }
  // A source in the target's own memory, and one of another dtype.
  const Tensor self = random.tensor({n, 8}, DType::kBfloat16);
  CHECK(run_both("aten.index_put_.default", {self, indices, self, true}) == "");
  CHECK(run_both("aten.index_add.default", {self, first, at, random.tensor({n, 8}, DType::kBfloat16), 0.5}) ==
        "");
  const Tensor targets = random.integers({10, 0, -100}, {3});
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const Tensor x = random.tensor({3, 11}, dtype), grad = random.tensor({}, dtype);
    for (const std::int64_t reduction : {1, 2})
      CHECK(run_both("aten.nll_loss_backward.default", {grad, x, targets, Value(), reduction,
                                                        std::int64_t{-100}, random.tensor({}, dtype)}) == "");
  }
}

TEST_CASE("the gradient of an embedding has the strides that a graph recorded") {
  const OpInfo& op = *find_op("aten.embedding_dense_backward.default");
  Random random;
  const std::vector<Value> args{random.tensor({4, 3}), random.integers({1, 4, 1, 0}, {4}), std::int64_t{5},
                                std::int64_t{-1}, false};
  const auto run = [&](const KernelTable& table, const std::vector<Value>& given, Memory& memory) {
    KernelCall call(op, given, ~0u, memory);
    call.set_results({{true, DType::kFloat32, {5, 3}, {1, 5}, 0}});
    return table.find(op)(call);
  };
  OnDevice on_device;
  const Value placed = on_device.place(Value::list(args));
  const Value found =
      on_device.download(run(tested_device().kernels(), placed.items(), on_device.rank().memory()));
  HostMemory memory(HostMemory::Fill::kPoison);
  CHECK(found.tensor().strides == Extents{1, 5});
  CHECK(compare_bits(run(make_cpu_kernels(), args, memory), found) == "");
}

// Tiles of tiles; sums and products that wrap.
TEST_CASE("scans of integers in long rows, in several, and beyond the largest number") {
  Random random;
  const Value none;
  const auto scan = [&](std::int64_t rows, std::int64_t length, std::int64_t size) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < rows * length; ++i) numbers.push_back((i * 7919 % 4099 - 2050) * size + 1);
    const Tensor x = random.integers(numbers, {rows, length});
    for (const char* target : {"aten.cumsum.default", "aten.cumprod.default"}) {
      INFO(target << " " << rows << " " << length);
      CHECK(run_both(target, {x, std::int64_t{1}, none}) == "");
    }
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 51;
  for (const std::int64_t size : {std::int64_t{2}, kLarge}) {
    scan(3, 5000, size);
    scan(1, 5000, size);
    scan(1, 300'000, size);
  }
  scan(40, 64, kLarge);
  scan(40, 65, 2);
}

TEST_CASE("sorts, scans and searches of rows that are longer than a tile") {
  Random random;
  const Value none;
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < 3000; ++i) some.push_back(i * i * 7919 % 101 - 50);
  const Tensor whole = random.integers(some, {2, 1500}), flags = random.integers(some, {3000}, DType::kInt32);
  Tensor x = random.tensor({3, 1500});
  x.data<float>()[700] = x.data<float>()[701] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[10] = -0.0f;
  x.data<float>()[11] = 0.0f;
  const Tensor column = x.view({1500, 3}, {1, 1500}, 0);
  for (const bool descending : {false, true}) {
    CHECK(run_both("aten.sort.default", {x, std::int64_t{1}, descending}) == "");
    CHECK(run_both("aten.sort.default", {column, std::int64_t{0}, descending}) == "");
    CHECK(run_both("aten.argsort.stable", {whole, true, std::int64_t{1}, descending}) == "");
    CHECK(run_both("aten.topk.default", {x, std::int64_t{9}, std::int64_t{-1}, descending, true}) == "");
    CHECK(run_both("aten.topk.default",
                   {random.tensor({4, 1}), std::int64_t{1}, std::int64_t{1}, descending, true}) == "");
  }
  CHECK(run_both("aten.cumsum.default", {whole, std::int64_t{1}, none}) == "");
  CHECK(run_both("aten.cumprod.default", {whole, std::int64_t{1}, none}) == "");
  CHECK(run_both("aten.cummax.default", {x, std::int64_t{1}}) == "");
  CHECK(run_both("aten.max.default", {whole}) == "");
  CHECK(run_both("aten.max.default", {x}) == "");
  CHECK(run_both("aten.max.dim", {x, std::int64_t{1}, false}) == "");
  CHECK(run_both("aten.min.dim", {whole, std::int64_t{1}, true}) == "");
  CHECK(run_both("aten.argmax.default", {x, none, false}) == "");
  CHECK(run_both("aten.all.default", {whole}) == "");
  CHECK(run_both("aten.any.default", {random.integers(std::vector<std::int64_t>(3000, 0), {3000})}) == "");
  CHECK(run_both("aten.nonzero.default", {whole}) == "");
  CHECK(run_both("aten.masked_select.default",
                 {x.view({1500}, {1}, 0), random.integers(some, {2, 1500}, DType::kBool)}) == "");
  CHECK(run_both("aten.sum.default", {random.tensor({70000}), none}) == "");
  const Tensor edges = random.integers({-40, -3, -3, 0, 12, 44}, {6});
  for (const bool right : {false, true}) {
    CHECK(run_both("aten.bucketize.Tensor", {whole, edges, false, right}) == "");
    CHECK(run_both("aten.searchsorted.Tensor", {edges, flags, true, right, none, none}) == "");
  }
}

// The first launch sorts runs of 128 by counting, each further one doubles them.
TEST_CASE("a sort keeps the order of equal elements where its runs end, and takes few launches") {
  Random random;
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < 520; ++i) some.push_back(i * i * 7919 % 7 - 3);
  for (const std::int64_t length : {1, 2, 127, 128, 129, 255, 256, 257, 512, 520}) {
    INFO(length);
    const std::vector<std::int64_t> taken(some.begin(), some.begin() + length);
    const Tensor whole = random.integers(taken, {length});
    Tensor x = random.tensor({2, length});
    for (std::int64_t i = 0; i < length; ++i)
      x.data<float>()[i] = static_cast<float>(taken[static_cast<std::size_t>(i)]);
    x.data<float>()[length / 2] = std::numeric_limits<float>::quiet_NaN();
    x.data<float>()[length - 1] = -0.0f;
    for (const bool descending : {false, true}) {
      CHECK(run_both("aten.argsort.stable", {whole, true, std::int64_t{0}, descending}) == "");
      CHECK(run_both("aten.sort.stable", {x, true, std::int64_t{1}, descending}) == "");
    }
    std::size_t passes = 1;
    for (std::int64_t run = 128; run < length; run *= 2) ++passes;
    CHECK(std::ranges::count(launched_by("aten.argsort.stable", {whole, true, std::int64_t{0}, false}),
                             device::TaskKind::kMergeInt) == static_cast<std::ptrdiff_t>(passes));
  }
}

TEST_CASE("each index of a gather is one launch, and the rows another") {
  using device::TaskKind;
  Random random;
  const Tensor x = random.tensor({4, 3, 64}), rows = random.integers({3, 0, 3}, {3}),
               columns = random.integers({2, -1, 0}, {3});
  const auto launches = [&](const std::vector<Value>& indices) {
    CHECK(run_both("aten.index.Tensor", {x, Value::list(indices)}) == "");
    return launched_by("aten.index.Tensor", {x, Value::list(indices)});
  };
  using Kinds = std::vector<TaskKind>;
  CHECK(launches({rows}) == Kinds{TaskKind::kResolveIndex, TaskKind::kReadDenseBlocks});
  CHECK(launches({Value(), columns}) == Kinds{TaskKind::kResolveIndex, TaskKind::kReadBlocks});
  CHECK(launches({rows, columns}) ==
        Kinds{TaskKind::kResolveIndex, TaskKind::kResolveIndex, TaskKind::kReadDenseBlocks});
}

TEST_CASE("counts of many elements") {
  Random random;
  const Value none;
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < 3000; ++i) classes.push_back(i * i % 61);
  const Tensor x = random.integers(classes, {3000});
  CHECK(run_both("aten.bincount.default", {x, none, std::int64_t{0}}) == "");
  CHECK(run_both("aten.bincount.default", {x, random.tensor({3000}), std::int64_t{100}}) == "");
  CHECK(run_both("aten.one_hot.default", {x, std::int64_t{-1}}) == "");
  const Tensor values = random.tensor({50, 60});
  CHECK(run_both("aten.histc.default", {values, std::int64_t{64}, 0.0, 0.0}) == "");
  CHECK(run_both("aten.histc.default", {values, std::int64_t{7}, -0.5, 0.5}) == "");
  CHECK(run_both("aten.histc.default", {values, std::int64_t{7}, 0.5, -0.5}) == "refused");
  // An interval that is longer than the largest number has no bins to divide it by.
  const Tensor wide = random.tensor({8}, DType::kFloat64);
  CHECK(run_both("aten.histc.default", {wide, std::int64_t{7}, -1.7e308, 1.7e308}) == "refused");
  CHECK(run_both("aten.one_hot.default", {x, std::int64_t{60}}) == "refused");
  CHECK(run_both("aten.bincount.default", {random.integers({3, -1}, {2}), none, std::int64_t{0}}) ==
        "refused");
}

TEST_CASE("rows scattered by an index that is expanded, or covers less than the tensor") {
  Random random;
  const std::int64_t n = 300, rows = 11;
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i) index.push_back(i * i % rows);
  const Tensor at = random.integers(index, {n});
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const Tensor self = random.tensor({rows, 9}, dtype), source = random.tensor({n, 9}, dtype);
    const Tensor across = random.tensor({9, rows}, dtype), by_column = random.tensor({9, n}, dtype);
    for (const std::int64_t width : {9, 4}) {
      const Tensor expanded = at.view({n, width}, {1, 0}, 0), turned = at.view({width, n}, {0, 1}, 0);
      CHECK(run_both("aten.scatter_add.default", {self, std::int64_t{0}, expanded, source}) == "");
      CHECK(run_both("aten.scatter.src", {self, std::int64_t{0}, expanded, source}) == "");
      CHECK(run_both("aten.scatter_add_.default", {across, std::int64_t{1}, turned, by_column}) == "");
      CHECK(run_both("aten.scatter.value", {self, std::int64_t{0}, expanded, 2.5}) == "");
    }
    for (const char* how : {"sum", "prod", "mean", "amax", "amin"})
      for (const bool includes : {false, true})
        CHECK(run_both("aten.scatter_reduce.two", {self, std::int64_t{0}, at.view({n, 9}, {1, 0}, 0), source,
                                                   Text{ArgKind::kText, how}, includes}) == "");
    const Tensor few = random.integers({3, -1, 3, 0}, {4});
    CHECK(run_both("aten.index_copy.default", {self, std::int64_t{0}, few, random.tensor({4, 9}, dtype)}) ==
          "");
    CHECK(run_both("aten.index_fill.int_Scalar", {self, std::int64_t{0}, few, 0.5}) == "");
    CHECK(run_both("aten.index_add.default", {self, std::int64_t{0}, at, source, 2.0}) == "");
    CHECK(run_both("aten.embedding_dense_backward.default", {source, at, rows, std::int64_t{3}, true}) == "");
  }
}

TEST_CASE("rows that lie in the memory that is written are those of before") {
  Random random;
  const Tensor x = random.tensor({4, 8}), at = random.integers({3, 2, 1, 0}, {4});
  CHECK(run_both("aten.scatter_.src", {x, std::int64_t{0}, at.view({4, 8}, {1, 0}, 0), x}) == "");
  CHECK(run_both("aten.index_put_.default", {x, Value::list({at}), x, false}) == "");
  HostMemory memory;
  const Tensor before = make_tensor(memory, x.dtype, x.sizes);
  cpu::copy_elements(x, before);
  const KernelTable cpu = make_cpu_kernels();
  const OpInfo* op = find_op("aten.index_put_.default");
  REQUIRE(run_kernel(cpu, *op, {x, Value::list({at}), x, false}, memory).error.empty());
  for (std::int64_t row = 0; row < 4; ++row)
    CHECK(compare_bits(x.view({8}, {1}, row * 8), before.view({8}, {1}, (3 - row) * 8)) == "");
}

TEST_CASE("operands of a derivative or a norm that have other sizes are refused") {
  Random random;
  const Tensor x = random.tensor({4, 64}), other = random.tensor({2, 8}), weight = random.tensor({64});
  const Tensor few = random.tensor({8}), rstd = random.tensor({4, 1}), short_rstd = random.tensor({2, 1});
  const std::int64_t last = 1;
  const DType dtype = DType::kFloat32;
  for (const char* target :
       {"aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default"}) {
    CHECK(run_both(target, {x, other, last, dtype}) == "refused");
    CHECK(run_both(target, {x, x, last, dtype}) == "");
  }
  const Value shape = Value::list({std::int64_t{64}}), both = Value::list({true, true}),
              all = Value::list({true, true, true});
  CHECK(run_both("aten._fused_rms_norm.default", {x, shape, few, 1e-5}) == "refused");
  CHECK(run_both("aten.native_layer_norm.default", {x, shape, weight, few, 1e-5}) == "refused");
  const char* rms = "aten._fused_rms_norm_backward.default";
  CHECK(run_both(rms, {x, x, shape, rstd, weight, both}) == "");
  CHECK(run_both(rms, {x, x, shape, rstd, few, both}) == "refused");
  CHECK(run_both(rms, {x, x, shape, short_rstd, weight, both}) == "refused");
  CHECK(run_both(rms, {other, x, shape, rstd, weight, both}) == "refused");
  const char* layer = "aten.native_layer_norm_backward.default";
  CHECK(run_both(layer, {x, x, shape, rstd, rstd, weight, weight, all}) == "");
  CHECK(run_both(layer, {x, x, shape, rstd, rstd, few, weight, all}) == "refused");
  CHECK(run_both(layer, {x, x, shape, rstd, rstd, weight, few, all}) == "refused");
  CHECK(run_both(layer, {x, x, shape, short_rstd, rstd, weight, weight, all}) == "refused");
  CHECK(run_both(layer, {other, x, shape, rstd, rstd, weight, weight, all}) == "refused");
}

TEST_CASE("what the CPU refuses the device reports, and nothing else") {
  Random random;
  const Tensor x = random.tensor({4, 3});
  const Tensor far = random.integers({1, 4}, {2}), negative = random.integers({-1, 0}, {2});
  CHECK(run_both("aten.index.Tensor", {x, Value::list({far})}) == "refused");
  CHECK(run_both("aten.index.Tensor", {x, Value::list({negative})}) == "");
  CHECK(run_both("aten.embedding.default", {x, negative, std::int64_t{-1}, false, false}) == "refused");
  CHECK(run_both("aten.index_select.default", {x, std::int64_t{0}, far}) == "refused");
  const Tensor zeros = random.integers({2, 0}, {2});
  CHECK(run_both("aten.floor_divide.default", {far, zeros}) == "refused");
  CHECK(run_both("aten._assert_async.msg", {random.integers({0}, {1}), Text{ArgKind::kText, "no"}}) ==
        "refused");
  CHECK(run_both("aten.repeat_interleave.Tensor", {random.integers({2, -1, 3}, {3}), std::int64_t{4}}) ==
        "refused");
  CHECK(run_both("aten.repeat_interleave.Tensor", {random.integers({2, 1, 3}, {3}), std::int64_t{7}}) ==
        "refused");
  CHECK(run_both("aten.repeat_interleave.Tensor", {random.integers({2, 0, 3}, {3}), Value()}) == "");
}

}  // namespace epweave::replay
