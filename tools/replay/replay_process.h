// `--transport nccl`: this process is one rank of several. And the folder of the ranks' reports, of
// any transport.
#pragma once

#include <functional>
#include <memory>

#include "replay/nccl/place.h"
#include "replay/nccl/session.h"
#include "replay_setup.h"

namespace epweave::cli {

// Where this process belongs. Throws UsageError.
replay::nccl::RankPlace find_place(const TransportOptions& options, const replay::World& world);

// The device of this process: the GPU of its number on this host, the only one where
// CUDA_VISIBLE_DEVICES names one; or the emulated device. Throws UsageError, PassError.
std::unique_ptr<replay::Device> open_device_of(const std::string& name, const ReplayOptions& options,
                                               const replay::nccl::RankPlace& place);

// What is run, for ranks to find that they run the same: graphs and inputs by hash, and the
// options.
std::string describe_program(const RunCommandOptions& options, const Graph& graph);
struct CheckedGraphs {
  const Graph& a;
  const Graph& b;
  const Graph* reference;  // null: none
};
std::string describe_program(const CheckCommandOptions& options, const CheckedGraphs& graphs);

struct OwnRank {
  const replay::nccl::RankPlace& place;
  replay::Device& device;
};
// The environment of this rank: device, launcher, NCCL and where it came from, its settings. Warns
// of those that are not as wanted.
Json describe_process(const replay::nccl::Session& session, const OwnRank& own, Console& console);

// What this rank does once the session has begun. Where it fails, all ranks end; what another
// rank's failure did here is told with what was underway.
void run_together(replay::nccl::Session& session, replay::Rank rank, const std::function<void()>& work);

// --report-dir. Throws UsageError if the folder cannot be written to; writes nothing where none is
// given.
void require_report_dir(const TransportOptions& options);
void write_rank_report(const TransportOptions& options, replay::Rank rank, const Json& report);

}  // namespace epweave::cli
