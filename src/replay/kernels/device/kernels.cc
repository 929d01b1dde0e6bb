#include "replay/kernels/device/kernels.h"

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/shared/kernels.h"

namespace epweave::replay::device {

KernelTable make_device_kernels() {
  KernelTable table;
  for (const std::span<const KernelRow> rows :
       {cpu::activation_rows(), cpu::copy_rows(), cpu::factory_rows(), cpu::pointwise_rows(),
        cpu::slice_rows(), cpu::view_rows(), shared::kernel_rows(), attention_rows(), flex_attention_rows(),
        matmul_rows(), host_kernel_rows()})
    table.add(rows);
  return table;
}

}  // namespace epweave::replay::device
