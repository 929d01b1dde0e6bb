// What is remembered of the values of a run, and what that says about parts against the whole.
//
// Tensors are remembered by hash, so that runs of whole graphs can be compared without keeping
// their tensors. Where parts of a value are to be compared with all of it, each index along the
// dimensions that the parts may be cut along has a hash: the hashes of a concatenation are those of
// its parts one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "replay/collectives/groups.h"
#include "replay/run/pairing.h"
#include "replay/run/rank_device.h"
#include "replay/values/value.h"

namespace epweave::replay {

enum class Verdict : std::uint8_t { kEqual, kReordered, kSumOrder, kLibraryKernel, kUnverified, kDiffers };
inline constexpr std::size_t kVerdicts = 6;
std::string_view name_of(Verdict verdict);

// What is remembered of a value.
struct Seen {
  enum class Kind : std::uint8_t { kNothing, kNumber, kTensor } kind = Kind::kNothing;
  double number = 0;
  DType dtype = DType::kFloat32;
  Extents sizes;
  std::uint64_t hash = 0;
  std::vector<std::vector<std::uint64_t>> slices;  // by dimension; empty where not asked for
  std::vector<double> numbers;                     // of a small tensor of real numbers
};

// Dimensions, one bit each; the highest bit asks for the numbers of a small tensor.
using Dimensions = std::uint64_t;
inline constexpr Dimensions kNumbers = Dimensions{1} << 63;

class Watcher {
 public:
  Watcher(const Graph& graph, RankRange ranks);
  // Asks for hashes along these dimensions.
  void slice(NodeId node, Dimensions dimensions);
  // An Observer. What a device has of a value is logged there.
  void see(Rank rank, NodeId node, const Value& value, RankDevice* device);
  // After the run: takes what was logged.
  void read_log(Rank rank, const std::vector<std::uint64_t>& log);
  const Seen& at(Rank rank, NodeId node) const { return seen_[rank - first_][node.index()]; }

 private:
  // Where in the log the words of a tensor are.
  struct Logged {
    NodeId node;
    std::size_t hash = 0;
    std::vector<std::pair<std::size_t, std::size_t>> slices;  // dimension, place
    std::optional<std::size_t> numbers;
  };
  void log_tensor(Rank rank, NodeId node, const Tensor& tensor, RankDevice& device);

  Rank first_;
  std::vector<std::vector<Seen>> seen_;      // by rank from the first, by node
  std::vector<std::vector<Logged>> logged_;  // by rank from the first
  std::vector<Dimensions> sliced_;
};

// The dimensions along which the parts may be cut: those whose recorded extents are not the
// whole's. Parts of the whole's extents are parts of a sum; their numbers are asked for.
Dimensions find_cut_dimensions(const Graph& a, const Graph& b, const Group& group);

struct Judgement {
  Verdict verdict = Verdict::kEqual;
  std::string reason;
  bool is_sum = false;  // a regrouped sum: what follows from it may differ in its last bits
};

// Values of B (one, or one per part) against A's.
Judgement judge(const Seen& whole, const std::vector<const Seen*>& values, const Group& group);

// The dimension along which the parts together have the whole's extent, all others being the same;
// none otherwise.
std::optional<std::size_t> find_cut(const Extents& whole, const std::vector<Extents>& parts);

// A row-major copy.
Tensor copy_tensor(const Tensor& tensor, Memory& memory);
// Indices [first, first + count) of a dimension; the same storage.
Tensor cut_range(const Tensor& tensor, std::size_t dim, std::int64_t first, std::int64_t count);

}  // namespace epweave::replay
