// A collective whose members are processes of their own: bytes are moved by an Exchange, sums are
// made here, in the documented order (transport.h). NCCL's own reductions, whose order depends on
// its settings, are used only where the Exchange says that it adds up (--nccl-native).
//
//   all_to_all, all_gather, broadcast   moved into the result
//   reduce_scatter   member i is sent slice i by all, and reduces the slices in the order of the
//                    members
//   all_reduce       the same with slices of about equal size; then every member sends its slice to
//                    all
#pragma once

#include "replay/collectives/exchange.h"
#include "replay/collectives/transport.h"
#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

// Queues it on the launcher's stream. The contribution of this member holds its operand, row-major,
// in device memory; the others' hold no data.
void exchange_result(Launcher& launcher, Exchange& exchange, const Meeting& meeting, const Tensor& result);

}  // namespace epweave::replay::device
