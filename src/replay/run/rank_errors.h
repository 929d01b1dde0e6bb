// What a rank's run says where it fails: the rank, and the node that the host was at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "replay/run/rank_runner.h"

namespace epweave::replay {

class RankErrors {
 public:
  // All must outlive it.
  RankErrors(const Program& program, const RankSetup& setup, const RunOptions& options)
      : program_(program), setup_(setup), options_(options) {}

  // Steps up to and with this one began.
  void begin(std::uint32_t step) { begun_ = step + 1; }

  std::string describe(const Node& node, std::string_view problem) const;
  // Throws what the device has found in work that was waited for.
  void check_fault() const;
  // Of the exception that is being handled, thrown while the node was carried out: the same with
  // the node. On a device, what an earlier kernel refused may be why, and goes before.
  [[noreturn]] void rethrow(const Node& node) const;
  // The error with the step that began last. A kernel runs behind the host: where the device is
  // lost, an earlier one may be the cause.
  DeviceError locate(const DeviceError& error) const;

 private:
  void require_arguments(const Node& node) const;

  const Program& program_;
  const RankSetup& setup_;
  const RunOptions& options_;
  std::uint32_t begun_ = 0;  // steps
};

}  // namespace epweave::replay
