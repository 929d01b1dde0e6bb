// What the commands of epweave-replay share: what a run needs before it starts.
#pragma once

#include <memory>

#include "common/report.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/device/device.h"
#include "replay/run/executor.h"
#include "replay_commands.h"

namespace epweave::cli {

replay::RunOptions make_options(const ReplayOptions& options);

// Throws UsageError where the options contradict each other.
replay::device::MathMode read_math(const ReplayOptions& options);

// Where graphs run; null: the CPU. `name`: --device or one of its kind. Throws PassError if the
// device is not there, UsageError where it has no such math.
std::unique_ptr<replay::Device> open_device(const std::string& name, const ReplayOptions& options);
// One name for each device, where ranks are no processes: cuda and cuda:00 are cuda:0.
std::string plain_device_name(const std::string& name);

// What inputs are made of, with the files that it refers to.
struct InputSource {
  replay::InputFiles files;
  replay::Recipe recipe;
  replay::InputData data;

  explicit InputSource(const ReplayOptions& options);
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;
};

// `device`: null: the CPU, whose kernels are `cpu`. Throws PassError.
void require_kernels(const Graph& graph, const InputOptions& input, const replay::Device* device,
                     const replay::KernelTable& cpu);

Json number_or_text(double number);  // JSON has no inf and NaN

}  // namespace epweave::cli
