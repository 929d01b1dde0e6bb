// Collectives of a rank that computes on the CPU while the others are processes of their own:
// operands, and their bounds where they have some, are copied to the process's device, moved and
// reduced there as those of a device are (rank_device.h), and copied back at the wait.
#pragma once

#include <optional>

#include "replay/collectives/transport.h"
#include "replay/run/executor.h"
#include "replay/run/rank_device.h"

namespace epweave::replay {

class HostExchange {
 public:
  // The device computes nothing in this run: it moves bytes.
  HostExchange(RankDevice& device, const Process& process) : device_(device), process_(process) {}

  // A collective that all members have launched. The contribution of this member may hold bounds,
  // and no operand.
  struct Launch {
    const Meeting& meeting;
    const Tensor& operand;
    const Extents& sizes;  // of the result
    std::uint32_t stream = 0;
  };
  // What it makes, in memory of the device.
  struct Underway {
    std::uint32_t stream = 0;
    std::optional<Tensor> result, bound;  // no bound: none was handed over, or nothing bounds the reduction
  };
  Underway start(const Launch& launch);

  // Wait; throw CollectiveError where what was to arrive did not.
  void take_result(const Underway& underway, const Tensor& result);
  struct BoundRequest {
    const Extents& sizes;
    Memory& memory;
  };
  std::optional<Tensor> take_bound(const Underway& underway, const BoundRequest& request);

  RankDevice& device() { return device_; }

 private:
  // `parts` with this member's operand, or its bound, of host memory.
  Tensor move(const Launch& launch, std::vector<Contribution> parts, const Tensor& operand);
  void take(const Tensor& from, std::uint32_t stream, const Tensor& to);

  RankDevice& device_;
  const Process& process_;
};

}  // namespace epweave::replay
