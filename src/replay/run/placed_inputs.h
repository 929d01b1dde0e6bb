// A rank's inputs where they are computed with: in the memory of its device, or as they are.
#pragma once

#include <cstddef>
#include <vector>

#include "replay/run/rank_runner.h"

namespace epweave::replay {

// Tensors in host memory; on a device the host waits. `device`: null on the CPU.
Value on_host(RankDevice* device, const Value& value);

class PlacedInputs {
 public:
  // `kept`: by input, what earlier runs placed of those that no run writes; grows. Null: one run.
  PlacedInputs(const Program& program, const RankSetup& setup, std::vector<Value>* kept)
      : program_(program), setup_(setup), kept_(kept) {}

  const Value& place_next(const RankInputs& inputs);
  const std::vector<Value>& list() const { return placed_; }
  // What the run left in those that it writes, into the host's; after the device's work.
  void bring_back(const RankInputs& inputs) const;

 private:
  Value place(const RankInputs& inputs, std::size_t i);

  const Program& program_;
  const RankSetup& setup_;
  std::vector<Value>* kept_;
  std::vector<Value> placed_;
};

}  // namespace epweave::replay
