// When a rank's nodes begin and end, where a run is measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "replay/run/executor.h"
#include "replay/run/rank_device.h"

namespace epweave::replay {

class RankClock {
 public:
  // `device`: null on the CPU.
  RankClock(const RunOptions& options, Rank rank, RankDevice* device)
      : takes_spans_(takes_spans_of(options, rank)), device_(device) {}

  // Whether spans of this rank's nodes are taken.
  bool takes_spans() const { return takes_spans_; }

  void start();
  // The first step behind the inputs; later calls change nothing.
  void start_working();
  double working_seconds() const;
  // Seconds of this thread's own computing on the CPU; with a device, seconds since the start.
  double host_seconds() const;

  // Work of the node that `run` queues on the stream, or does.
  template <class Run>
  void measure(NodeId id, std::uint32_t stream, const Run& run) {
    if (!takes_spans_) return run();
    begin_span(id, stream);
    run();
    end_span();
  }

  // Spans, and when they began. Waits for the device.
  void hand_over(RankResult& result);

 private:
  using Clock = std::chrono::steady_clock;

  static bool takes_spans_of(const RunOptions& options, Rank rank);
  void begin_span(NodeId id, std::uint32_t stream);
  void end_span();

  const bool takes_spans_;
  RankDevice* const device_;
  Clock::time_point start_, work_start_;
  bool is_working_ = false;
  double began_ = 0, began_within_ = 0;
  std::vector<StepSpan> spans_;  // on the CPU
};

}  // namespace epweave::replay
