// Ops of a graph that nothing executes, found before anything runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "replay/kernels/kernel.h"

namespace epweave::replay {

class MissingKernels : public PassError {
 public:
  // `graph` names it in the message; empty: "the graph".
  MissingKernels(std::string_view graph, std::vector<std::string> ops);
  const std::vector<std::string>& ops() const { return ops_; }

 private:
  std::vector<std::string> ops_;
};

// Whether the executor or the table runs the op.
bool can_execute(const OpInfo& op, const KernelTable& kernels);

// The targets the graph executes that neither the table nor the executor can run, sorted.
std::vector<std::string> find_missing_kernels(const Graph& graph, const KernelTable& kernels);

// Throws MissingKernels, or PassError replay.no-kernel-of-dtype where a call makes elements of a
// dtype, or of one's elements, that no kernel computes with. `name`: the graph's in the message.
void require_kernels(const Graph& graph, const KernelTable& kernels, std::string_view name = {});

}  // namespace epweave::replay
