// Whole graphs that tests run on a device and on the CPU.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ir/text/text.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/device/device.h"
#include "replay/kernels/host/kernels.h"
#include "replay/values/hash.h"

namespace epweave::replay {

// A graph and its inputs.
struct RunCase {
  RunCase(const std::string& text, Rank ranks)
      : graph(parse_text(text, "test")), world(derive_world(graph, ranks)) {}
  Graph graph;
  World world;
  KernelTable kernels = make_cpu_kernels();
  std::vector<RankInputs> inputs = make_inputs(graph, world, kernels, 5);

  // Memory is poisoned. `options.device` null: on the CPU.
  RunResult run(RunOptions options) const {
    options.fill = HostMemory::Fill::kPoison;
    return run_ranks(graph, world, kernels, inputs, options);
  }
};

// Of all outputs of all ranks.
inline std::vector<std::uint64_t> hashes_of(const RunResult& run) {
  std::vector<std::uint64_t> hashes;
  for (const RankResult& rank : run.ranks)
    for (const Value& output : rank.outputs) hashes.push_back(hash_tensor(output.tensor()));
  return hashes;
}

// The emulated device; a GPU where EPWEAVE_TEST_DEVICE is `cuda`.
inline std::unique_ptr<Device> open_tested_device(device::Emulation kind = device::Emulation::kLazy) {
  const char* name = std::getenv("EPWEAVE_TEST_DEVICE");
  if (name != nullptr && std::string(name) == "cuda") return device::open_cuda_device(0);
  return device::open_emulated_device(kind);
}

// An environment variable that is set as long as this lives.
class SetVariable {
 public:
  SetVariable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~SetVariable() { unsetenv(name_); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  const char* name_;
};

}  // namespace epweave::replay
