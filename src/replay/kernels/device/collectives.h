// What a collective's contributions make for one member, in device memory: moved bytes, or sums in
// the documented order (transport.h).
#pragma once

#include "replay/collectives/transport.h"
#include "replay/kernels/device/launcher.h"

namespace epweave::replay::device {

// Operands of a reduction, in order: where each one's first element lies.
struct ReduceOperands {
  std::vector<const void*> data;
  DType dtype = DType::kFloat32;
  std::string reduction;
};
// Queues it: out[i] is the reduction of the operands' elements i. Throws CollectiveError for dtypes
// and numbers of operands that cannot be reduced.
void reduce(Launcher& launcher, const ReduceOperands& operands, const Tensor& out);

// Queues it; the contributions must be there when the launcher's stream gets to it.
void make_result(Launcher& launcher, const Meeting& meeting, const Tensor& result);

}  // namespace epweave::replay::device
