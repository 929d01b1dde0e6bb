// How much memory one rank of a run takes, and when it takes most, before anything is allocated.
//
// Sizes are the recorded ones. A symbol counts as the number that it had when the graph was traced;
// rows that experts get have none and are taken to be balanced (cost/extents.h). The steps are
// those of the run (steps/steps.h): a value goes behind the last step that uses it or a view of it.
//
//   inputs      of the graph, held for the whole run
//   values      what nodes made, the copies of their operands that collectives hold until the wait
//               behind theirs (a slower rank may need them), what is returned
//   together    values that all ranks hold at some time: where a rank has waited for a collective
//               of all, the others have launched it, and none has waited for one that this rank
//               launches later
//   scratch     what the kernel that runs asks for beside its operands and results: on a device the
//               kernel itself is asked (kernels/device/call_memory.h); on the CPU, whose kernels
//               take less, its results and, but for attention, its operands once more in the type
//               it computes in. Where bounds are followed, assumed: four times the kernel's, and
//               four numbers of float32 and two of float64 for each element of operands and results
//   bounds      beside the values that have them (`bytes_of_bounds`), and beside all of the memory
//               that such a value is written into
//   rounding    blocks of memory are larger than what lies in them; on a device those of inputs,
//               too
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "replay/kernels/device/call_memory.h"

namespace epweave::replay {

struct LiveValue {
  NodeId node;  // that made it; an input's own
  std::uint64_t bytes = 0;
};

// In bytes.
struct RankNeed {
  std::uint64_t inputs = 0, outputs = 0;
  std::uint64_t written = 0;  // of the inputs, those that a run leaves changed: more runs need copies
  std::uint64_t values = 0, scratch = 0, rounding = 0;  // while `peak` runs
  std::uint64_t together = 0;                           // of all ranks; at least the values of one
  NodeId peak;                                          // none: the step launches nothing
  std::uint64_t made = 0;                               // by all nodes, one after the other
  std::uint64_t bounded = 0;       // of these, values whose bounds are followed, with them
  std::vector<LiveValue> largest;  // inputs and values that live then, the largest first; at most 8
  std::size_t assumed = 0;         // symbols that were taken to be balanced

  std::uint64_t at_peak() const { return values + scratch + rounding; }
};

enum class NeedOf : std::uint8_t {
  kHost,      // the CPU computes
  kDevice,    // all ranks are in this process
  kOwnDevice  // ranks are processes: what moves between them needs room on each
};

class NeedFinder {
 public:
  explicit NeedFinder(const Graph& graph);  // outlives the finder
  // `bounded`: values whose bounds are followed, with float32 and float64 beside them; null: none.
  RankNeed find(NeedOf where, const IdSet<NodeId>* bounded = nullptr);

 private:
  const Graph& graph_;
  std::size_t assumed_ = 0;
  Symbols symbols_;
  device::CallMemoryFinder calls_;
};

}  // namespace epweave::replay
