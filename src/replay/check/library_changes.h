// What a check in native math (check.h) says where the library took other algorithms
// (library_kernels.h), and where sums were regrouped, whose bounds are of portable math.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replay/check/check_report.h"
#include "replay/check/node_judgements.h"
#include "replay/run/executor.h"

namespace epweave::replay {

class LibraryChanges {
 public:
  explicit LibraryChanges(const PairedGraphs& graphs) : graphs_(graphs) {}

  // Of the first runs of both graphs.
  struct Products {
    const ProductTable& a;
    const ProductTable& b;
  };
  // Finds the changes of a rank of this process.
  std::vector<KernelChange> find(const Products& products, const Judgements& judgements, Rank rank);
  // What another process's ranks found counts on all ranks, too; then what lies behind all changes
  // is looked up.
  std::string encode() const;
  void add_process(std::string_view text);
  void look_behind();

  Judgement explain(const Judgement& first, const Group& group) const;
  // Of one rank, in order.
  void explain_outputs(const RankResult& result_b, const std::vector<bool>& written,
                       std::vector<OutputCheck>& outputs) const;

 private:
  void mark_unjudged(const Products& products, const Judgements& judgements, Rank rank);

  const PairedGraphs& graphs_;
  std::set<NodeId> changed_, sums_;  // of B
  Reached behind_changes_, behind_sums_;
};

}  // namespace epweave::replay
