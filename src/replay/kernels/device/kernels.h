// The kernels of a device: the same ops, the same orders of sums as on the CPU
// (kernels/host/kernels.h), so the same bits. Ops that view, copy, make or map elements are the
// CPU's own functions, which put their work into the device's queue; the others are here, composed
// of a few launches each.
//
// Differences: a NaN has the bits that the device makes.
#pragma once

#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

KernelTable make_device_kernels();

std::span<const KernelRow> attention_rows();
std::span<const KernelRow> flex_attention_rows();
std::span<const KernelRow> index_rows();
std::span<const KernelRow> loss_rows();
std::span<const KernelRow> matmul_rows();
std::span<const KernelRow> normalise_rows();
std::span<const KernelRow> rearrange_rows();
std::span<const KernelRow> reduce_rows();
std::span<const KernelRow> scatter_rows();
std::span<const KernelRow> sort_rows();
std::span<const KernelRow> statistics_rows();

}  // namespace epweave::replay::device
