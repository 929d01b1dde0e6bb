// Whole graphs on a device that runs no kernel.
#include "replay/kernels/device/idle_device.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// An input that is returned, a kernel, and a sum over two ranks.
constexpr const char* kIdle = R"(epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[2, 2] role=user which=x
  %y = aten.exp.default(%x) : f32[2, 2]
  %g = _c10d_functional.all_reduce.default(%y, "sum", "7") : f32[2, 2]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[2, 2]
  output([%x, %y, %w])
)";

std::vector<float> read(const Value& value) {
  const Tensor& tensor = value.tensor();
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

}  // namespace

TEST_CASE("without kernels a step goes through, with inputs as they are and zeros for what is computed") {
  const RunCase step(kIdle, 2);
  const SetVariable variable(device::kKernelsVariable, "none");
  const std::unique_ptr<Device> device = device::open_emulated_device(device::Emulation::kLazy);
  CHECK(device->describe() == "emulated by the CPU, without kernels");
  RunOptions options;
  options.device = device.get();
  const RunResult run = run_ranks(step.graph, step.world, step.kernels, step.inputs, options);
  const std::vector<float> zeros(4, 0.0f);
  for (Rank rank = 0; rank < 2; ++rank) {
    REQUIRE(run.ranks[rank].outputs.size() == 3);
    CHECK(read(run.ranks[rank].outputs[0]) == read(step.inputs[rank][0]));
    CHECK(read(run.ranks[rank].outputs[1]) == zeros);
    CHECK(read(run.ranks[rank].outputs[2]) == zeros);
  }
}

TEST_CASE("whether kernels run is read whole or refused") {
  CHECK(device::read_kernels(nullptr) == device::Kernels::kRun);
  CHECK(device::read_kernels("") == device::Kernels::kRun);
  CHECK(device::read_kernels("none") == device::Kernels::kNone);
  for (const char* wrong : {"all", "none ", "0"}) CHECK_THROWS_AS(device::read_kernels(wrong), UsageError);
}

}  // namespace epweave::replay
