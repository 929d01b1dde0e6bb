// The results of A and B, compared as the runs end: A, B, and A again. Only those that differ are
// brought to the host, and of these only B's are kept.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/check/output_check.h"

namespace epweave::replay {

// Whether results stay on the host, for others to compare with.
enum class Keep : std::uint8_t { kWhatDiffers, kAll };

class OutputComparison {
 public:
  // `inputs`: those that A or B writes. Must outlive the runs.
  OutputComparison(const std::vector<bool>& inputs, RankRange ranks, Keep keep);

  // For RunOptions::shown of the first runs, and of A's second, which says how far B's are off.
  ShowResults show_a();
  ShowResults show_b();
  ShowResults show_a_again();
  // Of any other run: whether it gives the bits of the first, where that was, or elsewhere.
  ShowResults show_a_once_more() { return expect(&OfRank::a, &OfRank::is_repeated); }
  ShowResults show_b_again() { return expect(&OfRank::b, &OfRank::is_b_repeated); }
  ShowResults show_a_elsewhere() { return expect(&OfRank::a, &OfRank::devices_agree); }
  ShowResults show_b_elsewhere() { return expect(&OfRank::b, &OfRank::devices_agree); }

  // Whether all runs gave the same bits.
  bool is_repeated(Rank rank) const { return at(rank).is_repeated; }
  bool is_b_repeated(Rank rank) const { return at(rank).is_b_repeated; }
  bool devices_agree(Rank rank) const { return at(rank).devices_agree; }

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
    bool is_repeated = true, is_b_repeated = true, devices_agree = true;
  };
  OfRank& at(Rank rank) { return ranks_[rank - first_]; }
  const OfRank& at(Rank rank) const { return ranks_[rank - first_]; }
  static RankOutputs join(RankOutputs names, const std::vector<Tensor>& tensors);
  static bool differs(const OfRank& rank, std::size_t number);
  // `holds` becomes false where a result has not the bits of `first`.
  ShowResults expect(std::vector<Bits> OfRank::*first, bool OfRank::*holds);

  const std::vector<bool>& inputs_;
  Rank first_;
  Keep keep_;
  std::vector<OfRank> ranks_;
};

}  // namespace epweave::replay
