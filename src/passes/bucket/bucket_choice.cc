#include "passes/bucket/bucket_choice.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "cost/measured_costs.h"
#include "cost/prices.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/bucket/trial_merges.h"

namespace epweave {
namespace {

class Chooser {
 public:
  Chooser(const Graph& graph, const StepModel& model, std::span<const Mergeable> collectives,
          std::span<const BucketScope> scopes, std::int64_t budget, const MeasuredCosts* measured)
      : graph_(graph),
        model_(model),
        measured_(measured),
        collectives_(collectives),
        places_(graph.step().nodes.size(), kNoPlace),
        scale_(model.cluster.compute_scale),
        bandwidth_(model.cluster.hbm * model.cluster.hbm_eff),
        kernel_(model.cluster.kernel_us * 1e-6 * scale_) {
    for (Place i = 0; i < model.size(); ++i) places_[model.nodes[i]] = i;
    for (std::size_t i = 0; i < collectives.size(); ++i) add_candidate(i);
    sort_kinds();
    trial_.emplace(model, terms_, BucketKernels{.pack = kernel_, .cut_gather = kernel_}, budget);
    make_scopes(scopes);
  }

  std::vector<std::vector<std::size_t>> run() {
    std::vector<std::vector<std::size_t>> sets;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
      std::vector<TrialMerges::BucketId> buckets = merge_scopes(k);
      while (merge_neighbours(buckets)) {
      }
      for (TrialMerges::BucketId bucket : buckets) {
        const auto members = trial_->members(bucket);
        if (members.size() < 2) continue;
        std::vector<std::size_t>& set = sets.emplace_back();
        for (std::uint32_t member : members) set.push_back(candidates_[member]);
      }
    }
    return sets;
  }

 private:
  using BucketId = TrialMerges::BucketId;

  double copy_seconds(std::int64_t bytes) const { return static_cast<double>(bytes) / bandwidth_ * scale_; }
  std::int64_t bytes_of(NodeId value) const {
    const TensorType& type = *tensor_of(*graph_.context, graph_.step().nodes[value].type);
    std::int64_t bytes = info(type.dtype).bytes;
    for (ExprId size : type.sizes) bytes *= *graph_.context->exprs.constant(size);
    return bytes;
  }

  // What two like it save as one: by the model, or by what was measured of it and of twice the
  // bytes.
  double find_latency(Place launch) const {
    const Node& node = graph_.step().nodes[model_.nodes[launch]];
    const StepGroup& group = model_.step_groups[model_.groups[launch]];
    double latency = collective_seconds(model_.cluster, node.op->family, 0, group);
    const Arg sent = arg_of(*graph_.context, node, 0);
    if (measured_ != nullptr && sent.is_node()) {
      const std::int64_t bytes = bytes_of(sent.as_node());
      const std::string_view op = graph_.context->text(node.target);
      const auto one = measured_->find_collective(op, group.ranks, bytes);
      const auto two = measured_->find_collective(op, group.ranks, 2 * bytes);
      if (one && two)
        latency = std::max(latency, (2 * one->seconds - two->seconds) * model_.cluster.comm_scale);
    }
    return std::min(latency, model_.seconds[launch]);
  }

  // Those that can pay in any company: what is saved at best is more than the copies.
  void add_candidate(std::size_t index) {
    const Mergeable& m = collectives_[index];
    MergeTerms terms{.kind = m.kind,
                     .launch = places_[m.launch],
                     .wait = places_[m.wait],
                     .operand = places_[m.operand],
                     .cast = m.cast ? places_[m.cast] : kNoPlace};
    if (!model_.is_costed_launch(terms.launch)) return;
    const std::int64_t sent = bytes_of(m.operand), received = bytes_of(m.launch);
    terms.latency = find_latency(terms.launch);
    for (std::uint32_t storage : model_.storages[terms.operand])
      if (model_.storage_lives[storage] != StorageLife::kInput) terms.held += model_.storage_bytes[storage];
    double saved = terms.latency;
    if (m.kind == MergeKind::kAllGather) {
      terms.bytes = received;
      terms.pack = copy_seconds(sent + std::min(sent, received / m.ranks));
      terms.cut = copy_seconds(2 * received);
      if (m.cast) saved += model_.seconds[terms.cast];
    } else {
      terms.bytes = sent;
      terms.pack = copy_seconds(2 * sent);
    }
    if (terms.pack + terms.cut >= saved) return;
    candidates_.push_back(index);
    terms_.push_back(terms);
  }

  bool is_backward(std::size_t candidate) const {
    return graph_.step().nodes[collectives_[candidates_[candidate]].launch].is_backward();
  }
  // The same kinds, in the order of the first of each.
  void sort_kinds() {
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
      const auto kind = std::ranges::find_if(kinds_, [&](const std::vector<BucketId>& other) {
        return can_merge(collectives_[candidates_[other.front()]], collectives_[candidates_[i]]) &&
               is_backward(other.front()) == is_backward(i);
      });
      kind_of_.push_back(static_cast<std::uint32_t>(kind - kinds_.begin()));
      (kind != kinds_.end() ? *kind : kinds_.emplace_back()).push_back(i);
    }
  }

  // Of each kind the candidates of one block.
  void make_scopes(std::span<const BucketScope> scopes) {
    std::vector<BucketId> candidate_of(collectives_.size(), ~BucketId{0});
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) candidate_of[candidates_[i]] = i;
    blocks_.resize(kinds_.size());
    for (const BucketScope& scope : scopes) {
      std::map<std::uint32_t, std::vector<BucketId>> by_kind;
      for (std::size_t collective : scope.collectives)
        if (const BucketId id = candidate_of[collective]; id != ~BucketId{0} && !trial_->is_bound(id))
          by_kind[kind_of_[id]].push_back(id);
      for (auto& [kind, block] : by_kind)
        if (block.size() > 1) blocks_[kind].push_back(std::move(block));
    }
  }

  void sort(std::vector<BucketId>& ids) const {
    std::ranges::sort(ids, [&](BucketId a, BucketId b) { return trial_->begins_before(a, b); });
  }

  std::vector<BucketId> merge_scopes(std::size_t kind) {
    std::vector<std::vector<BucketId>>& blocks = blocks_[kind];
    for (std::vector<BucketId>& block : blocks) sort(block);
    std::ranges::sort(
        blocks, [&](const auto& a, const auto& b) { return trial_->begins_before(a.front(), b.front()); });
    std::vector<bool> is_merged(candidates_.size());
    std::vector<BucketId> buckets;
    trial_->rewind();
    for (const std::vector<BucketId>& block : blocks) {
      const auto made = trial_->try_merge(block);
      if (!made) continue;
      buckets.push_back(*made);
      for (BucketId id : block) is_merged[id] = true;
    }
    for (BucketId id : kinds_[kind])
      if (!is_merged[id]) buckets.push_back(id);
    return buckets;
  }

  // Two by two, in the order of the step. Whether anything was merged.
  bool merge_neighbours(std::vector<BucketId>& buckets) {
    sort(buckets);
    trial_->rewind();
    std::vector<BucketId> after;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      std::optional<BucketId> made;
      if (i + 1 < buckets.size()) made = trial_->try_merge(std::array{buckets[i], buckets[i + 1]});
      after.push_back(made.value_or(buckets[i]));
      if (made) ++i;
    }
    const bool has_merged = after.size() < buckets.size();
    buckets = std::move(after);
    return has_merged;
  }

  const Graph& graph_;
  const StepModel& model_;
  const MeasuredCosts* measured_;
  std::span<const Mergeable> collectives_;
  IdVector<NodeId, Place> places_;
  double scale_, bandwidth_, kernel_;
  std::vector<std::size_t> candidates_;  // indices of collectives
  std::vector<MergeTerms> terms_;        // of candidates
  std::vector<std::uint32_t> kind_of_;
  std::vector<std::vector<BucketId>> kinds_;                // of each its candidates
  std::vector<std::vector<std::vector<BucketId>>> blocks_;  // by kind
  std::optional<TrialMerges> trial_;
};

}  // namespace

std::vector<std::vector<std::size_t>> choose_buckets(const Graph& graph, const StepModel& model,
                                                     std::span<const Mergeable> collectives,
                                                     std::span<const BucketScope> scopes, std::int64_t budget,
                                                     const MeasuredCosts* measured) {
  return Chooser(graph, model, collectives, scopes, budget, measured).run();
}

}  // namespace epweave
