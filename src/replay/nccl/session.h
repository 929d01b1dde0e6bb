// One process of runs over NCCL: meets the others, makes the communicators of all graphs that are
// to be run, and ends with them.
#pragma once

#include <memory>

#include "replay/nccl/communicators.h"
#include "replay/nccl/coordinator.h"
#include "replay/nccl/remote_transport.h"
#include "replay/nccl/rendezvous.h"
#include "replay/run/executor.h"

namespace epweave::replay::nccl {

// A graph that is to be run. Must outlive the session.
struct SessionGraph {
  const World& world;
  const Steps& steps;  // whose streams name the groups
};

struct SessionSetup {
  const RankPlace& place;
  const std::vector<SessionGraph>& graphs;
  Device& device;
  const RendezvousOptions& rendezvous;  // make_ticket: not used
  Sums sums = Sums::kOwn;
};

class Session {
 public:
  // Pins NCCL's settings and loads it. Throws PassError, CollectiveError.
  explicit Session(const SessionSetup& setup);
  ~Session();

  const Process& process() const { return process_; }
  const Library& library() const { return library_; }
  const std::vector<Setting>& settings() const { return settings_; }
  Sums sums() const { return sums_; }
  ClockOffset compare_clocks() { return transport_->compare_clocks(); }
  // Ends the session of all ranks: this one failed outside of a run.
  void fail(const std::string& problem) { transport_->abort(problem); }
  // Gives this rank's report; rank 0 gets those of all ranks.
  std::vector<std::string> conclude(const std::string& report);
  // For messages about a run that failed: what this rank had underway, and NCCL's warnings.
  std::string describe_failure();

 private:
  Sums sums_;
  std::vector<Setting> settings_;
  Log log_;
  Library library_;
  std::unique_ptr<Coordinator> coordinator_;  // of rank 0
  Deadline deadline_;
  std::unique_ptr<RemoteTransport> transport_;
  std::unique_ptr<Communicators> communicators_;
  Process process_;
};

}  // namespace epweave::replay::nccl
