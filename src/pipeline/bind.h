// Options that speak of the run as a whole, written out when their pass is reached:
//
//   memory=run+2%   a share above the peak of the graph that the pipeline was given, in bytes.
//                   Where the graph in front of the first pass that says so needs more already, as
//                   much as that: what cleaning up took is no fault of the passes that decide.
//   then            of bucket{plan=overlap} and choose-chunks: the options of the next `schedule`
//                   behind them
//
// So every call that runs, and every call of the log, means the same when it is run by itself.
#pragma once

#include <optional>

#include "pipeline/pipeline.h"

namespace epweave {

class Binder {
 public:
  // `given` is what the pipeline is run over; it is kept if an option may ask for it. The pipeline
  // must outlive the binder.
  Binder(const Graph& given, const Pipeline& pipeline);

  // The call at this position with such options written out; `now` is the graph in front of it.
  // Positions ascend.
  PassCall bind(std::size_t position, const Graph& now);

 private:
  void bind_memory(Options& options, const Graph& now);

  struct Peaks {
    std::int64_t given = 0, now = 0;  // bytes
  };
  const Pipeline& pipeline_;
  std::optional<Graph> given_;
  std::optional<Peaks> peaks_;  // those in front of the first pass that asks
};

}  // namespace epweave
