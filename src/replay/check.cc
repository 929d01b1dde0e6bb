#include "replay/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/op.h"
#include "replay/evaluate.h"
#include "replay/inputs.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kKeptElements = 4096;

// What is remembered of a value.
struct Seen {
  enum class Kind : std::uint8_t { kNothing, kNumber, kTensor } kind = Kind::kNothing;
  double number = 0;
  DType dtype = DType::kFloat32;
  Extents sizes;
  std::uint64_t hash = 0;
  std::vector<std::vector<std::uint64_t>> slices;  // by dimension, where parts are compared
  std::vector<double> numbers;                     // of a small tensor of real numbers
};

using SeenNodes = std::vector<std::vector<Seen>>;  // by rank, by node

// How a node of B stands for a node of A.
struct Counterpart {
  StringId origin;
  std::uint32_t part = 0, parts = 0;  // parts 0: all of it
  bool is_piece = false;              // cut off the whole, not made by a copy of its code
};

std::optional<Counterpart> find_counterpart(const Node& node) {
  if (node.provenance.empty()) return Counterpart{node.name, 0, 0};
  if (node.provenance.back().origins.size() != 1) return std::nullopt;
  Counterpart counterpart{node.provenance.back().origins[0], 0, 0};
  for (const Provenance& record : node.provenance) {
    if (record.role == ProvenanceRole::kMaterialize) return Counterpart{counterpart.origin, 0, 0};
    if (record.role == ProvenanceRole::kSize || record.role == ProvenanceRole::kAdded) return std::nullopt;
    if (record.parts != 0) {
      counterpart.part = record.part;
      counterpart.parts = record.parts;
      counterpart.is_piece =
          record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput;
    } else if (record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput) {
      return std::nullopt;
    }
  }
  return counterpart;
}

// Whether the op makes memory that nobody has written yet: its bits mean nothing.
bool is_uninitialised(const Node& node) {
  return node.op != nullptr &&
         (node.op->target.starts_with("aten.empty") || node.op->target.starts_with("aten.new_empty"));
}

// B's nodes that stand for one node of A.
struct Group {
  NodeId whole;                // of A
  std::vector<NodeId> values;  // of B: one, or one per part
  bool is_parts = false;
  bool is_written = false;  // the op writes an argument: each part goes on from the one before
};

std::vector<Group> pair_nodes(const Graph& a, const Graph& b, std::uint64_t& unpaired) {
  std::unordered_map<std::string_view, NodeId> by_name;
  for (NodeId id : a.step().order) by_name[a.text(a.step().nodes[id].name)] = id;
  std::vector<Group> groups;
  // A value may be cut again elsewhere, and a sum of parts is cut into pieces: those are other groups.
  std::map<std::tuple<NodeId, StringId, bool>, std::size_t> part_groups;
  for (NodeId id : b.step().order) {
    const Node& node = b.step().nodes[id];
    if (node.kind == NodeKind::kOutput) continue;
    const auto counterpart = find_counterpart(node);
    const auto origin = counterpart ? by_name.find(b.text(counterpart->origin)) : by_name.end();
    if (origin == by_name.end()) {
      ++unpaired;
      continue;
    }
    if (counterpart->parts == 0) {
      groups.push_back({origin->second, {id}, false, false});
      continue;
    }
    const auto [at, is_new] =
        part_groups.try_emplace({origin->second, node.target, counterpart->is_piece}, groups.size());
    if (is_new)
      groups.push_back({origin->second, std::vector<NodeId>(counterpart->parts), true,
                        node.op != nullptr && node.op->writes});
    Group& group = groups[at->second];
    if (counterpart->part < group.values.size()) group.values[counterpart->part] = id;
  }
  return groups;
}

class Watcher {
 public:
  Watcher(const Graph& graph, Rank ranks) : sliced_(graph.step().nodes.size(), false) {
    seen_.assign(ranks, std::vector<Seen>(graph.step().nodes.size()));
  }
  void slice(NodeId node) { sliced_[node.index()] = true; }

  void see(Rank rank, NodeId node, const Value& value) {
    Seen& seen = seen_[rank][node.index()];
    if (value.is_number()) {
      seen.kind = Seen::Kind::kNumber;
      seen.number = value.real();
    } else if (value.is_tensor()) {
      see_tensor(seen, value.tensor(), sliced_[node.index()]);
    }
  }
  const Seen& at(Rank rank, NodeId node) const { return seen_[rank][node.index()]; }

 private:
  static void see_tensor(Seen& seen, const Tensor& tensor, bool with_slices) {
    seen.kind = Seen::Kind::kTensor;
    seen.dtype = tensor.dtype;
    seen.sizes = tensor.sizes;
    seen.hash = hash_tensor(tensor);
    if (!with_slices) return;
    for (std::size_t d = 0; d < tensor.rank(); ++d) seen.slices.push_back(hash_slices(tensor, d));
    if (tensor.numel() > kKeptElements || is_complex(tensor.dtype)) return;
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes());
    gather_elements(tensor, bytes.data());
    for (std::size_t at = 0; at < bytes.size(); at += tensor.element_bytes())
      seen.numbers.push_back(load_number(bytes.data() + at, tensor.dtype));
  }

  SeenNodes seen_;
  std::vector<bool> sliced_;
};

struct Judgement {
  Verdict verdict = Verdict::kEqual;
  std::string reason;
  bool is_sum = false;  // a regrouped sum: what follows from it may differ in its last bits
};

Judgement judge_numbers(const Seen& whole, const std::vector<const Seen*>& parts) {
  double sum = 0;
  bool each = true;
  for (const Seen* part : parts) {
    sum += part->number;
    each = each && part->number == whole.number;
  }
  if (each || sum == whole.number) return {};
  return {Verdict::kUnverified, "numbers that are neither equal nor add up", false};
}

bool add_up(const Seen& whole, const std::vector<const Seen*>& parts) {
  if (whole.numbers.empty()) return false;
  for (std::size_t i = 0; i < whole.numbers.size(); ++i) {
    double sum = 0;
    for (const Seen* part : parts) {
      if (part->numbers.size() != whole.numbers.size()) return false;
      sum += part->numbers[i];
    }
    if (sum != whole.numbers[i]) return false;
  }
  return true;
}

// The dimension along which the parts together have the whole's extent, all others being the same; none
// otherwise.
std::optional<std::size_t> find_cut(const Seen& whole, const std::vector<const Seen*>& parts) {
  std::optional<std::size_t> cut;
  for (std::size_t d = 0; d < whole.sizes.size(); ++d) {
    std::int64_t total = 0;
    bool same = true;
    for (const Seen* part : parts) {
      if (part->sizes.size() != whole.sizes.size()) return std::nullopt;
      total += part->sizes[d];
      same = same && part->sizes[d] == whole.sizes[d];
    }
    if (same) continue;
    if (cut || total != whole.sizes[d]) return std::nullopt;
    cut = d;
  }
  return cut;
}

Judgement judge_parts(const Seen& whole, const std::vector<const Seen*>& parts, bool is_written) {
  const auto same_bits = [&](const Seen* part) { return part->hash == whole.hash; };
  if (std::all_of(parts.begin(), parts.end(), [&](const Seen* part) { return part->sizes == whole.sizes; })) {
    if (std::all_of(parts.begin(), parts.end(), same_bits) || add_up(whole, parts)) return {};
    if (is_written && same_bits(parts.back())) return {};
    const bool is_real = is_floating(whole.dtype) || is_complex(whole.dtype);
    return {Verdict::kUnverified, "a sum of parts", is_real};
  }
  const auto cut = find_cut(whole, parts);
  if (!cut) return {Verdict::kUnverified, "the parts' shapes do not make up the whole's", false};
  std::vector<std::uint64_t> joined;
  for (const Seen* part : parts)
    joined.insert(joined.end(), part->slices[*cut].begin(), part->slices[*cut].end());
  std::vector<std::uint64_t> rows = whole.slices[*cut];
  if (joined == rows) return {};
  const auto at = std::mismatch(joined.begin(), joined.end(), rows.begin()).first - joined.begin();
  std::sort(joined.begin(), joined.end());
  std::sort(rows.begin(), rows.end());
  if (joined == rows) return {Verdict::kReordered, "", false};
  if (!is_floating(whole.dtype) && !is_complex(whole.dtype))
    return {Verdict::kUnverified, "integers that may count the rows of a part", false};
  return {Verdict::kDiffers,
          fmt::format("the parts laid end to end differ first at index {} of dimension {}", at, *cut), false};
}

Judgement judge(const Seen& whole, const std::vector<const Seen*>& values, const Group& group) {
  for (const Seen* value : values) {
    if (value->kind != whole.kind) return {Verdict::kDiffers, "a tensor and a number", false};
    if (whole.kind == Seen::Kind::kTensor && value->dtype != whole.dtype)
      return {Verdict::kDiffers, "the dtypes differ", false};
  }
  if (whole.kind == Seen::Kind::kNumber) return judge_numbers(whole, values);
  if (group.is_parts) return judge_parts(whole, values, group.is_written);
  if (values[0]->hash == whole.hash) return {};
  if (values[0]->sizes != whole.sizes) return {Verdict::kUnverified, "another shape", false};
  return {Verdict::kDiffers, "the bits differ", false};
}

class Checker {
 public:
  Checker(const Graph& a, const Graph& b, const KernelTable& kernels, std::uint64_t seed,
          const RunOptions& options)
      : a_(a), b_(b), kernels_(kernels), seed_(seed), options_(options) {}

  CheckReport check(const World& world_a, const World& world_b) {
    if (world_a.size != world_b.size)
      throw UsageError(fmt::format("the graphs are of {} and {} ranks", world_a.size, world_b.size));
    const std::vector<Group> groups = pair_nodes(a_, b_, unpaired_);
    Watcher seen_a(a_, world_a.size), seen_b(b_, world_b.size);
    for (const Group& group : groups) {
      if (!group.is_parts) continue;
      seen_a.slice(group.whole);
      for (NodeId value : group.values)
        if (value) seen_b.slice(value);
    }
    const auto baseline = run(a_, world_a, nullptr).results;
    Run run_a = run(a_, world_a, &seen_a);
    Run run_b = run(b_, world_b, &seen_b);
    report_.baseline_is_deterministic = same_bits(baseline, run_a.results);
    report_.skipped = unpaired_ * world_a.size;
    for (Rank rank = 0; rank < world_a.size; ++rank) {
      const IdSet<NodeId> from_sums = check_nodes(rank, groups, seen_a, seen_b);
      check_results(rank, run_a.results[rank], run_b.results[rank], from_sums);
    }
    report_.run_a = std::move(run_a.run);
    report_.run_b = std::move(run_b.run);
    return std::move(report_);
  }

 private:
  using Results = std::vector<std::vector<NamedTensor>>;  // by rank
  struct Run {
    RunResult run;
    Results results;
  };

  Run run(const Graph& graph, const World& world, Watcher* watcher) {
    RunOptions options = options_;
    if (watcher != nullptr)
      options.observer = [watcher](Rank rank, NodeId node, const Value& value) {
        watcher->see(rank, node, value);
      };
    const std::vector<RankInputs> inputs = make_inputs(graph, world, kernels_, seed_);
    Run result{run_ranks(graph, world, kernels_, inputs, options), {}};
    for (Rank rank = 0; rank < world.size; ++rank)
      result.results.push_back(list_results(graph, result.run.ranks[rank], inputs[rank]));
    return result;
  }

  static bool same_bits(const Results& a, const Results& b) {
    for (std::size_t rank = 0; rank < a.size(); ++rank)
      for (std::size_t i = 0; i < a[rank].size(); ++i)
        if (!compare_tensors(a[rank][i].tensor, b[rank][i].tensor).is_equal()) return false;
    return true;
  }

  // Judges every group; gives the nodes of B that a regrouped sum reaches.
  IdSet<NodeId> check_nodes(Rank rank, const std::vector<Group>& groups, const Watcher& seen_a,
                            const Watcher& seen_b) {
    std::vector<Judgement> judgements;
    IdSet<NodeId> from_sums;
    for (const Group& group : groups) {
      Judgement judgement;
      std::vector<const Seen*> values;
      const Seen& whole = seen_a.at(rank, group.whole);
      bool is_complete = whole.kind != Seen::Kind::kNothing;
      for (NodeId value : group.values) {
        is_complete = is_complete && value && seen_b.at(rank, value).kind != Seen::Kind::kNothing;
        if (is_complete) values.push_back(&seen_b.at(rank, value));
      }
      if (is_complete && is_uninitialised(a_.step().nodes[group.whole])) {
        judgement = {Verdict::kUnverified, "memory that is not written yet", false};
      } else if (is_complete) {
        judgement = judge(whole, values, group);
      } else {
        judgement.reason = "skipped";
      }
      if (judgement.is_sum)
        for (NodeId value : group.values) from_sums.insert(value);
      judgements.push_back(std::move(judgement));
    }
    spread(from_sums);
    const auto positions = find_positions(b_.step(), b_.step().order);
    for (std::size_t i = 0; i < groups.size(); ++i)
      count(rank, groups[i], judgements[i], from_sums, positions);
    return from_sums;
  }

  // Adds what is computed from these values, through storage too.
  void spread(IdSet<NodeId>& nodes) const {
    const NodeLists inputs = list_inputs(*b_.context, b_.step());
    const Effects effects(*b_.context, b_.step());
    IdSet<NodeId> storages;
    for (NodeId id : b_.step().order) {
      for (NodeId input : inputs[id])
        if (nodes.contains(input) || storages.contains(effects.storage_of(input))) nodes.insert(id);
      if (!nodes.contains(id)) continue;
      for (const StorageAccess& access : effects.accesses_of(id))
        if (access.writes) storages.insert(access.storage);
    }
  }

  void count(Rank rank, const Group& group, Judgement& judgement, const IdSet<NodeId>& from_sums,
             const IdVector<NodeId, std::uint32_t>& positions) {
    if (judgement.reason == "skipped") {
      ++report_.skipped;
      return;
    }
    const auto reached = [&](NodeId value) { return value && from_sums.contains(value); };
    if (judgement.verdict == Verdict::kDiffers &&
        std::any_of(group.values.begin(), group.values.end(), reached))
      judgement.verdict = Verdict::kSumOrder;
    ++report_.nodes[static_cast<std::size_t>(judgement.verdict)];
    if (judgement.verdict != Verdict::kDiffers) return;
    const NodeId node = group.values[0];
    if (report_.first && positions[report_.first->node] <= positions[node]) return;
    report_.first =
        NodeCheck{rank, node, std::string(a_.text(a_.step().nodes[group.whole].name)), judgement.reason};
  }

  void check_results(Rank rank, const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b,
                     const IdSet<NodeId>& from_sums) {
    if (a.size() != b.size())
      throw InputError(fmt::format("the graphs return {} and {} tensors", a.size(), b.size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
      OutputCheck output{rank, a[i].name, Verdict::kEqual, compare_tensors(a[i].tensor, b[i].tensor)};
      if (a[i].name != b[i].name)
        output.difference.problem = fmt::format("roles {} and {}", a[i].name, b[i].name);
      if (!output.difference.is_equal()) {
        const bool is_sum = output.difference.problem.empty() && b[i].node && from_sums.contains(b[i].node);
        output.verdict = is_sum ? Verdict::kSumOrder : Verdict::kDiffers;
        if (is_sum) {
          const double error = output.difference.relative_error;
          // NaN counts as the largest.
          if (!(error <= report_.largest_sum_error)) report_.largest_sum_error = error;
        }
      }
      report_.outputs.push_back(std::move(output));
    }
  }

  const Graph& a_;
  const Graph& b_;
  const KernelTable& kernels_;
  std::uint64_t seed_;
  RunOptions options_;
  std::uint64_t unpaired_ = 0;
  CheckReport report_;
};

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"equal", "reordered", "sum-order", "unverified", "differs"};
  return kNames[static_cast<std::size_t>(verdict)];
}

bool CheckReport::is_same(double sum_bound) const {
  if (!baseline_is_deterministic || first) return false;
  if (!(largest_sum_error <= sum_bound)) return false;
  return std::none_of(outputs.begin(), outputs.end(),
                      [](const OutputCheck& output) { return output.verdict == Verdict::kDiffers; });
}

std::vector<NamedTensor> list_results(const Graph& graph, const RankResult& result,
                                      const RankInputs& inputs) {
  std::vector<NamedTensor> results;
  std::vector<NodeId> returned;
  for (NodeId id : graph.step().order)
    if (graph.step().nodes[id].kind == NodeKind::kOutput)
      graph.context->args.for_each_node(graph.step().nodes[id].args,
                                        [&](NodeId node) { returned.push_back(node); });
  std::size_t next_node = 0;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    if (result.outputs[i].is_none()) continue;
    const NodeId node = next_node < returned.size() ? returned[next_node++] : NodeId();
    if (!result.outputs[i].is_tensor()) continue;
    std::string name = fmt::format("output {}", i);
    if (i < graph.outputs.size() && graph.outputs[i].role) {
      name = graph.text(graph.outputs[i].role);
      if (graph.outputs[i].fqn) name += fmt::format(" {}", graph.text(graph.outputs[i].fqn));
    }
    results.push_back({std::move(name), result.outputs[i].tensor(), node});
  }
  for (std::size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i)
    if (inputs[i].is_tensor() && graph.text(graph.inputs[i].role) == "buffer")
      results.push_back(
          {fmt::format("buffer {}", graph.text(graph.inputs[i].fqn)), inputs[i].tensor(), NodeId()});
  return results;
}

CheckReport check_graphs(const Graph& a, const Graph& b, const KernelTable& kernels, std::uint32_t ranks,
                         std::uint64_t seed, const RunOptions& options) {
  return Checker(a, b, kernels, seed, options).check(derive_world(a, ranks), derive_world(b, ranks));
}

}  // namespace epweave::replay
