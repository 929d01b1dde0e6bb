#include "replay/bounds/tensor_ops.h"

#include "ops/op.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

Value TensorOps::call(const OpInfo& op, std::vector<Value> args, std::size_t given) const {
  const auto bits = static_cast<std::uint32_t>((std::uint64_t{1} << given) - 1);
  KernelCall kernel_call(op, std::move(args), bits, memory_);
  return kernels_.find(op)(kernel_call);
}

Value TensorOps::run(const OpInfo& op, std::vector<Value> args) const {
  const std::size_t given = args.size();
  return call(op, std::move(args), given);
}

Tensor TensorOps::apply(std::string_view target, std::vector<Value> args) const {
  const OpInfo* op = find_op(target);
  EPWEAVE_CHECK(op != nullptr && has(*op));
  const std::size_t given = args.size();
  for (std::size_t i = given; i < op->params.size(); ++i)
    args.push_back(op->params[i].has_default ? parse_default(op->params[i].default_value) : Value());
  return call(*op, std::move(args), given).tensor();
}

Tensor TensorOps::filled(DType dtype, const Extents& sizes, double number) const {
  Tensor made = make_tensor(memory_, dtype, sizes);
  fill(made, number);
  return made;
}

Tensor TensorOps::copied(const Tensor& tensor) const {
  Tensor made = make_tensor(memory_, tensor.dtype, tensor.sizes);
  copy(tensor, made);
  return made;
}

Tensor TensorOps::cast(const Tensor& tensor, DType dtype) const {
  return apply(named::kCast, {tensor, dtype});
}

Tensor TensorOps::dense(const Tensor& tensor) const {
  return tensor.is_contiguous() ? tensor : copied(tensor);
}

void TensorOps::fill(const Tensor& to, double number) const {
  apply(named::kFill, {to, number});
}

void TensorOps::copy(const Tensor& from, const Tensor& to) const {
  const bool is_plain = from.storage->is_on_host() && to.storage->is_on_host() && from.dtype == to.dtype &&
                        from.sizes == to.sizes;
  // By squares that stay in the cache, whichever of the two is transposed.
  if (is_plain && to.is_contiguous()) return gather_elements(from, to.bytes());
  if (is_plain && from.is_contiguous()) return scatter_elements(from.bytes(), to);
  apply(named::kCopyInto, {to, from});
}

bool TensorOps::any(const Tensor& tensor) const {
  const Tensor found = on_host(apply(named::kAny, {tensor}));
  return *found.bytes() != std::byte{0};
}

Tensor TensorOps::lasting(const Tensor& dense) const {
  if (memory_.outlives_run()) return dense;
  Tensor made{dense.dtype, dense.sizes, contiguous_strides(dense.sizes), 0,
              memory_.allocate_beyond(static_cast<std::size_t>(dense.numel()) * dense.element_bytes())};
  copy(dense, made);
  return made;
}

}  // namespace epweave::replay
