// Choosing, pinning and recording algorithms, with a library in cuBLASLt's place whose bits show
// which one ran.
#include "replay/cublas/products.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "replay/kernels/device/device.h"
#include "replay/kernels/host/elements.h"
#include "replay/values/compare.h"

namespace epweave::replay {
namespace {

Steps one_stream() {
  Steps steps;
  steps.streams = {"compute"};
  steps.has_high_priority = {false};
  return steps;
}

// The emulated device with the library in cuBLASLt's place, or a GPU with cuBLASLt where
// EPWEAVE_TEST_DEVICE is `cuda`.
std::unique_ptr<Device> open_tested_device(const device::MathMode& mode) {
  const char* name = std::getenv("EPWEAVE_TEST_DEVICE");
  if (name != nullptr && std::string(name) == "cuda") return device::open_cuda_device(0, mode);
  setenv("EPWEAVE_CUBLASLT", EPWEAVE_STAND_IN, 1);
  return device::open_emulated_device(device::Emulation::kLazy, mode);
}

// Runs products in native math, or in portable.
class Native {
 public:
  explicit Native(PinRows pin, Math math = Math::kNative) {
    device_ = open_tested_device({math, pin});
    run_ = device_->start({steps_, 1, HostMemory::Fill::kPoison});
  }
  Tensor call(const char* target, const std::vector<Value>& args) {
    std::vector<Value> placed;
    for (const Value& arg : args)
      placed.push_back(arg.is_tensor() ? Value(run_->rank(0).memory().place(arg.tensor())) : arg);
    run_->rank(0).set_node(NodeId(next_++));
    const OpInfo* op = find_op(target);
    REQUIRE(op != nullptr);
    KernelCall kernel(*op, placed, ~0u, run_->rank(0).memory());
    const Value result = device_->kernels().find(*op)(kernel);
    return run_->rank(0).download(result.tensor());
  }
  std::vector<LibraryProduct> record() { return run_->rank(0).take_products(); }

 private:
  Steps steps_ = one_stream();
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceRun> run_;
  std::uint32_t next_ = 0;
};

// Values whose sum depends on the order of the additions.
Tensor numbers(HostMemory& memory, Extents sizes) {
  Tensor tensor = make_tensor(memory, DType::kFloat32, std::move(sizes));
  std::uint32_t state = 7;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.data<float>()[i] = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return tensor;
}
Tensor rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.view({count, tensor.sizes[1]}, tensor.strides, tensor.offset + first * tensor.strides[0]);
}
Tensor transposed(const Tensor& t) {
  return t.view({t.sizes[1], t.sizes[0]}, {t.strides[1], t.strides[0]}, t.offset);
}
bool same_bits(const Tensor& a, const Tensor& b) {
  return compare_tensors(a, b).is_equal();
}
std::string tile_of(const LibraryProduct& product) {
  return product.algorithm.substr(product.algorithm.find("tile"), 6);
}

}  // namespace

TEST_CASE("native: an algorithm without split sums is taken, and is that of the number of rows") {
  HostMemory memory;
  Native native(PinRows::kNo);
  const Tensor x = numbers(memory, {100, 37}), w = numbers(memory, {37, 24});
  const Tensor whole = native.call("aten.mm.default", {x, w});
  const Tensor part = native.call("aten.mm.default", {rows(x, 0, 50), w});
  const auto record = native.record();
  REQUIRE(record.size() == 2);
  CHECK(record[0].shape == "f32[100, 37] x [37, 24]");
  CHECK(tile_of(record[0]) == "tile 3");
  CHECK(tile_of(record[1]) == "tile 2");
  CHECK(record[1].node == NodeId(1u));
  CHECK_FALSE(same_bits(rows(whole, 0, 50), part));
  CHECK(native.record().empty());
}

TEST_CASE("native: pinned rows take the algorithm of a number of rows that is always the same") {
  HostMemory memory;
  Native native(PinRows::kYes);
  const Tensor x = numbers(memory, {100, 37}), w = numbers(memory, {37, 24});
  const Tensor whole = native.call("aten.mm.default", {x, w});
  for (const std::int64_t first : {0, 48}) {
    const Tensor part = native.call("aten.mm.default", {rows(x, first, 52), w});
    CHECK(same_bits(rows(whole, first, 52), part));
  }
  // The library refuses it for 4 rows: those have their own, and the record shows it.
  native.call("aten.mm.default", {rows(x, 0, 4), w});
  // Another class: a transposed operand, other columns.
  native.call("aten.mm.default", {rows(x, 0, 10), transposed(numbers(memory, {24, 37}))});
  const auto record = native.record();
  REQUIRE(record.size() == 5);
  CHECK(tile_of(record[1]) == "tile 3");
  CHECK(tile_of(record[2]) == "tile 3");
  CHECK(tile_of(record[3]) == "tile 1");
  CHECK(record[4].shape == "f32[10, 37] x [24, 37]^T");
  CHECK(tile_of(record[4]) == "tile 3");
}

TEST_CASE(
    "native: the pinned algorithm does not depend on which product comes first, nor on the number of "
    "batches") {
  HostMemory memory;
  const Tensor x = numbers(memory, {100, 37}), w = numbers(memory, {37, 24});
  Native whole_first(PinRows::kYes), part_first(PinRows::kYes);
  const Tensor whole = whole_first.call("aten.mm.default", {x, w});
  const Tensor part = part_first.call("aten.mm.default", {rows(x, 0, 10), w});
  CHECK(same_bits(rows(whole, 0, 10), part));
  const Tensor a = numbers(memory, {6, 20, 12}), b = numbers(memory, {6, 12, 8});
  const Tensor all = whole_first.call("aten.bmm.default", {a, b});
  const Tensor two = whole_first.call(
      "aten.bmm.default", {a.view({2, 20, 12}, {240, 12, 1}, 480), b.view({2, 12, 8}, {96, 8, 1}, 192)});
  CHECK(same_bits(all.view({2, 20, 8}, {160, 8, 1}, 320), two));
  const auto record = whole_first.record();
  REQUIRE(record.size() == 3);
  CHECK(record[1].algorithm == record[2].algorithm);
  CHECK(record[1].bits == record[2].bits);
}

TEST_CASE("native: what the library has no algorithm for is made by a kernel of ours") {
  HostMemory memory;
  Native native(PinRows::kNo), portable(PinRows::kNo, Math::kPortable);
  const Tensor x = numbers(memory, {9, 61}), w = numbers(memory, {61, 5});  // the stand-in refuses this depth
  CHECK(same_bits(native.call("aten.mm.default", {x, w}), portable.call("aten.mm.default", {x, w})));
  const auto record = native.record();
  REQUIRE(record.size() == 1);
  CHECK(record[0].algorithm == "own kernel");
}

TEST_CASE("native: an algorithm that does not say whether it splits sums is not taken") {
  HostMemory memory;
  Native native(PinRows::kNo);
  // Of this depth the stand-in proposes a silent one and one of a negative split first.
  native.call("aten.mm.default", {numbers(memory, {9, 59}), numbers(memory, {59, 5})});
  const auto record = native.record();
  REQUIRE(record.size() == 1);
  CHECK(record[0].algorithm.find("split-K 1, scheme 0, workspace 1024") != std::string::npos);
  CHECK(tile_of(record[0]) == "tile 1");
}

TEST_CASE("native: layouts that the library does not read are copied, results that it does not write too") {
  HostMemory memory;
  Native native(PinRows::kNo);
  const Tensor x = numbers(memory, {20, 37}), w = numbers(memory, {37, 24});
  const Tensor expected = native.call("aten.mm.default", {x, w});
  const Tensor spread = numbers(memory, {20, 74});
  Tensor apart = spread.view({20, 37}, {74, 2}, 0);
  for (std::int64_t i = 0; i < 20; ++i)
    for (std::int64_t k = 0; k < 37; ++k) spread.data<float>()[i * 74 + k * 2] = x.data<float>()[i * 37 + k];
  CHECK(same_bits(native.call("aten.mm.default", {apart, w}), expected));
  Tensor columns = make_tensor(memory, DType::kFloat32, {20, 37}, {1, 20});
  scatter_elements(x.bytes(), columns);
  CHECK(same_bits(native.call("aten.mm.default", {columns, w}), expected));
}

TEST_CASE("native: no elements, no depth, batches, a product that is added, float64") {
  HostMemory memory;
  Native native(PinRows::kNo);
  CHECK(native.call("aten.mm.default", {numbers(memory, {0, 3}), numbers(memory, {3, 4})}).numel() == 0);
  const Tensor none = native.call("aten.mm.default", {numbers(memory, {2, 0}), numbers(memory, {0, 4})});
  for (std::int64_t i = 0; i < 8; ++i) CHECK(none.data<float>()[i] == 0.0f);
  CHECK(native.record().empty());

  const Tensor a = numbers(memory, {3, 20, 11}), b = numbers(memory, {3, 11, 6});
  const Tensor batches = native.call("aten.bmm.default", {a, b});
  for (std::int64_t i = 0; i < 3; ++i) {
    const Tensor one =
        native.call("aten.mm.default", {a.view({20, 11}, {11, 1}, i * 220), b.view({11, 6}, {6, 1}, i * 66)});
    CHECK(same_bits(batches.view({20, 6}, {6, 1}, i * 120), one));
  }
  const Tensor bias = numbers(memory, {6}), x = a.view({20, 11}, {11, 1}, 0), w = b.view({11, 6}, {6, 1}, 0);
  const Tensor added = native.call("aten.addmm.default", {bias, x, w, std::int64_t{1}, std::int64_t{1}});
  const Tensor product = native.call("aten.mm.default", {x, w});
  CHECK(added.data<float>()[7] == product.data<float>()[7] + bias.data<float>()[1]);
  CHECK(native.record().front().shape == "3 of f32[20, 11] x [11, 6]");
}

TEST_CASE("native: groups are products of their own, of pinned rows all the same") {
  HostMemory memory;
  Tensor ends = make_tensor(memory, DType::kInt32, {3});
  for (const std::int64_t i : {0, 1, 2}) ends.data<std::int32_t>()[i] = i == 0 ? 70 : i == 1 ? 70 : 90;
  const Value none;
  const Tensor x = numbers(memory, {96, 33}), w = numbers(memory, {3, 33, 20});
  for (const PinRows pin : {PinRows::kNo, PinRows::kYes}) {
    Native native(pin);
    const Tensor out = native.call("aten._grouped_mm.default", {x, w, ends, none, none});
    CHECK(out.data<float>()[92 * 20] == 0.0f);  // behind the last group
    const auto record = native.record();
    REQUIRE(record.size() == 2);  // the group in the middle is empty
    CHECK(record[0].shape == "f32[70, 33] x [33, 20]");
    CHECK(tile_of(record[0]) == "tile 3");
    CHECK(tile_of(record[1]) == (pin == PinRows::kYes ? "tile 3" : "tile 2"));
    CHECK(record[0].group == 0);
    CHECK(record[1].group == 2);
    const Tensor depth = native.call("aten._grouped_mm.default", {transposed(x), x, ends, none, none});
    CHECK(depth.sizes == Extents{3, 33, 33});
    for (std::int64_t i = 0; i < 33; ++i) CHECK(depth.data<float>()[33 * 33 + i] == 0.0f);
    ends.data<std::int32_t>()[1] = 60;
    CHECK_THROWS_AS(native.call("aten._grouped_mm.default", {x, w, ends, none, none}), KernelError);
    ends.data<std::int32_t>()[1] = 70;
    // Integers, which the library does not multiply.
    const Tensor ones = make_tensor(memory, DType::kInt64, {96, 33}),
                 twos = make_tensor(memory, DType::kInt64, {3, 33, 20});
    cpu::fill_elements(ones, Value(std::int64_t{1}));
    cpu::fill_elements(twos, Value(std::int64_t{2}));
    const Tensor whole = native.call("aten._grouped_mm.default", {ones, twos, ends, none, none});
    for (std::int64_t i = 0; i < 96; ++i) CHECK(whole.data<std::int64_t>()[i * 20] == (i < 90 ? 66 : 0));
  }
}

TEST_CASE("native: the host waits once for the bounds of groups, however many products have them") {
  const auto device = open_tested_device({Math::kNative, PinRows::kNo});
  const Steps steps = one_stream();
  const auto run = device->start({steps, 1, HostMemory::Fill::kPoison, nullptr, Graphs::kStretches});
  RankDevice& rank = run->rank(0);
  HostMemory host;
  Tensor on_host = make_tensor(host, DType::kInt32, {2});
  on_host.data<std::int32_t>()[0] = 30;
  on_host.data<std::int32_t>()[1] = 90;
  const Tensor x = rank.memory().place(numbers(host, {96, 33})),
               w = rank.memory().place(numbers(host, {2, 33, 20})), ends = rank.memory().place(on_host);
  const OpInfo* op = find_op("aten._grouped_mm.default");
  // Waits interrupt what is written down, and are counted.
  const auto multiply = [&](int times) {
    rank.begin_stretch(0);
    for (int i = 0; i < times; ++i) {
      KernelCall call(*op, std::vector<Value>{x, w, ends, Value(), Value()}, ~0u, rank.memory());
      device->kernels().find (*op)(call);
    }
    rank.end_stretch();
    return rank.find_graph_use().interruptions;
  };
  CHECK(multiply(3) == std::map<std::string, std::uint64_t>{{"bytes are copied to the host", 1}});
  rank.forget(x.storage.get());
  CHECK(multiply(3).begin()->second == 1);
  rank.forget(ends.storage.get());
  CHECK(multiply(3).begin()->second == 2);
}

// The one that a GPU runs: the others name the algorithms of the library in cuBLASLt's place.
TEST_CASE("native: products are those of portable math but for rounding", "[gpu]") {
  HostMemory memory;
  Native native(PinRows::kNo), portable(PinRows::kNo, Math::kPortable);
  const Value none;
  const auto as = [&](const Tensor& tensor, DType dtype) {
    Tensor rounded = make_tensor(memory, dtype, tensor.sizes);
    cpu::copy_elements(tensor, rounded);
    return rounded;
  };
  const auto error = [&](const char* target, const std::vector<Value>& args) {
    const TensorDifference found = compare_tensors(portable.call(target, args), native.call(target, args));
    CHECK(found.problem.empty());
    return found.relative_error;
  };
  Tensor ends = make_tensor(memory, DType::kInt32, {4});
  for (const std::int64_t i : {0, 1, 2, 3})
    ends.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * i * 16);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kFloat16}) {
    const double bound = dtype == DType::kFloat64 ? 1e-14 : dtype == DType::kFloat32 ? 1e-6 : 1e-2;
    const Tensor a = as(numbers(memory, {160, 72}), dtype), b = as(numbers(memory, {72, 48}), dtype);
    const Tensor a_t = transposed(as(numbers(memory, {72, 160}), dtype)),
                 b_t = transposed(as(numbers(memory, {48, 72}), dtype));
    for (const Tensor& left : {a, a_t, rows(a, 3, 41)})
      for (const Tensor& right : {b, b_t}) CHECK(error("aten.mm.default", {left, right}) <= bound);
    const Tensor batches = as(numbers(memory, {3, 20, 72}), dtype),
                 others = as(numbers(memory, {3, 72, 8}), dtype);
    CHECK(error("aten.bmm.default", {batches, others}) <= bound);
    CHECK(error("aten.baddbmm.default",
                {as(numbers(memory, {3, 20, 8}), dtype), batches, others, 0.5, 2.0}) <= bound);
    CHECK(error("aten.addmm.default",
                {as(numbers(memory, {48}), dtype), a, b, std::int64_t{1}, std::int64_t{1}}) <= bound);
    CHECK(error("aten.mv.default", {a, as(numbers(memory, {72}), dtype)}) <= bound);
    if (dtype == DType::kFloat64) continue;  // groups are of the other three
    CHECK(error("aten._grouped_mm.default", {a, as(numbers(memory, {4, 72, 24}), dtype), ends, none, none}) <=
          bound);
    CHECK(error("aten._grouped_mm.default", {as(numbers(memory, {4, 24, 72}), dtype),
                                             a_t.view({72, 160}, {160, 1}, 0), ends, none, none}) <= bound);
    CHECK(error("aten._grouped_mm.default",
                {transposed(a), as(numbers(memory, {160, 32}), dtype), ends, none, none}) <= bound);
  }
  CHECK(native.record().size() > 60);
  CHECK(portable.record().empty());
}

TEST_CASE("native: a library of another kind of streams is refused") {
  setenv("EPWEAVE_CUBLASLT", EPWEAVE_STAND_IN, 1);
  CHECK_THROWS_AS(cublas::load_library(cublas::Streams::kCuda), PassError);
  setenv("EPWEAVE_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
  CHECK_THROWS_AS(cublas::load_library(cublas::Streams::kEmulated), PassError);
}

}  // namespace epweave::replay
