#include "passes/generalize/job_axes.h"

#include <algorithm>
#include <numeric>

#include "ir/walk.h"
#include "ops/mesh_calls.h"

namespace epweave {

JobAxes::JobAxes(const RankJob& job) : job_(job) {
  const Graph& graph = job.graphs[0];
  const World& world = job.worlds[0];
  for (const auto [id, node] : walk(graph.step())) {
    if (node.kind != NodeKind::kPlaceholder) break;
    const auto mesh = recorded_mesh(*graph.context, node);
    const auto strides = mesh ? strides_of(*mesh) : std::nullopt;
    for (std::size_t d = 0; strides && d < mesh->axes.size(); ++d)
      add(std::string(graph.text(mesh->axes[d])), (*strides)[d], mesh->shape[d]);
  }
  for (const Mesh& mesh : world.meshes) {
    std::uint32_t stride = world.size;
    for (std::size_t d = 0; d < mesh.axes.size(); ++d) {
      stride /= std::max(mesh.shape[d], 1U);
      add(mesh.axes[d], stride, mesh.shape[d]);
    }
  }
  // A group that names its axis, where no mesh is recorded.
  for (const ProcessGroup& group : graph.groups)
    if (const auto rule = find_group_rule(group.ranks, world.size);
        rule && group.axes && group.axes->size() == 1)
      add(std::string(graph.text(group.axes->front())), rule->stride, rule->extent);
  for (GeneralizeAxis& axis : all_) observe(axis);
}

void JobAxes::add(std::string name, std::uint32_t stride, std::uint32_t extent) {
  if (extent < 2 || stride == 0 || job_.size() % (stride * extent) != 0) return;
  const bool is_known = std::ranges::any_of(
      all_, [&](const GeneralizeAxis& a) { return a.stride == stride && a.extent == extent; });
  if (!is_known) all_.push_back({.name = std::move(name), .stride = stride, .extent = extent, .next = {}});
}

void JobAxes::observe(GeneralizeAxis& axis) const {
  axis.seen = static_cast<std::uint32_t>(places(axis).size());
  axis.is_observed = axis.seen > 1;
  if (axis.is_observed) return;
  const std::int64_t own = axis.coordinate(job_.ranks[0]);
  axis.next = rank_at(axis, own == 0 ? 1 : 0);
}

std::set<std::int64_t> JobAxes::places(const GeneralizeAxis& axis) const {
  std::set<std::int64_t> places;
  for (Rank rank : job_.ranks) places.insert(axis.coordinate(rank));
  return places;
}

std::vector<GeneralizeAxis> JobAxes::count(const std::vector<std::uint32_t>& numbers) const {
  std::vector<GeneralizeAxis> counted = all_;
  for (std::size_t a = 0; a < counted.size(); ++a) {
    GeneralizeAxis& axis = counted[a];
    axis.numbers = numbers[a];
    if (axis.is_extrapolated()) axis.next = rank_at(axis, last_unseen(axis));
  }
  return counted;
}

std::int64_t JobAxes::last_unseen(const GeneralizeAxis& axis) const {
  const std::set<std::int64_t> seen = places(axis);
  std::int64_t place = axis.extent - std::int64_t{1};
  while (seen.contains(place)) --place;
  return place;
}

// The first given rank, moved along the axis.
Rank JobAxes::rank_at(const GeneralizeAxis& axis, std::int64_t place) const {
  const std::int64_t moved = (place - axis.coordinate(job_.ranks[0])) * std::int64_t{axis.stride};
  return static_cast<Rank>(std::int64_t{job_.ranks[0]} + moved);
}

GeneralizePairs JobAxes::find_unseen_pairs() const {
  std::vector<Rank> all(job_.size());
  std::iota(all.begin(), all.end(), Rank{0});
  GeneralizePairs pairs;
  std::vector<std::size_t> shown(job_.size());  // by each rank
  for (std::size_t a = 0; a < all_.size(); ++a) {
    for (std::size_t b = a + 1; b < all_.size(); ++b) {
      const auto shows = [&](Rank rank) { return is_away(rank, a) && is_away(rank, b); };
      if (!all_[a].is_observed || !all_[b].is_observed || std::ranges::any_of(job_.ranks, shows) ||
          std::ranges::none_of(all, shows))
        continue;
      pairs.unseen.emplace_back(all_[a].name, all_[b].name);
      for (Rank rank : all) shown[rank] += shows(rank) ? 1U : 0U;
    }
  }
  pairs.next = static_cast<Rank>(std::ranges::max_element(shown) - shown.begin());
  return pairs;
}

bool JobAxes::is_away(Rank rank, std::size_t axis) const {
  return all_[axis].coordinate(rank) != all_[axis].coordinate(job_.ranks[0]);
}

}  // namespace epweave
