// The results of A and B, compared as the runs end: A, B, and A again. Only those that differ are
// brought to the host, and of these only B's are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "replay/check/output_check.h"

namespace epweave::replay {

// Whether results stay on the host, for others to compare with.
enum class Keep : std::uint8_t { kWhatDiffers, kAll };

class OutputComparison {
 public:
  // `inputs`: those that A or B writes. Must outlive the runs.
  OutputComparison(const std::vector<bool>& inputs, RankRange ranks, Keep keep);

  // For RunOptions::shown of the three runs, in this order.
  ShowResults show_a();
  ShowResults show_b();
  ShowResults show_a_again();
  // For any later run: only whether it gives the same bits.
  ShowResults show_a_once_more();
  ShowResults show_b_again();

  // The same of runs that left their results on the host: the second of A; any later one.
  void see_again(Rank rank, const RankOutputs& outputs);
  void see_a_once_more(Rank rank, const RankOutputs& outputs);
  void see_b_again(Rank rank, const RankOutputs& outputs);
  // Whether all runs gave the same bits.
  bool is_repeated(Rank rank) const { return at(rank).is_repeated; }
  bool is_b_repeated(Rank rank) const { return at(rank).is_b_repeated; }
  bool has_bits_of_a(Rank rank, const RankOutputs& outputs) const { return has_bits(at(rank).a, outputs); }
  bool has_bits_of_b(Rank rank, const RankOutputs& outputs) const { return has_bits(at(rank).b, outputs); }

  // Once A and B have run: which differ. `names`: of what was shown, with dtypes and sizes. Throws
  // InputError if A's and B's are not as many.
  std::vector<OutputCheck> list_checks(Rank rank, const OutputPair& names) const;
  // Once A has run again: where, and how far.
  void add_differences(Rank rank, std::vector<OutputCheck>& checks) const;
  // Outputs of A that hold NaN or infinity.
  void count_not_finite(Rank rank, const RankOutputs& names, CheckReport& report) const;
  // With their tensors, where all are kept.
  RankOutputs tensors_of_a(Rank rank, const RankOutputs& names) const { return join(names, at(rank).kept_a); }
  RankOutputs tensors_of_b(Rank rank, const RankOutputs& names) const { return join(names, at(rank).kept_b); }

 private:
  struct Bits {
    std::uint64_t hash = 0;
    bool has_nan = false, has_not_finite = false;
  };
  struct OfRank {
    std::vector<Bits> a, b;
    std::vector<Tensor> kept_a, kept_b;  // without memory: not kept
    std::vector<TensorDifference> differences;
    bool is_repeated = true, is_b_repeated = true;
  };
  OfRank& at(Rank rank) { return ranks_[rank - first_]; }
  const OfRank& at(Rank rank) const { return ranks_[rank - first_]; }
  static RankOutputs join(RankOutputs names, const std::vector<Tensor>& tensors);
  static bool has_bits(const std::vector<Bits>& bits, const RankOutputs& outputs);
  static bool differs(const OfRank& rank, std::size_t number);
  void see_again(OfRank& rank, std::size_t number, std::uint64_t hash, const std::function<Tensor()>& fetch);

  const std::vector<bool>& inputs_;
  Rank first_;
  Keep keep_;
  std::vector<OfRank> ranks_;
};

}  // namespace epweave::replay
