// Collectives of virtual ranks on the device: the CPU's bits, whatever the sizes, dtypes and number
// of members.
#include "replay/kernels/device/collectives.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// A rank's rows go to all, and one row to each; `x` has a row for each rank.
std::string make_graph(Rank ranks, const std::string& dtype, const std::string& columns) {
  std::vector<Rank> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const std::vector<int> ones(ranks, 1);
  return fmt::format(R"(epweave text 1
group 7 ranks=[{members}]
graph
  %r = placeholder : {given}[{ranks}, {columns}] role=user which=x
  %x = aten.{make} : {dtype}[{ranks}, {columns}]
  %s = aten.slice.Tensor(%x, 1, 1, 9223372036854775807) : {dtype}[{ranks}, {columns} - 1]{{{columns}, 1}}
  %g = _c10d_functional.all_gather_into_tensor.default(%s, {ranks}, "7") : {dtype}[{ranks} * {ranks}, {columns} - 1]
  %wg = _c10d_functional.wait_tensor.default(%g) : {dtype}[{ranks} * {ranks}, {columns} - 1]
  %a = _c10d_functional.all_to_all_single.default(%x, [{ones}], [{ones}], "7") : {dtype}[{ranks}, {columns}]
  %wa = _c10d_functional.wait_tensor.default(%a) : {dtype}[{ranks}, {columns}]
  %b = _c10d_functional.broadcast.default(%x, 1, "7") : {dtype}[{ranks}, {columns}]
  %wb = _c10d_functional.wait_tensor.default(%b) : {dtype}[{ranks}, {columns}]
  output([%wg, %wa, %wb])
)",
                     fmt::arg("given", dtype == "b8" ? "f32" : dtype),
                     fmt::arg("make", dtype == "b8" ? "gt.Scalar(%r, 0.0)" : "neg.default(%r)"),
                     fmt::arg("members", fmt::join(members, ", ")), fmt::arg("ones", fmt::join(ones, ", ")),
                     fmt::arg("ranks", ranks), fmt::arg("dtype", dtype), fmt::arg("columns", columns));
}

// Floats with NaNs and zeros of both signs among them, and integers whose sums and products wrap
// where they have few bits.
std::string make_reductions(Rank ranks, const std::string& dtype, const std::string& reduction) {
  std::vector<Rank> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const bool is_float = dtype.find("f") != std::string::npos;
  const char* made = is_float ? R"(
  %l = aten.log.default(%r) : f32[{ranks}, 17]
  %z = aten.mul.Scalar(%r, 0.0) : f32[{ranks}, 17]
  %c = aten.cat.default([%l, %z], 1) : f32[{ranks}, 34]
  %x = aten._to_copy.default(%c, dtype={dtype}) : {dtype}[{ranks}, 34])"
                              : R"(
  %b = aten.gt.Scalar(%r, 0.0) : b8[{ranks}, 17]
  %i = aten._to_copy.default(%b, dtype={dtype}) : {dtype}[{ranks}, 17]
  %n = aten.arange.start(100, 117, dtype={dtype}) : {dtype}[17]
  %x = aten.mul.Tensor(%i, %n) : {dtype}[{ranks}, 17])";
  const std::string graph = std::string(R"(epweave text 1
group 7 ranks=[{members}]
graph
  %r = placeholder : f32[{ranks}, 17] role=user which=x)") +
                            made + R"(
  %a = _c10d_functional.all_reduce.default(%x, "{reduction}", "7") : {dtype}[{ranks}, {columns}]
  %wa = _c10d_functional.wait_tensor.default(%a) : {dtype}[{ranks}, {columns}]
  %s = _c10d_functional.reduce_scatter_tensor.default(%x, "{reduction}", {ranks}, "7") : {dtype}[1, {columns}]
  %ws = _c10d_functional.wait_tensor.default(%s) : {dtype}[1, {columns}]
  output([%wa, %ws])
)";
  return fmt::format(fmt::runtime(graph), fmt::arg("members", fmt::join(members, ", ")),
                     fmt::arg("ranks", ranks), fmt::arg("dtype", dtype), fmt::arg("reduction", reduction),
                     fmt::arg("columns", is_float ? 34 : 17));
}

// The hashes of the outputs are the CPU's.
void check_on_device(const std::string& graph, Rank ranks, std::size_t outputs) {
  const std::unique_ptr<Device> device = open_tested_device();
  const RunCase step(graph, ranks);
  RunOptions options;
  const auto expected = hashes_of(step.run(options));
  CHECK(expected.size() == outputs * ranks);
  options.device = device.get();
  CHECK(hashes_of(step.run(options)) == expected);
}

}  // namespace

TEST_CASE("what collectives move has the bits of the CPU, by units of 1 to 16 bytes, of up to 70 members") {
  const Rank ranks = GENERATE(2U, 3U, 70U);
  const std::string dtype = GENERATE("b8", "bf16", "f32", "f64");
  const std::string columns = GENERATE("2", "4", "9", "17");
  INFO(ranks << " " << dtype << " " << columns);
  check_on_device(make_graph(ranks, dtype, columns), ranks, 3);
}

TEST_CASE("what collectives reduce has the bits of the CPU") {
  const Rank ranks = GENERATE(2U, 3U);
  const std::string dtype = GENERATE("bf16", "f16", "f32", "f64", "i8", "u8", "i16", "i32", "i64");
  const std::string reduction = GENERATE("sum", "avg", "max", "min", "product");
  INFO(ranks << " " << dtype << " " << reduction);
  check_on_device(make_reductions(ranks, dtype, reduction), ranks, 2);
}

}  // namespace epweave::replay
