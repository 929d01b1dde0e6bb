// Divisions of a step, each made for real, scheduled quickly and priced: what choose-chunks
// compares.
//
//   trial "layers.*.moe in 2 parts"   chunk, isolate-ep-pg{counts=own}, dce, QuickLook
//                                     976.90 ms at 47.53 GiB, within the budget
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/layers.h"
#include "passes/schedule/choose_chunks.h"

namespace epweave {

struct ChunkChoice {
  std::vector<ChunkRoot> roots;  // none: as it is
  std::int64_t parts = 1;        // of roots that do not say
  bool dense = false;
  std::string name;
};

// A choice that was made, and what its schedule is predicted to take.
struct ChunkTrial {
  ChunkChoice choice;
  PassResult result;
  Prediction predicted;
  NodeTimes times;             // of the result's nodes
  KnownPredictions scheduled;  // of the result, by the schedule that follows

  // What fits is better than what does not; of two that do, what takes less.
  bool is_better_than(const ChunkTrial& other) const {
    if (predicted.fits != other.predicted.fits) return predicted.fits;
    return predicted.seconds < other.predicted.seconds;
  }
};

// Keeps the notes, in the order of the choices: what is predicted of each, and why one is declined.
class ChunkTrials {
 public:
  ChunkTrials(const Graph& graph, const ChooseChunksOptions& options)
      : graph_(graph), options_(options), blocks_(find_block_names(graph)), schedule_(options.schedule) {}

  // None: chunk declines it.
  std::optional<ChunkTrial> make(const ChunkChoice& choice) { return finish(begin(choice)); }
  // Each in turn, given to `visit`. While another thread looks at one, the next is divided.
  using Visit = std::function<void(const ChunkChoice&, std::optional<ChunkTrial>)>;
  void make_each(std::span<const ChunkChoice> choices, const Visit& visit);
  // What one that does not fit would take, had it the memory that it needs.
  double find_seconds_with_room(const ChunkTrial& trial);

  const Graph& graph() const { return graph_; }
  const ChooseChunksOptions& options() const { return options_; }
  const BlockNames& blocks() const { return blocks_; }
  // A share of memory is of what the step needs as it was, whatever is done to it: from the first
  // trial on it is bytes.
  const ScheduleOptions& schedule() const { return schedule_; }
  std::size_t declined() const { return declined_; }
  std::vector<std::string>& notes() { return notes_; }

 private:
  struct Looked {
    Prediction predicted;
    NodeTimes times;
  };
  // A choice that was divided, or declined.
  struct BegunTrial {
    ChunkChoice choice;
    PassResult result;
    std::future<Looked> looked;
    std::optional<PassError> declined;
  };
  BegunTrial begin(const ChunkChoice& choice) const;
  std::optional<ChunkTrial> finish(BegunTrial begun);
  std::string decline(const ChunkChoice& choice, const PassError& error);

  const Graph& graph_;
  const ChooseChunksOptions& options_;
  BlockNames blocks_;
  ScheduleOptions schedule_;
  std::vector<std::string> notes_;
  std::size_t declined_ = 0;
  std::set<std::string> remedies_;  // written out where they come first
};

std::string describe(const std::string& name, const Prediction& predicted);

}  // namespace epweave
