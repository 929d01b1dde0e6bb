#include "replay/kernels/device/kernels.h"

#include "replay/kernels/host/kernels.h"

namespace epweave::replay::device {

KernelTable make_device_kernels() {
  KernelTable table;
  for (const std::span<const KernelRow> rows :
       {cpu::activation_rows(), cpu::copy_rows(), cpu::factory_rows(), cpu::pointwise_rows(),
        cpu::slice_rows(), cpu::view_rows(), attention_rows(), flex_attention_rows(), index_rows(),
        loss_rows(), matmul_rows(), normalise_rows(), rearrange_rows(), reduce_rows(), scatter_rows(),
        sort_rows(), statistics_rows(), host_kernel_rows()})
    table.add(rows);
  return table;
}

}  // namespace epweave::replay::device
