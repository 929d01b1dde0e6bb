#include "passes/generalize/generalize.h"

#include "analysis/devices_on_rank.h"
#include "analysis/rank_view.h"
#include "passes/generalize/group_pairs.h"
#include "passes/generalize/merge.h"

namespace epweave {

Generalization generalize(const std::vector<Graph>& graphs, Repair repair) {
  const RankJob job = read_job(graphs);
  const JobAxes axes(job);
  Generalization result;
  result.ranks = job.ranks;
  result.axes = axes.all();
  result.pairs = axes.find_unseen_pairs();
  result.structure = find_structure_difference(job);
  if (result.structure) return result;

  Graph made = graphs[0];
  GroupPairs groups(job);
  Findings findings(job, made);
  MergedDifferences merged = merge_differences(job, axes, made, groups, findings);
  result.unproved = repair_numbers(job, axes, repair, std::move(merged.undecided), made, findings);
  result.axes = axes.count(merged.numbers_of_axis);
  result.explained = std::move(findings.explained);
  result.unexplained = std::move(findings.unexplained);
  if (!result.unexplained.empty()) return result;

  if (const auto listed = groups.list()) set_info(made, kRankGroupsKey, *listed);
  if (merged.devices) set_info(made, kRankDevicesKey, *merged.devices);
  set_info(made, kRankAgnosticKey, Arg::boolean(true));
  result.graph = std::move(made);
  return result;
}

}  // namespace epweave
