#include "replay/kernels/shared/kernels.h"

#include <vector>

namespace epweave::replay::shared {

std::span<const KernelRow> kernel_rows() {
  static const std::vector<KernelRow> all = [] {
    std::vector<KernelRow> rows;
    for (const std::span<const KernelRow> family :
         {index_rows(), loss_rows(), normalise_rows(), random_rows(), rearrange_rows(), reduce_rows(),
          scatter_rows(), solve_rows(), sort_rows(), statistics_rows()})
      rows.insert(rows.end(), family.begin(), family.end());
    return rows;
  }();
  return all;
}

}  // namespace epweave::replay::shared
