// The best cuts for a price of recomputation, and a cut for a budget of bytes with a lower bound on
// its seconds.
//
// One minimum cut minimises bytes + lambda * seconds over all choices of what to save and what to
// compute again:
//
//   source -> v_in   lambda * seconds(v), infinite for inputs and for what may not run twice
//   v_in -> v_out    bytes(v), infinite for views, tuples and groups: their base is saved, or they are found again
//   source -> s      bytes(s), of storage s that shows in values which may not run twice, but may be saved
//   s -> v_out       infinite, for each of these values; they have no v_in -> v_out
//   v_out -> u_in    infinite, for each user
//   u_in -> sink     infinite, for each call of backward
//
// The cut's sink side is what backward executes. For any budget B of bytes, (cut(lambda) - B) /
// lambda is a lower bound on the seconds of every choice that holds no more than B, for each
// lambda. Between two of these cuts, some layers take what the one does and the rest what the other
// does; between two that are no neighbours, where what lies between is one large value (the
// logits).
//
// Bytes are of values between forward and backward, each storage once, without parameters; seconds
// those of kernels. Gathering parameters again costs neither (reshard always), or is not done
// (never).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/flow.h"
#include "partition/value_costs.h"

namespace epweave {

struct ExactOptions {
  Regather regather = Regather::kAlways;
  bool keeps_heavy = false;  // products and attention are not computed again
  bool keeps_head = false;   // nor what is behind the layers: backward begins there, nothing is gained
  bool keeps_layers =
      false;  // nor what a layer hands to a higher one: backward of a layer does that layer alone again
};

struct BudgetCut {
  Cut cut;
  CutTotals totals;
  double bound_seconds = 0;  // no choice that holds as few bytes computes less again
};

class ExactCuts {
 public:
  // All outlive the cuts.
  ExactCuts(const Graph& graph, const Joint& joint, const ValueCosts& costs, const ExactOptions& options);

  // Minimises bytes + lambda * seconds; lambda in bytes for a second. Of equal cuts the one that
  // computes least again.
  BudgetCut cut_at(double lambda);
  // Whether there is one. Of a graph without, all others throw PassError partition.cut.
  bool has_cut();
  // The fewest bytes that are possible, and those with the fewest seconds.
  const BudgetCut& smallest();
  const BudgetCut& fastest();

  // The same with its bound: computes again what saves more than `lambda` bytes for each second.
  BudgetCut cut_at_price(double lambda);
  // At most `bytes`. Throws PassError partition.budget where even the smallest cut has more.
  BudgetCut cut_within(std::int64_t bytes);
  // At most `seconds`, with as few bytes as layers allow.
  BudgetCut cut_within_seconds(double seconds);
  // By all cuts so far: none of the choices here that holds no more than `bytes` computes less
  // again.
  double find_bound(std::int64_t bytes) const;

 private:
  void build();
  std::int64_t solve(double lambda);
  void price_saving(NodeId id, bool is_fixed, IdSet<NodeId>& is_priced);
  [[noreturn]] void refuse() const;
  std::string_view name_remedy(NodeId problem) const;
  void find_handed();
  bool can_do_again(NodeId id) const;
  bool can_keep(NodeId id) const;
  std::vector<std::vector<NodeId>> list_steps(const BudgetCut& fast, const BudgetCut& small) const;
  BudgetCut mix_further(std::int64_t bytes, BudgetCut found);
  BudgetCut mix(const BudgetCut& fast, const BudgetCut& small, std::int64_t bytes, double seconds);
  std::optional<BudgetCut> combine(const BudgetCut& fast, const BudgetCut& small,
                                   const std::vector<std::uint8_t>& takes_small);
  std::pair<BudgetCut, BudgetCut> bracket(std::int64_t bytes, double seconds);

  const Graph& graph_;
  const Joint& joint_;
  const ValueCosts& costs_;
  ExactOptions options_;
  FlowNetwork network_;
  // By node: may not run twice; may be saved; a higher layer reads it.
  std::vector<std::uint8_t> is_fixed_, is_kept_, is_handed_;
  std::vector<std::pair<NodeId, FlowNetwork::Edge>> priced_;  // source edges
  std::int64_t priced_twice_ = 0;                  // kScale a byte: at most so much is in a cut's value twice
  std::vector<std::pair<double, double>> values_;  // lambda, and what its cut is worth in bytes at least
  std::optional<BudgetCut> smallest_, fastest_;
  struct Corner {
    BudgetCut cut;
    bool is_edge = false;  // no cut lies below the line to the next
  };
  std::vector<Corner> corners_;  // of the envelope, by bytes
};

}  // namespace epweave
