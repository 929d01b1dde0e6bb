// Collectives of virtual ranks on the device: the CPU's bits, whatever the sizes, dtypes and number
// of members.
#include "replay/kernels/device/collectives.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>

#include "ir/text/text.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/device/device.h"
#include "replay/kernels/host/kernels.h"
#include "replay/values/compare.h"

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

std::unique_ptr<Device> open_tested_device() {
  const char* name = std::getenv("EPWEAVE_TEST_DEVICE");
  if (name != nullptr && std::string(name) == "cuda") return device::open_cuda_device(0);
  return device::open_emulated_device(device::Emulation::kLazy);
}

std::vector<std::uint64_t> run(const Graph& graph, const World& world, Device* device) {
  const KernelTable kernels = make_cpu_kernels();
  const std::vector<RankInputs> inputs = make_inputs(graph, world, kernels, 5);
  RunOptions options;
  options.device = device;
  options.fill = HostMemory::Fill::kPoison;
  const RunResult result = run_ranks(graph, world, kernels, inputs, options);
  std::vector<std::uint64_t> hashes;
  for (const RankResult& rank : result.ranks)
    for (const Value& output : rank.outputs) hashes.push_back(hash_tensor(output.tensor()));
  return hashes;
}

}  // namespace

TEST_CASE("what collectives move has the bits of the CPU, by units of 1 to 16 bytes, of up to 70 members") {
  const std::unique_ptr<Device> device = open_tested_device();
  const Rank ranks = GENERATE(2U, 3U, 70U);
  const std::string dtype = GENERATE("b8", "bf16", "f32", "f64");
  const std::string columns = GENERATE("2", "4", "9", "17");
  INFO(ranks << " " << dtype << " " << columns);
  const Graph graph = parse_text(make_graph(ranks, dtype, columns), "test");
  const World world = derive_world(graph, ranks);
  const auto expected = run(graph, world, nullptr);
  CHECK(expected.size() == 3 * ranks);
  CHECK(run(graph, world, device.get()) == expected);
}

}  // namespace epweave::replay
