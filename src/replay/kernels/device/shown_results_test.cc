// What a run shows at its end, on the CPU and on a device, is what it brings to the host otherwise.
#include "replay/run/shown_results.h"

#include <catch2/catch.hpp>
#include <mutex>

#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// Two outputs, a number, and a buffer that is added to; the second input is written by none.
const char* const kShown = R"(epweave text 1
graph
  %x = placeholder : f32[4, 3] role=user which=x
  %w = placeholder : f32[3] role=parameter which=w
  %b = placeholder : f32[4, 3] role=buffer which=sums
  %y = aten.mul.Tensor(%x, %w) : f32[4, 3]
  %t = aten.t.default(%y) : f32[3, 4]{1, 3}
  %z = aten.add_.Tensor(%b, %y) : f32[4, 3]
  %l = aten.log.default(%y) : f32[4, 3]
  output([%t, 7, %l])
)";

struct Shown {
  std::uint64_t hash;
  bool has_nan, has_not_finite;
  Extents fetched;  // sizes; of those that were
  std::uint64_t fetched_hash = 0;
};
using ShownOfRanks = std::vector<std::vector<Shown>>;

struct ShownRun {
  ShownOfRanks results;
  RunResult run;
};
ShownRun run_shown(const RunCase& tested, Device* device) {
  ShownRun shown{ShownOfRanks(2), {}};
  RunOptions options;
  options.device = device;
  options.shown = ShowResults{
      {false, true, true}, [&](Rank rank, std::size_t number, const ShownResult& result) {
        std::vector<Shown>& of_rank = shown.results[rank];
        CHECK(number == of_rank.size());
        Shown& one = of_rank.emplace_back(Shown{result.hash, result.has_nan, result.has_not_finite, {}});
        if (number % 2 == 1) return;
        const Tensor tensor = result.fetch();
        one.fetched = tensor.sizes;
        one.fetched_hash = hash_tensor(tensor);
      }};
  shown.run = tested.run(options);
  return shown;
}

}  // namespace

TEST_CASE("results are shown with their hashes, and stay where they are") {
  const std::unique_ptr<Device> device = open_tested_device();
  for (Device* used : {static_cast<Device*>(nullptr), device.get()}) {
    INFO((used == nullptr ? "cpu" : "device"));
    const RunCase brought(kShown, 2), tested(kShown, 2);
    RunOptions options;
    options.device = used;
    const RunResult expected = brought.run(options);
    const ShownRun shown = run_shown(tested, used);
    for (Rank rank = 0; rank < 2; ++rank) {
      const std::vector<Value>& outputs = expected.ranks[rank].outputs;
      const std::vector<Shown>& found = shown.results[rank];
      // Outputs, a number among them, then the parameter and the buffer.
      REQUIRE(found.size() == 5);
      CHECK(found[0].hash == hash_tensor(outputs[0].tensor()));
      CHECK(found[2].hash == hash_tensor(outputs[2].tensor()));
      CHECK(found[3].hash == hash_tensor(brought.inputs[rank][1].tensor()));
      CHECK(found[4].hash == hash_tensor(brought.inputs[rank][2].tensor()));
      CHECK(found[0].fetched == Extents{3, 4});
      CHECK(found[4].fetched == Extents{4, 3});
      for (const std::size_t i : {0U, 2U, 4U}) CHECK(found[i].fetched_hash == found[i].hash);
      // Logarithms of negative numbers.
      for (std::size_t i = 0; i < 5; ++i) {
        CHECK(found[i].has_nan == (i == 2));
        CHECK(found[i].has_not_finite == (i == 2));
      }
      const std::vector<Value>& left = shown.run.ranks[rank].outputs;
      REQUIRE(left.size() == 3);
      CHECK(left[0].tensor().storage == nullptr);
      CHECK(left[0].tensor().sizes == Extents{3, 4});
      CHECK(left[1].integer() == 7);
    }
  }
}

}  // namespace epweave::replay
