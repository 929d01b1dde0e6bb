#include "replay/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "replay/check/added_roundings.h"
#include "replay/check/bound_plan.h"
#include "replay/check/bound_runs.h"
#include "replay/check/check_runs.h"
#include "replay/check/group_capture.h"
#include "replay/check/library_changes.h"
#include "replay/check/library_kernels.h"
#include "replay/check/node_judgements.h"
#include "replay/check/node_verdicts.h"
#include "replay/check/output_comparison.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

// What is found first: at which of B's positions, on which rank, in which group.
struct FirstFound {
  std::uint64_t position = 0;
  Rank rank = 0;
  std::size_t group = 0;
  auto operator<=>(const FirstFound&) const = default;
};

// What one process says of its ranks once they are judged, and what all said.
struct Judged {
  CheckReport::Conclusion conclusion = CheckReport::Conclusion::kSame;
  std::optional<FirstFound> difference, change;

  std::string encode() const {
    Writer writer;
    writer.number(static_cast<std::uint64_t>(conclusion));
    for (const auto& found : {difference, change}) {
      writer.number(found ? 1 : 0);
      if (found) writer.number(found->position).number(found->rank).number(found->group);
    }
    return writer.take();
  }
  void add_process(std::string_view text) {
    Reader reader(text);
    conclusion = std::max(conclusion, static_cast<CheckReport::Conclusion>(reader.number()));
    for (auto* found : {&difference, &change}) {
      if (reader.number() == 0) continue;
      FirstFound other{reader.number(), static_cast<Rank>(reader.number()), 0};
      other.group = reader.number();
      add(*found, other);
    }
  }
  static void add(std::optional<FirstFound>& first, const FirstFound& found) {
    if (!first || found < *first) first = found;
  }
};

// What the first runs of both graphs gave. By rank here: judgements and outputs.
struct FirstRuns {
  CheckRun a, b;  // results without memory
  std::vector<Judgements> judgements;
  std::vector<std::vector<OutputCheck>> outputs;
};

Observer watch(Watcher& watcher) {
  return [&watcher](Rank rank, NodeId node, const Value& value, RankDevice* device) {
    watcher.see(rank, node, value, device);
  };
}

// Which sums were regrouped, agreed by all ranks.
BoundPlan find_sums(const PairedGraphs& graphs, const CheckSetup& setup, const FirstRuns& first,
                    const CheckRuns& runs, const Watcher& seen_a) {
  SumsFound found;
  runs.for_each_rank([&](Rank rank) {
    const std::size_t i = rank - runs.here().first;
    found.add(first.judgements[i], first.outputs[i], first.a.outputs[rank]);
  });
  found.count_bytes(graphs, seen_a, runs.here());
  runs.agree(found);
  return plan_bounds(graphs, found, setup.kept_bytes);
}

// Each value of B that has A's bits is then the whole or a piece of it: not what adds up to it.
void add_same_values(const PairedGraphs& graphs, const std::vector<Judgements>& judgements, BoundPlan& plan) {
  const auto is_same = [](const GroupJudgement& found) {
    return found.skipped.empty() && found.judgement.verdict == Verdict::kEqual && !found.judgement.is_sum;
  };
  for (std::size_t i = 0; i < graphs.groups.size(); ++i) {
    if (!std::ranges::all_of(judgements, [&](const Judgements& of_rank) { return is_same(of_rank[i]); }))
      continue;
    const Group& group = graphs.groups[i];
    plan.a.same.insert(group.whole);
    for (const NodeId value : group.values)
      if (!group.is_chain || value == group.values.back()) plan.b.same.insert(value);
  }
}

FirstRun describe_run(const CheckRun& run, Rank rank) {
  const RankResult& result = run.run.ranks[rank];
  return {run.run.seconds, result.contradictions, result.first_contradiction};
}

NodeCheck describe_change(const PairedGraphs& graphs, const KernelChange& change) {
  const Group& group = graphs.groups[change.group];
  const NodeId node = *std::find_if(group.values.begin(), group.values.end(),
                                    [](NodeId value) { return static_cast<bool>(value); });
  return {change.rank,  node, name_of_whole(graphs, group), "the library took another algorithm",
          std::nullopt, 0};
}

// The stages of a check, one after the other (make): each reads what those before it found.
class Check {
 public:
  Check(const Graph& a, const Graph& b, const CheckSetup& setup)
      : setup_(setup),
        graphs_(a, b),
        runs_(graphs_, setup),
        outputs_(runs_.written_inputs(), runs_.here(),
                 setup.reference == nullptr ? Keep::kWhatDiffers : Keep::kAll),
        changes_(graphs_),
        bounds_(graphs_.groups, runs_.ranks()),
        reports_(runs_.here().end - runs_.here().first),
        groups_of_first_(reports_.size()) {}

  CheckedRanks make() {
    compare_values();
    const BoundSetup bounds = set_up_bounds(setup_, plan_);
    const std::size_t runs = 2 + bounds.count_runs(plan_) + (setup_.reference != nullptr ? 1 : 0);
    expect_runs(runs);
    run_with_bounds(graphs_, bounds, plan_, first_.outputs, runs_, outputs_, bounds_);
    const NodeVerdicts verdicts(graphs_);
    runs_.for_each_rank([&](Rank rank) { report_rank(rank, bounds, verdicts); });
    Judged all = find_judged();
    runs_.agree(all);
    expect_runs(runs + (all.difference ? 2 : 0) + (all.change ? 2 : 0));
    if (all.difference) locate(*all.difference, &CheckReport::first);
    if (all.change) locate(*all.change, &CheckReport::first_change);
    if (setup_.reference != nullptr) check_reference();
    return {std::move(reports_), all.conclusion};
  }

 private:
  std::size_t here(Rank rank) const { return rank - runs_.here().first; }
  CheckReport& report_of(Rank rank) { return reports_[here(rank)]; }
  void expect_runs(std::size_t runs) const {
    if (setup_.expect_runs) setup_.expect_runs(runs);
  }

  void compare_values() {
    Watcher seen_a(graphs_.a, runs_.here()), seen_b(graphs_.b, runs_.here());
    ask_for_slices(graphs_, seen_a, seen_b);
    first_.a = runs_.run_a(runs_.on_device(setup_.device_a, watch(seen_a), outputs_.show_a()));
    first_.b = runs_.run_b(runs_.on_device(setup_.device_b, watch(seen_b), outputs_.show_b()));
    runs_.for_each_rank([&](Rank rank) {
      seen_a.read_log(rank, first_.a.run.ranks[rank].log);
      seen_b.read_log(rank, first_.b.run.ranks[rank].log);
      first_.outputs.push_back(outputs_.list_checks(rank, {first_.a.outputs[rank], first_.b.outputs[rank]}));
      first_.judgements.push_back(judge_groups(graphs_, {seen_a, seen_b}, rank));
    });
    if (is_native(setup_)) return find_library_changes();
    plan_ = find_sums(graphs_, setup_, first_, runs_, seen_a);
    if (plan_.lots.empty()) return;
    add_same_values(graphs_, first_.judgements, plan_);
    behind_sums_ = find_reached(graphs_.b, plan_.b.sums);
  }

  void find_library_changes() {
    const ProductTable products_a(first_.a.run), products_b(first_.b.run);
    runs_.for_each_rank([&](Rank rank) {
      report_of(rank).kernel_changes =
          changes_.find({products_a, products_b}, first_.judgements[here(rank)], rank);
    });
    runs_.agree(changes_);
    changes_.look_behind();
  }

  void report_rank(Rank rank, const BoundSetup& bounds, const NodeVerdicts& verdicts) {
    CheckReport& report = report_of(rank);
    report.run_a = describe_run(first_.a, rank);
    report.run_b = describe_run(first_.b, rank);
    report.outputs = first_.outputs[here(rank)];
    report.baseline_is_deterministic = outputs_.is_repeated(rank);
    report.rewrite_is_deterministic = outputs_.is_b_repeated(rank);
    report.devices_agree = outputs_.devices_agree(rank);
    report.ops_without_bound = bounds_.without_bound[rank];
    if (bounds.makes_bounds) report.bounds = bounds.bounds_device == nullptr ? Bounds::kCpu : Bounds::kDevice;
    outputs_.add_differences(rank, report.outputs);
    RankNodes nodes = verdicts.judge(
        rank, first_.judgements[here(rank)],
        [&](const Judgement& first, std::size_t group) { return conclude(first, rank, group, bounds); });
    report.ranks.push_back(std::move(nodes.counts));
    report.first = std::move(nodes.first);
    groups_of_first_[here(rank)] = nodes.group_of_first;
    outputs_.count_not_finite(rank, first_.a.outputs[rank], report);
    if (bounds.has_sums) report.added_roundings = find_added_roundings(graphs_);
    if (bounds.makes_bounds) bounds_.outputs[rank].judge(report.outputs);
    if (bounds.has_sums) leave_unverified(rank, bounds, report.outputs);
    if (is_native(setup_))
      changes_.explain_outputs(first_.b.run.ranks[rank], runs_.written_inputs(), report.outputs);
    if (!report.kernel_changes.empty())
      report.first_change = describe_change(graphs_, report.kernel_changes.front());
    for (const OutputCheck& output : report.outputs)
      if (output.verdict == Verdict::kSumOrder)
        report.largest_share = std::max(report.largest_share, output.bound->largest_share);
  }

  // The verdict on a group that may differ by right where a regrouped sum is behind it.
  Judgement conclude(const Judgement& first, Rank rank, std::size_t group, const BoundSetup& bounds) const {
    if (is_native(setup_)) return changes_.explain(first, graphs_.groups[group]);
    if (!is_reached(plan_, graphs_.groups[group])) return first;
    if (!bounds.makes_bounds)
      return {Verdict::kUnverified, "from a regrouped sum: bounds were not asked for (--bounds none)", true};
    const auto comparison = bounds_.sums.result(rank, group);
    if (!comparison)
      return {Verdict::kUnverified, "a regrouped sum whose parts cannot be put together", true};
    if (!comparison->is_within) return {Verdict::kDiffers, describe(*comparison), true};
    if (!comparison->is_bounded) return {Verdict::kUnverified, describe(*comparison), true};
    return {Verdict::kSumOrder, {}, true};
  }

  // Of the outputs behind a regrouped sum those that nothing bounds: numbers, and all where no
  // bounds are made.
  void leave_unverified(Rank rank, const BoundSetup& bounds, std::vector<OutputCheck>& outputs) const {
    const std::vector<bool> sums =
        find_reached_results(behind_sums_, first_.b.run.ranks[rank], runs_.written_inputs());
    for (std::size_t i = 0; i < outputs.size() && i < sums.size(); ++i) {
      const bool has_bound = bounds.makes_bounds && !first_.b.outputs[rank][i].is_number;
      if (sums[i] && needs_bound(outputs[i]) && !has_bound) outputs[i].verdict = Verdict::kUnverified;
    }
  }

  Judged find_judged() const {
    Judged judged;
    runs_.for_each_rank([&](Rank rank) {
      const CheckReport& report = reports_[here(rank)];
      judged.conclusion = std::max(judged.conclusion, report.conclusion());
      if (report.first)
        Judged::add(judged.difference, {report.first->position, rank, groups_of_first_[here(rank)]});
      if (report.first_change) Judged::add(judged.change, {0, rank, report.kernel_changes.front().group});
    });
    return judged;
  }

  // Runs both graphs once more for the values of one group on one rank.
  void locate(const FirstFound& first, std::optional<NodeCheck> CheckReport::*found) {
    GroupCapture capture(graphs_.groups[first.group], first.rank);
    runs_.run_a(runs_.on_device(setup_.device_a, capture.observe_a(), {}));
    runs_.run_b(runs_.on_device(setup_.device_b, capture.observe_b(), {}));
    if (runs_.here().holds(first.rank)) capture.locate(*(report_of(first.rank).*found));
  }

  void check_reference() {
    const CheckRun run = runs_.run_reference();
    runs_.for_each_rank([&](Rank rank) {
      const RankOutputs of_a = outputs_.tensors_of_a(rank, first_.a.outputs[rank]),
                        of_b = outputs_.tensors_of_b(rank, first_.b.outputs[rank]);
      report_of(rank).reference = compare_reference({of_a, of_b}, run.outputs[rank], rank);
    });
  }

  const CheckSetup& setup_;
  const PairedGraphs graphs_;
  CheckRuns runs_;
  OutputComparison outputs_;
  FirstRuns first_;
  BoundPlan plan_;          // in portable math
  Reached behind_sums_;     // of B
  LibraryChanges changes_;  // in native math
  BoundResults bounds_;
  std::vector<CheckReport> reports_;          // by rank here
  std::vector<std::size_t> groups_of_first_;  // by rank here
};

}  // namespace

void require_comparable(const Graph& a, const Graph& b, const CheckSetup& setup) {
  const Rank ranks = derive_world(a, setup.ranks).size, ranks_b = derive_world(b, setup.ranks).size;
  if (ranks != ranks_b) throw UsageError(fmt::format("the graphs are of {} and {} ranks", ranks, ranks_b));
  if (is_native(setup) && (setup.device_a != setup.device_b || setup.reference != nullptr))
    throw UsageError(
        "--math native compares two graphs on one device: other devices and a reference have other bits");
  if (setup.bounds == Bounds::kDevice && setup.device_a != setup.device_b)
    throw UsageError("--bounds device is for graphs that run on one device: give --bounds cpu");
  if (setup.bounds == Bounds::kDevice && setup.options.process != nullptr)
    throw UsageError("--bounds device is for ranks in one process: give --bounds cpu");
  if (setup.reference == nullptr) return;
  const Rank ranks_c = derive_world(*setup.reference, setup.ranks).size;
  if (ranks_c != ranks)
    throw UsageError(fmt::format("the reference is of {} ranks, the graphs are of {}", ranks_c, ranks));
}

CheckedRanks check_ranks(const Graph& a, const Graph& b, const CheckSetup& setup) {
  require_comparable(a, b, setup);
  return Check(a, b, setup).make();
}

CheckReport check_graphs(const Graph& a, const Graph& b, const CheckSetup& setup) {
  return merge(check_ranks(a, b, setup).reports);
}

}  // namespace epweave::replay
