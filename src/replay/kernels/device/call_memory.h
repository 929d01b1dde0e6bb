// What a call asks of a device's memory. The call's own kernel is run on a device without memory
// (unbacked.h), on operands of the recorded types; so nothing about an op is written here, and a
// kernel that is changed is counted as it is now.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "replay/kernels/device/device_api.h"
#include "replay/kernels/kernel.h"
#include "replay/values/evaluate.h"

namespace epweave::replay::device {

// In bytes of blocks of the pool (pool.h).
struct CallMemory {
  std::uint64_t scratch = 0;           // at most, beside operands and results
  std::vector<std::uint64_t> results;  // new memory of each tensor that is returned; 0: it shows an operand's
};

class CallMemoryFinder {
 public:
  // Both outlive the finder; the symbols of the recorded types have numbers. A symbol without one
  // makes an operand that counts nothing.
  CallMemoryFinder(const Graph& graph, const Symbols& symbols);
  // Of a call of the step that launches a kernel. Where data decide what the kernel asks for (the
  // places of a mask), three copies of all operands and results with 8 bytes an element are taken.
  const CallMemory& find(const Node& call);

 private:
  Value make_value(NodeId id, Memory& memory);
  Value make_typed(TypeId id);
  CallMemory run(const Node& call);
  CallMemory assume(const Node& call);
  std::uint64_t count_elements_of(TypeId id) const;
  void add_key(std::string& key, Arg arg) const;

  const Graph& graph_;
  const Symbols& symbols_;
  std::unique_ptr<DeviceApi> api_;
  KernelTable kernels_;
  std::unordered_map<NodeId, Value> operands_;         // of the call that is looked at
  std::unordered_map<std::string, CallMemory> found_;  // by op, types and literals
};

}  // namespace epweave::replay::device
