// The kernels that are written once, for the CPU and for a device, each family in its file:
// composed of the vocabulary of scratch.h. The orders that their bits depend on are in
// host/kernels.h.
#pragma once

#include <span>

#include "replay/kernels/kernel.h"

namespace epweave::replay::shared {

std::span<const KernelRow> index_rows();
std::span<const KernelRow> loss_rows();
std::span<const KernelRow> normalise_rows();
std::span<const KernelRow> random_rows();
std::span<const KernelRow> rearrange_rows();
std::span<const KernelRow> reduce_rows();
std::span<const KernelRow> scatter_rows();
std::span<const KernelRow> solve_rows();
std::span<const KernelRow> sort_rows();
std::span<const KernelRow> statistics_rows();

// All of them.
std::span<const KernelRow> kernel_rows();

}  // namespace epweave::replay::shared
