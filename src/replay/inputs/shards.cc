#include "replay/inputs/shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace epweave::replay {
namespace {

constexpr const char* kUneven =
    "it is cut unevenly: ranks hold different amounts of it, and replay runs one program on all ranks";
constexpr const char* kEvenRanks =
    "trace it, for the replay alone, on a number of ranks that divides its extents";

std::optional<std::int64_t> integer_field(std::span<const Arg> fields, std::size_t i) {
  return i < fields.size() && fields[i].is_int() ? std::optional(fields[i].as_int()) : std::nullopt;
}

// The axes in the order in which they cut.
std::vector<std::int64_t> list_axes(const Context& context, const RecordedPlacements& recorded) {
  std::vector<std::int64_t> axes;
  if (recorded.order == nullptr) {
    for (std::size_t a = 0; a < context.args.children(recorded.placements).size(); ++a)
      axes.push_back(static_cast<std::int64_t>(a));
    return axes;
  }
  if (!recorded.order->is_list()) return axes;
  for (Arg of_dim : context.args.children(*recorded.order)) {
    if (!of_dim.is_list()) continue;
    const auto pair = context.args.children(of_dim);
    if (pair.size() != 2 || !pair[1].is_list()) continue;
    for (Arg axis : context.args.children(pair[1]))
      if (axis.is_int()) axes.push_back(axis.as_int());
  }
  return axes;
}

// What one coordinate along the axis of the cut has of the runs: of each piece `length` indices.
std::vector<IndexRun> take_share(const std::vector<IndexRun>& runs, std::int64_t length, const Cut& cut,
                                 std::int64_t coordinate) {
  std::vector<IndexRun> share;
  if (length == 0) return share;
  const auto add = [&](std::int64_t first, std::int64_t count) {
    if (!share.empty() && share.back().first + share.back().length == first)
      share.back().length += count;
    else
      share.push_back({first, count});
  };
  std::size_t at = 0;
  std::int64_t before = 0;  // indices in the runs before `at`
  for (std::int64_t piece = 0; piece < cut.pieces; ++piece) {
    std::int64_t next = (piece * cut.axis.extent + coordinate) * length;
    const std::int64_t end = next + length;
    while (next < end) {
      while (before + runs[at].length <= next) before += runs[at++].length;
      const std::int64_t count = std::min(end, before + runs[at].length) - next;
      add(runs[at].first + (next - before), count);
      next += count;
    }
  }
  return share;
}

}  // namespace

Cuts read_cuts(const Context& context, const RecordedPlacements& recorded, std::size_t rank) {
  const auto give_up = [](std::string why) { return Cuts{{}, std::move(why), {}}; };
  if (!recorded.placements.is_list()) return give_up("its recorded placements are no list");
  const auto placements = context.args.children(recorded.placements);
  std::vector<std::optional<Cut>> of_axis(placements.size());  // none: every rank along it has the same
  for (std::size_t a = 0; a < placements.size(); ++a) {
    const auto fields =
        placements[a].is_list() ? context.args.children(placements[a]) : std::span<const Arg>();
    const std::string kind(!fields.empty() && fields[0].is(ArgKind::kText) ? context.text(fields[0].as_name())
                                                                           : "");
    if (kind == "Replicate") continue;
    if (kind == "Partial")
      return {{},
              fmt::format("along axis {} of its mesh ranks hold summands of it", a),
              "give each rank's own with --inputs"};
    if (kind != "Shard" && kind != "_StridedShard")
      return give_up(fmt::format("its placement `{}` along axis {} of its mesh is not known", kind, a));
    const auto dim = integer_field(fields, 1), pieces = kind == "Shard" ? 1 : integer_field(fields, 2);
    if (!dim || !pieces || *dim < 0 || static_cast<std::size_t>(*dim) >= rank || *pieces < 1)
      return give_up(fmt::format("its placement `{}` along axis {} of its mesh has wrong fields", kind, a));
    if (placements.size() != recorded.axes.size())
      return give_up(fmt::format("the file records {} placements of it, and a mesh of {} axes",
                                 placements.size(), recorded.axes.size()));
    of_axis[a] = {static_cast<std::size_t>(*dim), recorded.axes[a], *pieces};
  }
  Cuts cuts;
  for (const std::int64_t axis : list_axes(context, recorded)) {
    if (axis < 0 || axis >= static_cast<std::int64_t>(of_axis.size()))
      return give_up(fmt::format("its shard order names axis {} of a mesh of {}", axis, of_axis.size()));
    std::optional<Cut>& cut = of_axis[static_cast<std::size_t>(axis)];
    if (cut) cuts.list.push_back(*cut);
    cut.reset();
  }
  for (std::size_t a = 0; a < of_axis.size(); ++a)
    if (of_axis[a]) return give_up(fmt::format("its shard order leaves out axis {} of its mesh", a));
  return cuts;
}

Cuts find_cuts(const Extents& global, const Extents& local, const std::vector<MeshAxis>& axes) {
  Cuts cuts;
  std::size_t next = 0;
  for (std::size_t d = 0; d < std::min(global.size(), local.size()); ++d) {
    if (global[d] == local[d]) continue;
    if (local[d] == 0 || global[d] % local[d] != 0) return {{}, kUneven, kEvenRanks};
    const std::int64_t pieces = global[d] / local[d];
    const std::size_t begin = next;
    std::int64_t found = 1;
    while (found < pieces && next < axes.size()) found *= axes[next++].extent;
    if (found != pieces)
      return {{},
              "no axes of its mesh explain how it is cut",
              "export it again (epweave.export), which records its placements"};
    for (std::size_t a = next; a-- > begin;) cuts.list.push_back({d, axes[a], 1});
  }
  return cuts;
}

Shard cut_shard(const Extents& global, const Extents& local, Cuts cuts) {
  Shard shard{global, std::move(cuts.list), std::move(cuts.problem), std::move(cuts.remedy)};
  if (global.size() != local.size()) shard.problem = "its global shape has another number of dimensions";
  if (!shard.problem.empty()) return shard;
  Extents extents = global;
  for (const Cut& cut : shard.cuts) {
    std::int64_t& extent = extents[cut.dim];
    const bool is_even = extent % cut.axis.extent == 0 && extent / cut.axis.extent % cut.pieces == 0;
    if (!is_even) {
      shard.problem = kUneven;
      shard.remedy = kEvenRanks;
      return shard;
    }
    extent /= cut.axis.extent;
  }
  if (extents != local)
    shard.problem = fmt::format("its type has the extents [{}], its placements leave [{}] of [{}]",
                                fmt::join(local, ", "), fmt::join(extents, ", "), fmt::join(global, ", "));
  return shard;
}

ShardRuns Shard::runs_of(Rank rank) const {
  ShardRuns runs;
  for (const std::int64_t extent : global) runs.push_back({{0, extent}});
  Extents extents = global;
  for (const Cut& cut : cuts) {
    std::int64_t& extent = extents[cut.dim];
    extent /= cut.axis.extent;
    runs[cut.dim] = take_share(runs[cut.dim], extent / cut.pieces, cut,
                               static_cast<std::int64_t>(rank) / cut.axis.stride % cut.axis.extent);
  }
  return runs;
}

}  // namespace epweave::replay
