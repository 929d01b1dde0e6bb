// Kernels that take the liberties that a device takes, and refuse what it refuses:
//
//   ao.offload, ao.reload    copy when they are waited for, as late as they may: what is gone or
//                            written by then arrives so
//   ao.wait_tensor           frees its second argument: it holds NaN from there on
//   efficient attention      refuses a bias of another dtype, of other batches or heads, or whose rows
//                            do not begin at multiples of 16 bytes, as torch's kernel does
#pragma once

#include "replay/kernels/kernel.h"

namespace epweave {

// Those of the CPU but for these.
replay::KernelTable make_strict_kernels();

}  // namespace epweave
