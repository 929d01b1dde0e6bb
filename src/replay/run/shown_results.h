// What a run returns, tensor by tensor: each in lists and dicts, and numbers as tensors of no
// dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/run/rank_device.h"
#include "replay/values/value.h"

namespace epweave::replay {

// Whether it was a tensor, or a number that the host computed.
enum class ResultKind : std::uint8_t { kTensor, kNumber };

// Calls visit(name, tensor, kind) for each; of "output 1" the first in a list is "output 1[0]".
void for_each_result(const Value& value, const std::string& name,
                     const std::function<void(const std::string&, const Tensor&, ResultKind)>& visit);
// The same value, its tensors without memory.
Value without_memory(const Value& value);

// One of them, at the end of a run.
struct ShownResult {
  std::uint64_t hash = 0;
  bool has_nan = false, has_not_finite = false;
  std::function<Tensor()> fetch;  // gives it in host memory; on a device the host waits
};

// Those of one rank. Their hashes are made where they lie.
class ResultHashes {
 public:
  explicit ResultHashes(RankDevice* device) : device_(device) {}
  void add(const Tensor& tensor);
  // `log`: what the device logged since the run began.
  ShownResult at(std::size_t i, const std::vector<std::uint64_t>& log) const;
  std::size_t size() const { return results_.size(); }

 private:
  struct Result {
    Tensor tensor;
    std::size_t place = 0;  // in the log, of one on the device
  };
  RankDevice* device_;
  std::vector<Result> results_;
};

}  // namespace epweave::replay
