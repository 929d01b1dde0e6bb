// `run --transport nccl`: this process is one rank of several.
#pragma once

#include <memory>

#include "replay/nccl/place.h"
#include "replay/nccl/session.h"
#include "replay_setup.h"

namespace epweave::cli {

// Where this process belongs. Throws UsageError.
replay::nccl::Place find_place(const RunCommandOptions& options, const replay::World& world);

// The device of this process: the GPU of its number on this host, the only one where CUDA_VISIBLE_DEVICES names one;
// or the emulated device. Throws UsageError, PassError.
std::unique_ptr<replay::Device> open_device_of(const ReplayOptions& options,
                                               const replay::nccl::Place& place);

// What is run, for ranks to find that they run the same.
std::string describe_program(const RunCommandOptions& options);

// NCCL and where it came from, its settings, the launcher.
Json describe_session(const replay::nccl::Session& session, const replay::nccl::Place& place);

}  // namespace epweave::cli
