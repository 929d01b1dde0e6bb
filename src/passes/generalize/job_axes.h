// The mesh axes of a job, and which places along them the given ranks have.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "passes/generalize/job.h"

namespace epweave {

struct GeneralizeAxis {
  std::string name;
  std::uint32_t stride = 1, extent = 1;
  bool is_observed = false;   // two of the given ranks differ along it
  std::optional<Rank> next;   // else, or of what is extrapolated, the rank whose trace would show it
  std::uint32_t seen = 1;     // places along it that the given ranks have
  std::uint32_t numbers = 0;  // found from these places to follow it

  bool is_extrapolated() const { return numbers != 0 && seen < extent; }
  std::int64_t coordinate(Rank rank) const { return rank / stride % extent; }
};

// Axes along which no given rank differs from the first at once: what depends on both together,
// not as a sum, would not show.
struct GeneralizePairs {
  std::vector<std::pair<std::string, std::string>> unseen;
  Rank next = 0;  // whose trace would show most of them
};

class JobAxes {
 public:
  // Of recorded meshes, else of groups that name one axis.
  explicit JobAxes(const RankJob& job);

  const std::vector<GeneralizeAxis>& all() const { return all_; }
  // With how many numbers follow each (by axis); where that is a guess, the rank that would show
  // the last place of which nothing is known.
  std::vector<GeneralizeAxis> count(const std::vector<std::uint32_t>& numbers) const;
  // Pairs of axes along which some rank differs from the first given one at once, but none given.
  GeneralizePairs find_unseen_pairs() const;

 private:
  void add(std::string name, std::uint32_t stride, std::uint32_t extent);
  void observe(GeneralizeAxis& axis) const;
  std::set<std::int64_t> places(const GeneralizeAxis& axis) const;
  std::int64_t last_unseen(const GeneralizeAxis& axis) const;
  Rank rank_at(const GeneralizeAxis& axis, std::int64_t place) const;
  bool is_away(Rank rank, std::size_t axis) const;

  const RankJob& job_;
  std::vector<GeneralizeAxis> all_;
};

}  // namespace epweave
