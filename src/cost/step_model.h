// A step as flat arrays: what each node costs, what must come before what, and which memory it
// holds.
//
// A node is named by its place in the graph's order, from 0. Another order of the step is a
// permutation of these places. Simulation (cost/simulate.h), memory (cost/live_bytes.h), bounds
// (cost/bounds.h) and schedulers take these arrays and an order, and never the graph.
//
// What a node costs is docs/overlap.md's model: a roofline per kernel, a ring or an all-to-all per
// collective.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/effects.h"
#include "cost/cluster.h"
#include "ir/graph.h"

namespace epweave {

using Place = std::uint32_t;
inline constexpr Place kNoPlace = ~Place{0};

enum class StepKind : std::uint8_t {
  kFree,        // inputs, attributes, the output
  kView,        // shows another value's storage
  kAllocation,  // takes memory, runs nothing
  kHost,        // arithmetic, assertions and tensors of the host
  kKernel,      // runs on the compute stream
  kLaunch,      // a collective, on the stream of its group
  kWait,        // joins its launch's stream into the compute stream
  kItem,        // the host waits for a number of the device
};
std::string_view name_of(StepKind kind);

// Where a node's seconds are from.
enum class PriceSource : std::uint8_t {
  kNone,          // it costs nothing by what it is
  kModelled,      // by the cluster
  kAssumed,       // the same, for extents that are taken to be balanced
  kMeasured,      // a row of the cost file
  kInterpolated,  // between two rows of it
  kUnpriced,      // nothing prices it
};
inline constexpr std::size_t kPriceSources = 6;
inline bool is_measured(PriceSource source) {
  return source == PriceSource::kMeasured || source == PriceSource::kInterpolated;
}
std::string_view name_of(PriceSource source);

// Lists of places, one per place, in one array.
struct PlaceLists {
  std::vector<std::uint32_t> begins;  // one more than there are lists
  std::vector<Place> items;

  std::span<const Place> operator[](std::size_t i) const {
    return {items.data() + begins[i], begins[i + 1] - begins[i]};
  }
  std::size_t size() const { return begins.empty() ? 0 : begins.size() - 1; }
};
PlaceLists invert(const PlaceLists& lists);
// For each place the second members of the pairs that it is first in, each once, in the order of
// the pairs.
PlaceLists list_pairs(std::size_t size, std::span<const std::pair<Place, Place>> pairs);

// A process group as this rank sees it.
struct StepGroup {
  std::string name;
  std::uint32_t ranks = 1;        // members
  std::uint32_t local_ranks = 1;  // of them on this rank's node
  std::uint32_t nodes = 1;
};

enum class StorageLife : std::uint8_t {
  kResult,  // until its last use
  kInput,   // throughout: what the caller passes in, and constants
  kOutput,  // to the end: the step returns it
};

// A node that nothing prices.
struct UnpricedNode {
  Place place;
  std::string reason;
  std::string remedy;  // what would price it, beside taking it to be free; of the first alone
};

struct StepModel {
  Cluster cluster;

  // By place.
  std::vector<NodeId> nodes;
  std::vector<StepKind> kinds;
  std::vector<double> seconds;
  std::vector<std::uint32_t> groups;  // of a launch: position in step_groups; kNoPlace for other nodes
  std::vector<std::int64_t> bytes;    // of a kernel: moved; of a launch: the message, as the price takes it
  std::vector<std::uint8_t> stops_host;  // a kernel after which the host goes on only when it is done
  std::vector<Place> launches;           // of a wait: its launch
  std::vector<PriceSource> sources;

  std::vector<StepGroup> step_groups;  // in the order of their first launch
  std::vector<UnpricedNode> unpriced;  // they cost 0

  // By place, as lists of places.
  PlaceLists inputs;  // whose values it takes, each once
  PlaceLists before;  // what must come before it: its inputs, and behind them what its effects need
  PlaceLists after;   // the inverse of `before`
  // Pairs that keep a read of a non-blocking copy behind what completed the copy, beyond `before`:
  // an order that keeps them is legal; others may be, too.
  std::vector<std::pair<Place, Place>> host_reads;

  // Device memory, by storage.
  std::vector<std::int64_t> storage_bytes;
  std::vector<Place> storage_homes;  // the node that makes it
  std::vector<StorageLife> storage_lives;
  PlaceLists shown;                          // by place: the storages that its value shows, a tensor each
  PlaceLists storages;                       // by place: the storages that it makes or touches, each once
  std::vector<std::uint32_t> storage_users;  // how many places do
  std::int64_t input_bytes = 0;
  std::string measured_on;  // the device that the measured prices are of; empty where that is not said
  std::size_t unsized_storages = 0;  // an extent has no number: they count 0 bytes

  std::size_t assumed_symbols = 0;  // extents taken to be balanced

  std::size_t size() const { return nodes.size(); }
  bool is_costed_launch(Place place) const { return kinds[place] == StepKind::kLaunch && seconds[place] > 0; }
};

class MeasuredCosts;  // cost/measured_costs.h

// Does not throw for nodes without a price: they are listed. The graph must verify.
StepModel model_step(const Graph& graph, const Cluster& cluster, const MeasuredCosts* measured = nullptr);

// Throws PassError simulate.unpriced for the first of them, if any.
void require_prices(const Graph& graph, const StepModel& model);

// Throws InputError where the file at `path`, whose costs the model was made with, prices nothing
// of it: a file of another graph.
void require_measured(const StepModel& model, const MeasuredCosts& costs, const std::string& path);

}  // namespace epweave
