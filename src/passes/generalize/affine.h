// Numbers of ranks as functions of their coordinates.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cost/extents.h"
#include "passes/coordinates.h"
#include "passes/generalize/job_axes.h"

namespace epweave {

// offset + the sum of scale * coordinate.
struct Affine {
  std::int64_t offset = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> terms;  // axis, scale

  friend auto operator<=>(const Affine&, const Affine&) = default;
  // As PlaceWriter writes it; none if a number on the way does not fit.
  Count at(const JobAxes& axes, Rank rank) const;
  std::string print(const JobAxes& axes) const;
};

struct AffineAnswer {
  std::optional<Affine> function;
  std::string why;           // if there is none
  std::optional<Rank> next;  // the rank whose trace would decide between two
};

// The function that has these values on the given ranks, in their order, of the fewest axes: one,
// two, or more where more ranks are given than any numbers would fit. None where two functions fit
// that differ on some rank of the job.
AffineAnswer solve_affine(const RankJob& job, const JobAxes& axes, const std::vector<std::int64_t>& values);

// Functions of coordinates, at the front of the step; each made once.
class PlaceWriter {
 public:
  PlaceWriter(Graph& graph, const JobAxes& axes, std::uint32_t world_size);

  // A node whose value is the function's on each rank.
  NodeId write(const Affine& function);
  // A node that the caller puts into the order; its name begins with `name`.
  NodeId add(const Node& node, const std::string& name) { return coordinates_.add(node, name); }
  // Puts what was written behind the step's inputs.
  void place() { coordinates_.place(); }

 private:
  const JobAxes& axes_;
  CoordinateWriter coordinates_;
  std::map<Affine, NodeId> functions_;
};

}  // namespace epweave
