#include "replay/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/users.h"
#include "ir/op.h"
#include "replay/pairing.h"

namespace epweave::replay {
namespace {

using Results = std::vector<std::vector<NamedTensor>>;  // by rank

struct Run {
  RunResult run;
  Results results;
};

bool have_same_bits(const Results& a, const Results& b) {
  for (std::size_t rank = 0; rank < a.size(); ++rank)
    for (std::size_t i = 0; i < a[rank].size(); ++i)
      if (!compare_tensors(a[rank][i].tensor, b[rank][i].tensor).is_equal()) return false;
  return true;
}

// A judgement of a group of nodes on one rank; `skipped`: why there is none.
struct GroupJudgement {
  Judgement judgement;
  std::string skipped;
};

class Checker {
 public:
  Checker(const Graph& a, const Graph& b, const CheckSetup& setup)
      : a_(a),
        b_(b),
        setup_(setup),
        world_a_(derive_world(a, setup.ranks)),
        world_b_(derive_world(b, setup.ranks)),
        groups_(pair_nodes(a, b, unpaired_)),
        sums_(groups_, world_a_.size),
        views_of_written_(find_views_of_written(a)) {}

  CheckReport check() {
    if (world_a_.size != world_b_.size)
      throw UsageError(fmt::format("the graphs are of {} and {} ranks", world_a_.size, world_b_.size));
    if (is_native() && (setup_.device_a != setup_.device_b || setup_.reference != nullptr))
      throw UsageError(
          "--math native compares two graphs on one device: other devices and a reference have other bits");
    Watcher seen_a(a_, world_a_.size), seen_b(b_, world_b_.size);
    ask_for_slices(seen_a, seen_b);
    Run run_a = run(a_, world_a_, watch(seen_a, setup_.device_a));
    Run run_b = run(b_, world_b_, watch(seen_b, setup_.device_b));
    for (Rank rank = 0; rank < world_a_.size; ++rank) judge_nodes(rank, seen_a, seen_b);
    if (is_native()) find_kernel_changes(run_a.run, run_b.run);
    const std::vector<std::vector<std::size_t>> lots =
        is_native() ? std::vector<std::vector<std::size_t>>() : find_sums(seen_a);
    has_sums_ = !lots.empty();
    if (has_sums_) sums_.start(lots[0]);
    // The second run of A also tells whether A gives the same bits twice.
    Run again_a = run(a_, world_a_, follow_bounds(bounded_a_, setup_.device_a));
    report_.baseline_is_deterministic = have_same_bits(run_a.results, again_a.results);
    if (has_sums_ && setup_.device_a != nullptr) {
      again_a = run(a_, world_a_, follow_bounds(bounded_a_, nullptr));
      report_.devices_agree = have_same_bits(run_a.results, again_a.results);
    }
    Run again_b = has_sums_ ? run(b_, world_b_, follow_bounds(bounded_b_, nullptr)) : Run();
    for (std::size_t lot = 1; lot < lots.size(); ++lot) {
      sums_.start(lots[lot]);
      again_a = again_b = Run();
      again_a = run(a_, world_a_, follow_bounds(bounded_a_, nullptr));
      again_b = run(b_, world_b_, follow_bounds(bounded_b_, nullptr));
    }
    sums_.start({});
    if (has_sums_ && setup_.device_b != nullptr)
      report_.devices_agree = report_.devices_agree && have_same_bits(run_b.results, again_b.results);
    for (Rank rank = 0; rank < world_a_.size; ++rank) {
      count_nodes(rank);
      check_results(run_a.results[rank], run_b.results[rank], rank);
      count_not_finite(run_a.results[rank]);
      if (has_sums_) check_sums(again_a, again_b, rank);
      if (is_native()) explain_outputs(run_b.run, rank);
    }
    if (report_.first) locate(*report_.first, first_group_);
    if (!report_.kernel_changes.empty()) locate_first_change();
    if (setup_.reference != nullptr) check_reference(run_a.results, run_b.results);
    report_.run_a = std::move(run_a.run);
    report_.run_b = std::move(run_b.run);
    for (const OutputCheck& output : report_.outputs)
      if (output.bound) report_.largest_share = std::max(report_.largest_share, output.bound->largest_share);
    return std::move(report_);
  }

 private:
  // --- runs ---

  Run run(const Graph& graph, const World& world, RunOptions options) {
    const auto number = ++runs_[&graph];
    options.run_name = fmt::format("{}{}",
                                   &graph == &a_   ? "A"
                                   : &graph == &b_ ? "B"
                                                   : "reference",
                                   number == 1 ? "" : fmt::format(", run {}", number));
    InputData data = setup_.data;
    if (&graph != &a_) data.original = &a_;
    const std::vector<RankInputs> inputs = make_inputs(graph, world, setup_.kernels, data);
    Run result{run_ranks(graph, world, setup_.kernels, inputs, options), {}};
    for (Rank rank = 0; rank < world.size; ++rank)
      result.results.push_back(list_results(graph, result.run.ranks[rank], inputs[rank]));
    return result;
  }

  RunOptions watch(Watcher& watcher, Device* device) const {
    RunOptions options = setup_.options;
    options.device = device;
    options.observer = [&watcher](Rank rank, NodeId node, const Value& value) {
      watcher.see(rank, node, value);
    };
    return options;
  }

  // On a device there are no bounds.
  RunOptions follow_bounds(const BoundedNodes& bounded, Device* device) const {
    RunOptions options = setup_.options;
    options.device = device;
    if (has_sums_ && device == nullptr) options.bounded = &bounded;
    return options;
  }

  void ask_for_slices(Watcher& seen_a, Watcher& seen_b) const {
    for (const Group& group : groups_) {
      if (!group.is_parts) continue;
      const Dimensions dimensions = find_cut_dimensions(a_, b_, group);
      seen_a.slice(group.whole, dimensions);
      for (NodeId value : group.values)
        if (value) seen_b.slice(value, dimensions);
    }
  }

  void count_not_finite(const std::vector<NamedTensor>& results) {
    for (const NamedTensor& result : results) {
      if (!has_not_finite(result.tensor)) continue;
      ++report_.outputs_not_finite;
      if (result.name == "loss" || result.name.starts_with("grad")) report_.step_is_finite = false;
    }
  }

  // --- nodes ---

  void judge_nodes(Rank rank, const Watcher& seen_a, const Watcher& seen_b) {
    std::vector<GroupJudgement>& judgements = judgements_.emplace_back(groups_.size());
    for (std::size_t i = 0; i < groups_.size(); ++i) judge_group(rank, {seen_a, seen_b}, i, judgements[i]);
  }

  struct Watchers {
    const Watcher& a;
    const Watcher& b;
  };
  void judge_group(Rank rank, const Watchers& seen, std::size_t index, GroupJudgement& to) const {
    const Group& group = groups_[index];
    const Seen& whole = seen.a.at(rank, group.whole);
    std::vector<const Seen*> values;
    bool is_complete = whole.kind != Seen::Kind::kNothing;
    for (NodeId value : group.values) {
      if (!value) to.skipped = "a part is missing";
      is_complete = is_complete && value && seen.b.at(rank, value).kind != Seen::Kind::kNothing;
      if (is_complete) values.push_back(&seen.b.at(rank, value));
    }
    if (!to.skipped.empty()) return;
    if (!is_complete) {
      to.skipped = "no value of its own: a tuple, text, or a collective not waited for";
    } else if (is_uninitialised(a_.step().nodes[group.whole])) {
      to.judgement.verdict = Verdict::kUnverified;
      to.judgement.reason = "memory that is not written yet";
    } else {
      to.judgement = judge(whole, values, group);
    }
  }

  bool is_reached(const Group& group) const {
    return std::any_of(group.values.begin(), group.values.end(),
                       [&](NodeId value) { return value && bounded_b_.nodes.contains(value); });
  }

  // Finds the regrouped sums, and which groups come from one: in lots whose values may be kept together. None: no such sums.
  std::vector<std::vector<std::size_t>> find_sums(const Watcher& seen_a) {
    IdSet<NodeId> roots_a, roots_b;
    bool has_any = false;
    for (const auto& judgements : judgements_) {
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (!judgements[i].judgement.is_sum) continue;
        has_any = true;
        roots_a.insert(groups_[i].whole);
        for (NodeId value : groups_[i].values) roots_b.insert(value);
      }
    }
    if (!has_any) return {};
    const auto start = [](const Graph& graph, const IdSet<NodeId>& roots, BoundedNodes& bounded) {
      RegroupedSums found = find_regrouped(graph, roots);
      bounded.sums = std::move(found.sums);
      bounded.nodes = std::move(found.reached);
    };
    start(a_, roots_a, bounded_a_);
    start(b_, roots_b, bounded_b_);
    bounded_a_.observer = [this](Rank rank, NodeId node, const Value& value, ErrorBounds& bounds) {
      if (value.is_tensor()) sums_.see_whole(rank, node, value.tensor(), bounds);
    };
    bounded_b_.observer = [this](Rank rank, NodeId node, const Value& value, ErrorBounds& bounds) {
      if (value.is_tensor()) sums_.see_value(rank, node, value.tensor(), bounds);
    };
    std::vector<std::vector<std::size_t>> lots(1);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!is_reached(groups_[i]) ||
          std::none_of(judgements_.begin(), judgements_.end(), [&](const auto& of_rank) {
            return of_rank[i].skipped.empty() && needs_bound(of_rank[i].judgement);
          }))
        continue;
      const std::size_t bytes = kept_bytes(seen_a, groups_[i].whole);
      if (kept + bytes > setup_.kept_bytes && !lots.back().empty()) {
        lots.emplace_back();
        kept = 0;
      }
      lots.back().push_back(i);
      kept += bytes;
    }
    return lots;
  }

  // --- native math ---

  bool is_native() const {
    return (setup_.device_a != nullptr && setup_.device_a->math() == Math::kNative) ||
           (setup_.device_b != nullptr && setup_.device_b->math() == Math::kNative);
  }

  struct ProductTables {
    const ProductTable& a;
    const ProductTable& b;
  };
  // Products of B whose own values nobody compared: where one took another algorithm than in A, or has no product of A
  // to take it from, what is computed from it may have other bits.
  void mark_unjudged_products(const ProductTables& products, Rank rank, IdSet<NodeId>& changed) const {
    IdSet<NodeId> as_in_a;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const bool has_product = !products.a.at(rank, groups_[i].whole).empty();
      if (judgements_[rank][i].skipped.empty() ||
          (has_product && !find_kernel_change(products.a, products.b, rank, groups_[i])))
        for (const NodeId value : groups_[i].values)
          if (value) as_in_a.insert(value);
    }
    for (const NodeId node : products.b.nodes(rank))
      if (!as_in_a.contains(node)) changed.insert(node);
  }

  // What the library's algorithms and regrouped sums are behind.
  void find_kernel_changes(const RunResult& run_a, const RunResult& run_b) {
    const ProductTable products_a(run_a), products_b(run_b);
    IdSet<NodeId> changed, sums;
    for (Rank rank = 0; rank < world_a_.size; ++rank) {
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        const GroupJudgement& judgement = judgements_[rank][i];
        if (!judgement.skipped.empty() || judgement.judgement.verdict == Verdict::kEqual) continue;
        const auto mark = [&](IdSet<NodeId>& roots) {
          for (const NodeId value : groups_[i].values)
            if (value) roots.insert(value);
        };
        if (judgement.judgement.is_sum) {
          mark(sums);
        } else if (auto change = find_kernel_change(products_a, products_b, rank, groups_[i])) {
          change->group = i;
          change->origin = a_.text(a_.step().nodes[groups_[i].whole].name);
          report_.kernel_changes.push_back(std::move(*change));
          mark(changed);
        }
      }
      mark_unjudged_products({products_a, products_b}, rank, changed);
    }
    behind_changes_ = find_reached(b_, changed);
    behind_sums_ = find_reached(b_, sums);
  }

  static constexpr std::string_view kNoBounds =
      "from a regrouped sum, whose bound is made in portable math only";

  Judgement explain(const Judgement& first, std::size_t group) const {
    const auto is_behind = [&](const Reached& reached) {
      return std::any_of(groups_[group].values.begin(), groups_[group].values.end(),
                         [&](NodeId value) { return value && reached.nodes.contains(value); });
    };
    if (is_behind(behind_changes_))
      return {Verdict::kLibraryKernel, "behind another algorithm of the library", first.is_sum};
    if (is_behind(behind_sums_)) return {Verdict::kUnverified, std::string(kNoBounds), first.is_sum};
    return first;
  }

  void explain_outputs(const RunResult& run_b, Rank rank) {
    const std::vector<bool> changes = find_reached_results(behind_changes_, run_b.ranks[rank]),
                            sums = find_reached_results(behind_sums_, run_b.ranks[rank]);
    for (std::size_t i = first_output_[rank]; i < report_.outputs.size(); ++i) {
      OutputCheck& output = report_.outputs[i];
      const std::size_t at = i - first_output_[rank];
      if (output.verdict != Verdict::kDiffers || !output.difference.problem.empty() || at >= changes.size())
        continue;
      if (changes[at])
        output.verdict = Verdict::kLibraryKernel;
      else if (sums[at])
        output.verdict = Verdict::kUnverified;
    }
  }

  void locate_first_change() {
    const KernelChange& change = report_.kernel_changes.front();
    const Group& group = groups_[change.group];
    report_.first_change = NodeCheck{change.rank,
                                     *std::find_if(group.values.begin(), group.values.end(),
                                                   [](NodeId value) { return static_cast<bool>(value); }),
                                     std::string(a_.text(a_.step().nodes[group.whole].name)),
                                     "the library took another algorithm", std::nullopt};
    locate(*report_.first_change, change.group);
  }

  // Of a value and its bound, of all ranks.
  std::size_t kept_bytes(const Watcher& seen, NodeId node) const {
    std::size_t bytes = 0;
    for (Rank rank = 0; rank < world_a_.size; ++rank) {
      const Seen& value = seen.at(rank, node);
      if (value.kind == Seen::Kind::kTensor)
        bytes += static_cast<std::size_t>(count_elements(value.sizes)) *
                 (static_cast<std::size_t>(info(value.dtype).bytes) + sizeof(float));
    }
    return bytes;
  }

  static bool needs_bound(const Judgement& judgement) {
    return judgement.verdict == Verdict::kDiffers ||
           (judgement.is_sum && judgement.verdict != Verdict::kEqual);
  }

  // The verdict in the end: where a regrouped sum is behind it, that of its bound.
  Judgement conclude(Rank rank, std::size_t group) const {
    const Judgement& first = judgements_[rank][group].judgement;
    if (is_native()) return needs_bound(first) ? explain(first, group) : first;
    if (!needs_bound(first) || !is_reached(groups_[group])) return first;
    const auto comparison = sums_.result(rank, group);
    if (!comparison)
      return {Verdict::kUnverified, "a regrouped sum whose parts cannot be put together", true};
    if (!comparison->is_within) return {Verdict::kDiffers, describe(*comparison), true};
    if (!comparison->is_bounded) return {Verdict::kUnverified, describe(*comparison), true};
    return {Verdict::kSumOrder, {}, true};
  }

  void count_nodes(Rank rank) {
    RankCheck counts;
    if (unpaired_ != 0) counts.skipped["made by the rewrite"] = unpaired_;
    const auto positions = find_positions(b_.step(), b_.step().order);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!judgements_[rank][i].skipped.empty()) {
        ++counts.skipped[judgements_[rank][i].skipped];
        continue;
      }
      const Judgement judgement = conclude(rank, i);
      if (judgement.verdict == Verdict::kDiffers && views_of_written_.contains(groups_[i].whole)) {
        ++counts.skipped["a view of memory that is written in place: its readers are compared"];
        continue;
      }
      ++counts.nodes[static_cast<std::size_t>(judgement.verdict)];
      if (judgement.verdict == Verdict::kUnverified) ++counts.unverified[judgement.reason];
      if (judgement.verdict != Verdict::kDiffers) continue;
      const NodeId node = groups_[i].values[0];
      if (report_.first && positions[report_.first->node] <= positions[node]) continue;
      report_.first = NodeCheck{rank, node, std::string(a_.text(a_.step().nodes[groups_[i].whole].name)),
                                judgement.reason, std::nullopt};
      first_group_ = i;
    }
    report_.ranks.push_back(std::move(counts));
  }

  // --- outputs ---

  void check_results(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b, Rank rank) {
    if (a.size() != b.size())
      throw InputError(fmt::format("the graphs return {} and {} tensors", a.size(), b.size()));
    first_output_.push_back(report_.outputs.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      OutputCheck output{rank, a[i].name, Verdict::kEqual, compare_tensors(a[i].tensor, b[i].tensor), {}};
      if (a[i].name != b[i].name)
        output.difference.problem = fmt::format("roles {} and {}", a[i].name, b[i].name);
      if (!output.difference.is_equal()) output.verdict = Verdict::kDiffers;
      report_.outputs.push_back(std::move(output));
    }
  }

  // Outputs that differ but come from regrouped sums: within their bounds?
  void check_sums(const Run& a, const Run& b, Rank rank) {
    ErrorBounds& bounds_a = *a.run.ranks[rank].bounds;
    ErrorBounds& bounds_b = *b.run.ranks[rank].bounds;
    for (const ErrorBounds* bounds : {&bounds_a, &bounds_b})
      report_.ops_without_bound.insert(bounds->without_bound().begin(), bounds->without_bound().end());
    for (std::size_t i = 0; i < a.results[rank].size(); ++i) {
      OutputCheck& output = report_.outputs[first_output_[rank] + i];
      const Tensor &in_a = a.results[rank][i].tensor, &in_b = b.results[rank][i].tensor;
      if (output.verdict != Verdict::kDiffers || !output.difference.problem.empty()) continue;
      if (!bounds_a.find(in_a) && !bounds_b.find(in_b)) continue;
      output.bound = compare_bounded(take_bounded(in_a, bounds_a), {take_bounded(in_b, bounds_b)});
      if (!output.bound->is_within) continue;
      output.verdict = output.bound->is_bounded ? Verdict::kSumOrder : Verdict::kUnverified;
    }
  }

  // --- the reference ---

  void check_reference(const Results& a, const Results& b) {
    const World world = derive_world(*setup_.reference, setup_.ranks);
    if (world.size != world_a_.size)
      throw UsageError(
          fmt::format("the reference is of {} ranks, the graphs are of {}", world.size, world_a_.size));
    const Run run_c = run(*setup_.reference, world, setup_.options);
    ReferenceCheck found;
    for (Rank rank = 0; rank < world.size; ++rank) {
      const std::vector<NamedTensor>& c = run_c.results[rank];
      if (c.size() != a[rank].size())
        throw InputError(
            fmt::format("the reference returns {} tensors, the graphs return {}", c.size(), a[rank].size()));
      for (std::size_t i = 0; i < c.size(); ++i, ++found.outputs) {
        if (c[i].name != a[rank][i].name)
          throw InputError(fmt::format("output {} of the reference is {}, of the graphs it is {}", i,
                                       c[i].name, a[rank][i].name));
        const TensorDifference to_a = compare_tensors(a[rank][i].tensor, c[i].tensor);
        const TensorDifference to_b = compare_tensors(b[rank][i].tensor, c[i].tensor);
        found.equal_to_a += to_a.is_equal() ? 1U : 0U;
        found.equal_to_b += to_b.is_equal() ? 1U : 0U;
        found.largest_error = std::max(found.largest_error, to_a.relative_error);
        found.largest_error_of_b = std::max(
            found.largest_error_of_b, compare_tensors(a[rank][i].tensor, b[rank][i].tensor).relative_error);
        if (!to_b.is_equal() && found.first_unlike_b.empty())
          found.first_unlike_b = fmt::format("rank {}: {}: {}", rank, c[i].name, describe(to_b));
      }
    }
    report_.reference = std::move(found);
  }

  // --- the first node that differs ---

  // Runs both graphs once more for the values of one group: where they differ, and in which part.
  void locate(NodeCheck& found, std::size_t in_group) {
    const Group& group = groups_[in_group];
    HostMemory memory;
    std::vector<Tensor> whole(1), values(group.values.size());
    const auto capture = [&](const std::vector<NodeId>& nodes, std::vector<Tensor>& to, Device* device) {
      RunOptions options = setup_.options;
      options.device = device;
      options.observer = [&, nodes](Rank rank, NodeId node, const Value& value) {
        const auto at = std::find(nodes.begin(), nodes.end(), node);
        if (rank == found.rank && at != nodes.end() && value.is_tensor())
          to[static_cast<std::size_t>(at - nodes.begin())] = copy_tensor(value.tensor(), memory);
      };
      return options;
    };
    run(a_, world_a_, capture({group.whole}, whole, setup_.device_a));
    run(b_, world_b_, capture(group.values, values, setup_.device_b));
    if (whole[0].storage == nullptr) return;
    for (const Tensor& value : values)
      if (value.storage == nullptr || value.dtype != whole[0].dtype) return;
    found.difference = compare_tensors(whole[0], join(whole[0], values, memory));
    found.node = group.values[find_part(whole[0], values, found.difference->index)];
  }

  // The part that holds an element of the whole; the first one where the parts are no pieces.
  static std::size_t find_part(const Tensor& whole, const std::vector<Tensor>& values, std::int64_t element) {
    std::vector<Extents> sizes;
    for (const Tensor& value : values) sizes.push_back(value.sizes);
    const auto dim = find_cut(whole.sizes, sizes);
    if (!dim || element < 0) return 0;
    const std::int64_t inner = contiguous_strides(whole.sizes)[*dim];
    std::int64_t rest = element / inner % whole.sizes[*dim];
    for (std::size_t part = 0; part < values.size(); ++part) {
      if (rest < values[part].sizes[*dim]) return part;
      rest -= values[part].sizes[*dim];
    }
    return 0;
  }

  // The parts laid end to end; the last one where they are no pieces.
  static Tensor join(const Tensor& whole, const std::vector<Tensor>& values, Memory& memory) {
    std::vector<Extents> sizes;
    for (const Tensor& value : values) sizes.push_back(value.sizes);
    const auto dim = find_cut(whole.sizes, sizes);
    if (!dim) return values.back();
    Tensor joined = make_tensor(memory, whole.dtype, whole.sizes);
    std::int64_t first = 0;
    for (const Tensor& value : values) {
      scatter_elements(value.bytes(), cut_range(joined, *dim, first, value.sizes[*dim]));
      first += value.sizes[*dim];
    }
    return joined;
  }

  const Graph& a_;
  const Graph& b_;
  const CheckSetup& setup_;
  World world_a_, world_b_;
  std::uint64_t unpaired_ = 0;
  std::vector<Group> groups_;
  SumChecker sums_;
  bool has_sums_ = false;  // some sum was regrouped
  BoundedNodes bounded_a_, bounded_b_;
  Reached behind_changes_, behind_sums_;                 // of B, in native math
  std::vector<std::vector<GroupJudgement>> judgements_;  // by rank, by group
  std::vector<std::size_t> first_output_;                // by rank, in report_.outputs
  std::size_t first_group_ = 0;
  IdSet<NodeId> views_of_written_;  // of A
  std::map<const Graph*, int> runs_;
  CheckReport report_;
};

}  // namespace

CheckReport::Conclusion CheckReport::conclusion() const {
  const auto has = [&](Verdict verdict) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [=](const OutputCheck& output) { return output.verdict == verdict; });
  };
  if (first || has(Verdict::kDiffers)) return Conclusion::kDifferent;
  if (!baseline_is_deterministic || !devices_agree || !step_is_finite || has(Verdict::kUnverified) ||
      has(Verdict::kLibraryKernel))
    return Conclusion::kNotVerified;
  return Conclusion::kSame;
}

std::string_view name_of(CheckReport::Conclusion conclusion) {
  constexpr std::string_view kNames[] = {"same", "not verified", "different"};
  return kNames[static_cast<std::size_t>(conclusion)];
}

std::vector<NamedTensor> list_results(const Graph& graph, const RankResult& result,
                                      const RankInputs& inputs) {
  std::vector<NamedTensor> results;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    if (!result.outputs[i].is_tensor()) continue;
    std::string name = fmt::format("output {}", i);
    if (i < graph.outputs.size() && graph.outputs[i].role) {
      name = graph.text(graph.outputs[i].role);
      if (graph.outputs[i].fqn) name += fmt::format(" {}", graph.text(graph.outputs[i].fqn));
    }
    results.push_back({std::move(name), result.outputs[i].tensor()});
  }
  for (std::size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i)
    if (inputs[i].is_tensor() && graph.text(graph.inputs[i].role) == "buffer")
      results.push_back({fmt::format("buffer {}", graph.text(graph.inputs[i].fqn)), inputs[i].tensor()});
  return results;
}

CheckReport check_graphs(const Graph& a, const Graph& b, const CheckSetup& setup) {
  return Checker(a, b, setup).check();
}

}  // namespace epweave::replay
