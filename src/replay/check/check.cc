#include "replay/check/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/users.h"
#include "ops/op.h"
#include "replay/check/added_roundings.h"
#include "replay/check/bound_plan.h"
#include "replay/check/group_capture.h"
#include "replay/check/library_changes.h"
#include "replay/check/library_kernels.h"
#include "replay/check/node_judgements.h"
#include "replay/check/output_comparison.h"
#include "replay/check/placed_rows.h"
#include "replay/check/sum_check.h"
#include "replay/run/written_inputs.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

struct Run {
  RunResult run;
  std::vector<RankOutputs> outputs;  // by rank; none of those that run elsewhere
};

bool is_native(const CheckSetup& setup) {
  return (setup.device_a != nullptr && setup.device_a->math() == Math::kNative) ||
         (setup.device_b != nullptr && setup.device_b->math() == Math::kNative);
}

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

class Checker {
 public:
  Checker(const Graph& a, const Graph& b, const CheckSetup& setup)
      : setup_(setup),
        world_a_(derive_world(a, setup.ranks)),
        world_b_(derive_world(b, setup.ranks)),
        here_(find_ranks_here()),
        graphs_(a, b),
        sums_(graphs_.groups, world_a_.size),
        bounded_outputs_(world_a_.size),
        changes_(graphs_),
        reports_(here_.end - here_.first),
        groups_of_first_(reports_.size()),
        written_(find_written_storage(a)),
        placed_(find_placed_rows(graphs_)) {
    written_inputs_ = find_written_inputs(a);
    const std::vector<bool> of_b = find_written_inputs(b);
    for (std::size_t i = 0; i < written_inputs_.size() && i < of_b.size(); ++i)
      written_inputs_[i] = written_inputs_[i] || of_b[i];
    outputs_.emplace(written_inputs_, here_, setup.reference == nullptr ? Keep::kWhatDiffers : Keep::kAll);
  }

  CheckedRanks check() {
    compare_values();
    expect_runs(count_runs());
    make_bounds();
    for_each_rank([&](Rank rank) { report_rank(rank); });
    Judged all = find_judged();
    agree(all);
    expect_runs(count_runs() + (all.difference ? 2 : 0) + (all.change ? 2 : 0));
    if (all.difference) locate(*all.difference, &CheckReport::first);
    if (all.change) locate(*all.change, &CheckReport::first_change);
    if (setup_.reference != nullptr) check_reference();
    return {std::move(reports_), all.conclusion};
  }

 private:
  RankRange find_ranks_here() const {
    const Process* process = setup_.options.process;
    return process == nullptr ? RankRange{0, world_a_.size} : RankRange{process->rank, process->rank + 1};
  }
  template <class F>
  void for_each_rank(const F& f) const {
    for (Rank rank = here_.first; rank < here_.end; ++rank) f(rank);
  }
  CheckReport& report_of(Rank rank) { return reports_[rank - here_.first]; }
  const Judgements& judgements_of(Rank rank) const { return judgements_[rank - here_.first]; }

  // Adds what all other processes found.
  template <class Found>
  void agree(Found& found) const {
    if (setup_.options.process == nullptr) return;
    for (const std::string& text : setup_.options.process->share(found.encode())) found.add_process(text);
  }

  // --- runs ---

  Run run(const Graph& graph, const World& world, RunOptions options) {
    const auto number = ++runs_[&graph];
    options.run_name = fmt::format("{}{}",
                                   &graph == &graphs_.a   ? "A"
                                   : &graph == &graphs_.b ? "B"
                                                          : "reference",
                                   number == 1 ? "" : fmt::format(", run {}", number));
    InputData data = setup_.data;
    if (&graph != &graphs_.a) data.original = &graphs_.a;
    if (options.process != nullptr) data.only = options.process->rank;
    const std::vector<RankInputs> inputs = make_inputs(graph, world, setup_.kernels, data);
    Run result{run_ranks(graph, world, setup_.kernels, inputs, options), {}};
    result.outputs.resize(world.size);
    for_each_rank([&](Rank rank) {
      result.outputs[rank] =
          list_results(graph, {result.run.ranks[rank].outputs, inputs[rank]}, written_inputs_);
      if (options.shown)  // of inputs, too, the names alone
        for (NamedTensor& output : result.outputs[rank]) output.tensor.storage = nullptr;
    });
    return result;
  }
  Run run_a(const RunOptions& options) { return run(graphs_.a, world_a_, options); }
  Run run_b(const RunOptions& options) { return run(graphs_.b, world_b_, options); }

  RunOptions on_device(Device* device, Observer observer, ShowResults shown) const {
    RunOptions options = setup_.options;
    options.device = device;
    options.observer = std::move(observer);
    options.shown = std::move(shown);
    return options;
  }
  static Observer watch(Watcher& watcher) {
    return [&watcher](Rank rank, NodeId node, const Value& value, RankDevice* device) {
      watcher.see(rank, node, value, device);
    };
  }
  RunOptions with_bounds(const BoundedNodes& bounded, ShowResults shown) const {
    RunOptions options = on_device(bounds_device(), {}, std::move(shown));
    options.bounded = &bounded;
    return options;
  }

  // --- first runs ---

  void compare_values() {
    Watcher seen_a(graphs_.a, here_), seen_b(graphs_.b, here_);
    ask_for_slices(graphs_, seen_a, seen_b);
    first_a_ = run_a(on_device(setup_.device_a, watch(seen_a), outputs_->show_a()));
    first_b_ = run_b(on_device(setup_.device_b, watch(seen_b), outputs_->show_b()));
    for_each_rank([&](Rank rank) {
      seen_a.read_log(rank, first_a_.run.ranks[rank].log);
      seen_b.read_log(rank, first_b_.run.ranks[rank].log);
      report_of(rank).outputs = outputs_->list_checks(rank, {first_a_.outputs[rank], first_b_.outputs[rank]});
      judgements_.push_back(judge_groups(graphs_, {seen_a, seen_b}, rank));
    });
    if (is_native(setup_)) return find_library_changes();
    SumsFound found;
    for_each_rank(
        [&](Rank rank) { found.add(judgements_of(rank), report_of(rank).outputs, first_a_.outputs[rank]); });
    found.count_bytes(graphs_, seen_a, here_);
    agree(found);
    plan_ = plan_bounds(graphs_, found, setup_.kept_bytes);
    if (!has_sums()) return;
    behind_sums_ = find_reached(graphs_.b, plan_.b.sums);
    find_same_values();
  }

  // Each value of B is then the whole or a piece of it: not what adds up to it.
  void find_same_values() {
    for (std::size_t i = 0; i < graphs_.groups.size(); ++i) {
      bool is_same = true;
      for_each_rank([&](Rank rank) {
        const GroupJudgement& found = judgements_of(rank)[i];
        is_same = is_same && found.skipped.empty() && found.judgement.verdict == Verdict::kEqual &&
                  !found.judgement.is_sum;
      });
      if (!is_same) continue;
      const Group& group = graphs_.groups[i];
      plan_.a.same.insert(group.whole);
      for (const NodeId value : group.values)
        if (!group.is_chain || value == group.values.back()) plan_.b.same.insert(value);
    }
  }

  void find_library_changes() {
    const ProductTable products_a(first_a_.run), products_b(first_b_.run);
    for_each_rank([&](Rank rank) {
      report_of(rank).kernel_changes = changes_.find({products_a, products_b}, judgements_of(rank), rank);
    });
    agree(changes_);
    changes_.look_behind();
  }

  // --- runs with bounds ---

  bool has_sums() const { return !plan_.lots.empty(); }
  bool makes_bounds() const { return has_sums() && setup_.bounds != Bounds::kNone; }
  // Null: the CPU.
  Device* bounds_device() const { return setup_.bounds == Bounds::kDevice ? setup_.device_a : nullptr; }

  bool runs_a_again() const { return !makes_bounds() || setup_.device_a != bounds_device(); }
  // But for those that locate what differs.
  std::size_t count_runs() const {
    const std::size_t of_lots = makes_bounds() ? 2 * plan_.lots.size() : 0;
    return 2 + (runs_a_again() ? 1 : 0) + of_lots + (setup_.reference != nullptr ? 1 : 0);
  }
  void expect_runs(std::size_t runs) const {
    if (setup_.expect_runs) setup_.expect_runs(runs);
  }

  // The second run of A also tells whether A gives the same bits twice, and how far B's are off.
  void make_bounds() {
    if (runs_a_again()) run_a(on_device(setup_.device_a, {}, outputs_->show_a_again()));
    if (!makes_bounds()) return;
    plan_.a.observer = [this](Rank rank, NodeId node, const Value& value, const ErrorBounds& bounds) {
      if (value.is_tensor()) sums_.see_whole(rank, node, value.tensor(), bounds);
    };
    plan_.b.observer = [this](Rank rank, NodeId node, const Value& value, const ErrorBounds& bounds) {
      if (value.is_tensor()) sums_.see_value(rank, node, value.tensor(), bounds);
    };
    plan_.a.at_end = [this](Rank rank, const std::vector<Value>& outputs, const RankInputs& inputs,
                            const ErrorBounds& bounds) {
      bounded_outputs_[rank].see_a(list_results(graphs_.a, {outputs, inputs}, written_inputs_), bounds);
    };
    plan_.b.at_end = [this](Rank rank, const std::vector<Value>& outputs, const RankInputs& inputs,
                            const ErrorBounds& bounds) {
      bounded_outputs_[rank].see_b(list_results(graphs_.b, {outputs, inputs}, written_inputs_), bounds);
      sums_.end_run(rank);
    };
    for (const BoundPlan::Lot& lot : plan_.lots) {
      start_lot(lot);
      note_without_bound(run_a(with_bounds(plan_.a, show_bounded_a(&lot == &plan_.lots.front()))));
      note_without_bound(
          run_b(with_bounds(plan_.b, setup_.device_b == bounds_device() ? outputs_->show_b_again()
                                                                        : outputs_->show_b_elsewhere())));
    }
    start_lot({});
  }
  ShowResults show_bounded_a(bool is_first) {
    if (setup_.device_a != bounds_device()) return outputs_->show_a_elsewhere();
    return is_first ? outputs_->show_a_again() : outputs_->show_a_once_more();
  }

  void note_without_bound(const Run& run) {
    for_each_rank([&](Rank rank) {
      const std::set<std::string>& ops = run.run.ranks[rank].without_bound;
      report_of(rank).ops_without_bound.insert(ops.begin(), ops.end());
    });
  }

  // On each rank those of the outputs that differ there.
  void start_lot(const BoundPlan::Lot& lot) {
    sums_.start(lot.groups);
    for_each_rank([&](Rank rank) {
      std::vector<std::size_t> outputs;
      for (const std::size_t i : lot.outputs)
        if (needs_bound(report_of(rank).outputs[i])) outputs.push_back(i);
      bounded_outputs_[rank].start(outputs);
    });
  }

  // --- reports ---

  static FirstRun describe_run(const Run& run, Rank rank) {
    const RankResult& result = run.run.ranks[rank];
    return {run.run.seconds, result.contradictions, result.first_contradiction};
  }

  void report_rank(Rank rank) {
    CheckReport& report = report_of(rank);
    report.run_a = describe_run(first_a_, rank);
    report.run_b = describe_run(first_b_, rank);
    report.baseline_is_deterministic = outputs_->is_repeated(rank);
    report.rewrite_is_deterministic = outputs_->is_b_repeated(rank);
    report.devices_agree = outputs_->devices_agree(rank);
    if (makes_bounds()) report.bounds = bounds_device() == nullptr ? Bounds::kCpu : Bounds::kDevice;
    outputs_->add_differences(rank, report.outputs);
    count_nodes(rank);
    outputs_->count_not_finite(rank, first_a_.outputs[rank], report);
    if (has_sums()) report.added_roundings = find_added_roundings(graphs_);
    if (makes_bounds()) bounded_outputs_[rank].judge(report.outputs);
    if (has_sums()) leave_unverified(rank, report.outputs);
    if (is_native(setup_))
      changes_.explain_outputs(first_b_.run.ranks[rank], written_inputs_, report.outputs);
    if (!report.kernel_changes.empty()) report.first_change = describe_first_change(report);
    for (const OutputCheck& output : report.outputs)
      if (output.verdict == Verdict::kSumOrder)
        report.largest_share = std::max(report.largest_share, output.bound->largest_share);
  }

  // Of the outputs behind a regrouped sum those that nothing bounds: numbers, and all where no
  // bounds are made.
  void leave_unverified(Rank rank, std::vector<OutputCheck>& outputs) const {
    const std::vector<bool> sums =
        find_reached_results(behind_sums_, first_b_.run.ranks[rank], written_inputs_);
    for (std::size_t i = 0; i < outputs.size() && i < sums.size(); ++i) {
      const bool has_bound = makes_bounds() && !first_b_.outputs[rank][i].is_number;
      if (sums[i] && needs_bound(outputs[i]) && !has_bound) outputs[i].verdict = Verdict::kUnverified;
    }
  }

  // The verdict in the end: where a regrouped sum is behind it, that of its bound.
  Judgement conclude(Rank rank, std::size_t group) const {
    const Judgement& first = judgements_of(rank)[group].judgement;
    if (!needs_bound(first)) return first;
    if (is_native(setup_)) return changes_.explain(first, graphs_.groups[group]);
    if (!is_reached(plan_, graphs_.groups[group])) return first;
    if (!makes_bounds())
      return {Verdict::kUnverified, "from a regrouped sum: bounds were not asked for (--bounds none)", true};
    const auto comparison = sums_.result(rank, group);
    if (!comparison)
      return {Verdict::kUnverified, "a regrouped sum whose parts cannot be put together", true};
    if (!comparison->is_within) return {Verdict::kDiffers, describe(*comparison), true};
    if (!comparison->is_bounded) return {Verdict::kUnverified, describe(*comparison), true};
    return {Verdict::kSumOrder, {}, true};
  }

  void count_nodes(Rank rank) {
    CheckReport& report = report_of(rank);
    RankCheck& counts = report.ranks.emplace_back();
    if (graphs_.unpaired != 0) counts.skipped["made by the rewrite"] = graphs_.unpaired;
    const auto positions = find_positions(graphs_.b.step(), graphs_.b.step().order);
    for (std::size_t i = 0; i < graphs_.groups.size(); ++i) {
      const Group& group = graphs_.groups[i];
      if (const std::string& skipped = judgements_of(rank)[i].skipped; !skipped.empty()) {
        ++counts.skipped[skipped];
        continue;
      }
      const Judgement judgement = conclude(rank, i);
      const std::string_view other_elements = find_other_elements(group);
      if (judgement.verdict == Verdict::kDiffers && !other_elements.empty()) {
        ++counts.skipped[std::string(other_elements)];
        continue;
      }
      ++counts.nodes[static_cast<std::size_t>(judgement.verdict)];
      if (judgement.verdict == Verdict::kUnverified) ++counts.unverified[judgement.reason];
      if (judgement.verdict != Verdict::kDiffers) continue;
      const std::uint64_t position = positions[group.values[0]];
      if (report.first && report.first->position <= position) continue;
      report.first =
          NodeCheck{rank, group.values[0], name_of_whole(group), judgement.reason, std::nullopt, position};
      groups_of_first_[rank - here_.first] = i;
    }
  }

  // Why the group may show memory before a write in place where A's node shows it behind, or the
  // other way round, or have other rows on this rank; what is made of it is compared. "" if it may
  // not.
  std::string_view find_other_elements(const Group& group) const {
    if (written_.views.contains(group.whole))
      return "a view of memory that is written in place: its readers are compared";
    if (group.is_copied && written_.all.contains(group.whole))
      return "cut or joined beside a write in place: its readers are compared";
    if (placed_.contains(group.whole))
      return "rows that ranks get by their places, others of a part: what joins the parts is compared";
    return {};
  }

  std::string name_of_whole(const Group& group) const {
    return std::string(graphs_.a.text(graphs_.a.step().nodes[group.whole].name));
  }

  NodeCheck describe_first_change(const CheckReport& report) const {
    const KernelChange& change = report.kernel_changes.front();
    const Group& group = graphs_.groups[change.group];
    const NodeId node = *std::find_if(group.values.begin(), group.values.end(),
                                      [](NodeId value) { return static_cast<bool>(value); });
    return {change.rank, node, name_of_whole(group), "the library took another algorithm", std::nullopt, 0};
  }

  // --- what differs first ---

  Judged find_judged() const {
    Judged judged;
    for_each_rank([&](Rank rank) {
      const CheckReport& report = reports_[rank - here_.first];
      judged.conclusion = std::max(judged.conclusion, report.conclusion());
      if (report.first)
        Judged::add(judged.difference, {report.first->position, rank, groups_of_first_[rank - here_.first]});
      if (report.first_change) Judged::add(judged.change, {0, rank, report.kernel_changes.front().group});
    });
    return judged;
  }

  // Runs both graphs once more for the values of one group on one rank.
  void locate(const FirstFound& first, std::optional<NodeCheck> CheckReport::*found) {
    GroupCapture capture(graphs_.groups[first.group], first.rank);
    run_a(on_device(setup_.device_a, capture.observe_a(), {}));
    run_b(on_device(setup_.device_b, capture.observe_b(), {}));
    if (here_.holds(first.rank)) capture.locate(*(report_of(first.rank).*found));
  }

  // --- the reference ---

  void check_reference() {
    const Run run_c = run(*setup_.reference, derive_world(*setup_.reference, setup_.ranks), setup_.options);
    for_each_rank([&](Rank rank) {
      const RankOutputs of_a = outputs_->tensors_of_a(rank, first_a_.outputs[rank]),
                        of_b = outputs_->tensors_of_b(rank, first_b_.outputs[rank]);
      report_of(rank).reference = compare_reference({of_a, of_b}, run_c.outputs[rank], rank);
    });
  }

  const CheckSetup& setup_;
  World world_a_, world_b_;
  RankRange here_;
  PairedGraphs graphs_;
  Run first_a_, first_b_;               // results without memory
  std::vector<Judgements> judgements_;  // by rank here
  BoundPlan plan_;                      // in portable math
  Reached behind_sums_;                 // of B
  SumChecker sums_;
  std::vector<BoundedOutputs> bounded_outputs_;  // by rank
  LibraryChanges changes_;                       // in native math
  std::vector<CheckReport> reports_;             // by rank here
  std::vector<std::size_t> groups_of_first_;     // by rank here
  WrittenStorage written_;                       // of A
  IdSet<NodeId> placed_;                         // of A
  std::vector<bool> written_inputs_;             // by A or B
  std::optional<OutputComparison> outputs_;
  std::map<const Graph*, int> runs_;
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
  return Checker(a, b, setup).check();
}

CheckReport check_graphs(const Graph& a, const Graph& b, const CheckSetup& setup) {
  return merge(check_ranks(a, b, setup).reports);
}

}  // namespace epweave::replay
