#include "replay/check/library_changes.h"

#include <algorithm>

#include "replay/check/output_check.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

constexpr std::string_view kNoBounds = "from a regrouped sum, whose bound is made in portable math only";

std::vector<std::int64_t> list_numbers(const std::set<NodeId>& nodes) {
  std::vector<std::int64_t> numbers;
  for (NodeId node : nodes) numbers.push_back(node.index());
  return numbers;
}

void add_nodes(std::set<NodeId>& nodes, const std::vector<std::int64_t>& numbers) {
  for (std::int64_t number : numbers) nodes.insert(NodeId(static_cast<std::uint32_t>(number)));
}

void add_values(std::set<NodeId>& nodes, const Group& group) {
  for (NodeId value : group.values)
    if (value) nodes.insert(value);
}

Reached find_behind(const Graph& graph, const std::set<NodeId>& nodes) {
  IdSet<NodeId> roots;
  for (NodeId node : nodes) roots.insert(node);
  return find_reached(graph, roots);
}

}  // namespace

std::vector<KernelChange> LibraryChanges::find(const Products& products, const Judgements& judgements,
                                               Rank rank) {
  std::vector<KernelChange> changes;
  for (std::size_t i = 0; i < graphs_.groups.size(); ++i) {
    const Group& group = graphs_.groups[i];
    const GroupJudgement& judgement = judgements[i];
    if (!judgement.skipped.empty() || judgement.judgement.verdict == Verdict::kEqual) continue;
    if (judgement.judgement.is_sum) {
      add_values(sums_, group);
    } else if (auto change = find_kernel_change(products.a, products.b, rank, group)) {
      change->group = i;
      change->origin = graphs_.a.text(graphs_.a.step().nodes[group.whole].name);
      changes.push_back(std::move(*change));
      add_values(changed_, group);
    }
  }
  mark_unjudged(products, judgements, rank);
  return changes;
}

// Products of B whose own values nobody compared: where one took another algorithm than in A, or
// has no product of A to take it from, what is computed from it may have other bits.
void LibraryChanges::mark_unjudged(const Products& products, const Judgements& judgements, Rank rank) {
  std::set<NodeId> as_in_a;
  for (std::size_t i = 0; i < graphs_.groups.size(); ++i) {
    const Group& group = graphs_.groups[i];
    const bool has_product = !products.a.at(rank, group.whole).empty();
    if (judgements[i].skipped.empty() ||
        (has_product && !find_kernel_change(products.a, products.b, rank, group)))
      add_values(as_in_a, group);
  }
  for (const NodeId node : products.b.nodes(rank))
    if (!as_in_a.contains(node)) changed_.insert(node);
}

std::string LibraryChanges::encode() const {
  return Writer().numbers(list_numbers(changed_)).numbers(list_numbers(sums_)).take();
}

void LibraryChanges::add_process(std::string_view text) {
  Reader reader(text);
  add_nodes(changed_, reader.numbers());
  add_nodes(sums_, reader.numbers());
}

void LibraryChanges::look_behind() {
  behind_changes_ = find_behind(graphs_.b, changed_);
  behind_sums_ = find_behind(graphs_.b, sums_);
}

Judgement LibraryChanges::explain(const Judgement& first, const Group& group) const {
  const auto is_behind = [&](const Reached& reached) {
    return std::any_of(group.values.begin(), group.values.end(),
                       [&](NodeId value) { return value && reached.nodes.contains(value); });
  };
  if (is_behind(behind_changes_))
    return {Verdict::kLibraryKernel, "behind another algorithm of the library", first.is_sum};
  if (is_behind(behind_sums_)) return {Verdict::kUnverified, std::string(kNoBounds), first.is_sum};
  return first;
}

void LibraryChanges::explain_outputs(const RankResult& result_b, const std::vector<bool>& written,
                                     std::vector<OutputCheck>& outputs) const {
  const std::vector<bool> changes = find_reached_results(behind_changes_, result_b, written),
                          sums = find_reached_results(behind_sums_, result_b, written);
  for (std::size_t i = 0; i < outputs.size() && i < changes.size(); ++i) {
    OutputCheck& output = outputs[i];
    if (output.verdict != Verdict::kDiffers || !output.difference.problem.empty()) continue;
    if (changes[i])
      output.verdict = Verdict::kLibraryKernel;
    else if (sums[i])
      output.verdict = Verdict::kUnverified;
  }
}

}  // namespace epweave::replay
