#include "replay/kernels/host/kernels.h"

#include <vector>

#include "replay/kernels/shared/kernels.h"

namespace epweave::replay {

std::span<const KernelRow> cpu_kernel_rows() {
  static const std::vector<KernelRow> all = [] {
    std::vector<KernelRow> rows;
    for (const std::span<const KernelRow> family :
         {cpu::activation_rows(), cpu::attention_rows(), cpu::copy_rows(), cpu::factory_rows(),
          cpu::flex_attention_rows(), cpu::matmul_rows(), cpu::pointwise_rows(), cpu::slice_rows(),
          cpu::view_rows(), shared::kernel_rows()})
      rows.insert(rows.end(), family.begin(), family.end());
    return rows;
  }();
  return all;
}

KernelTable make_cpu_kernels() {
  KernelTable table;
  table.add(cpu_kernel_rows());
  table.add(host_kernel_rows());
  return table;
}

}  // namespace epweave::replay
