// The kernels of a device: the same ops, the same orders of sums as on the CPU
// (kernels/host/kernels.h), so the same bits. Most are the CPU's own functions (kernels/shared/,
// and those of kernels/host/ that view, copy, make or map elements), which put their work into the
// device's queue; products and attention have a form of their own, here.
//
// Differences: a NaN has the bits that the device makes.
#pragma once

#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

KernelTable make_device_kernels();

std::span<const KernelRow> attention_rows();
std::span<const KernelRow> flex_attention_rows();
std::span<const KernelRow> matmul_rows();

}  // namespace epweave::replay::device
