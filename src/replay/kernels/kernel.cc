#include "replay/kernels/kernel.h"

namespace epweave::replay {

Tensor KernelCall::make_result(std::size_t i, DType dtype, Extents sizes) {
  const ResultType* recorded = is_nested_ ? nullptr : result(i);
  if (recorded != nullptr && recorded->sizes == sizes && recorded->strides.size() == sizes.size())
    return make_tensor(*memory_, dtype, std::move(sizes), recorded->strides);
  return make_tensor(*memory_, dtype, std::move(sizes));
}

KernelTable::KernelTable() : kernels_(ops().size(), nullptr) {}

void KernelTable::add(std::span<const KernelRow> rows) {
  for (const KernelRow& row : rows) {
    const OpInfo* op = find_op(row.target);
    EPWEAVE_CHECK(op != nullptr);
    kernels_[op->index] = row.run;
  }
}

}  // namespace epweave::replay
