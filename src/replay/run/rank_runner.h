// One rank's run: the steps in order, on the rank's own thread. `run_ranks` (executor.h) starts one
// for each rank.
#pragma once

#include <mutex>

#include "replay/bounds/error_bounds.h"
#include "replay/collectives/transport.h"
#include "replay/run/executor.h"
#include "replay/run/host_exchange.h"
#include "replay/run/rank_device.h"

namespace epweave::replay {

// What every rank shares.
struct Program {
  const Graph& graph;
  const Body& body;
  const KernelTable& kernels;
  const World& world;
  Steps steps;
  std::vector<Stretch> stretches;  // that are graphs of the device
  std::vector<bool> written;       // inputs that a run leaves changed (written_inputs.h)
};

// Locked by the one rank that computes.
using Turn = std::unique_lock<std::mutex>;

// What one rank runs with. `device`: null on the CPU. `local`: null where the ranks are processes.
// `host_exchange`: on the CPU where the ranks are processes, else null. `turn`: locked, but while
// the rank waits for others; null where all compute at once.
struct RankSetup {
  Rank rank;
  StepCounter& counter;
  Memory& memory;
  RankDevice* device;
  Transport& transport;
  LocalTransport* local;
  HostExchange* host_exchange;
  Turn* turn;
};

inline bool is_bounded(const RunOptions& options, NodeId id) {
  return options.bounded != nullptr && options.bounded->nodes.contains(id);
}

// Runs one rank as often as it is to be measured, else once. The last run's results are kept.
RankResult run_rank(const Program& program, const RankSetup& setup, const RankInputs& inputs,
                    const RunOptions& options);

}  // namespace epweave::replay
