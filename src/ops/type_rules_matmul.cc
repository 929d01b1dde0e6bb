// Matrix products.
#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

void check_inner(TypeRuleCall& call, ExprId a, ExprId b) {
  call.check_equal(a, b, "inner sizes");
}

void check_dtypes(TypeRuleCall& call, const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype)
    call.mismatch("dtypes {} and {} differ", info(a.dtype).short_name, info(b.dtype).short_name);
  if (a.device != b.device)
    call.mismatch("operands are on {} and {}", call.context.text(a.device), call.context.text(b.device));
}

TypeId mm_of(TypeRuleCall& call, const TensorType& a, const TensorType& b) {
  call.check_rank(a, 2, "the left operand");
  call.check_rank(b, 2, "the right operand");
  check_dtypes(call, a, b);
  check_inner(call, a.sizes[1], b.sizes[0]);
  return call.contiguous(a.dtype, {a.sizes[0], b.sizes[1]}, a.device);
}

TypeId bmm_of(TypeRuleCall& call, const TensorType& a, const TensorType& b) {
  call.check_rank(a, 3, "the left operand");
  call.check_rank(b, 3, "the right operand");
  check_dtypes(call, a, b);
  call.check_equal(a.sizes[0], b.sizes[0], "batch sizes");
  check_inner(call, a.sizes[2], b.sizes[1]);
  return call.contiguous(a.dtype, {a.sizes[0], a.sizes[1], b.sizes[2]}, a.device);
}

// bias (parameter 0) must broadcast to the product.
TypeId with_bias(TypeRuleCall& call, TypeId product) {
  const TensorType& bias = call.tensor(std::size_t{0});
  const std::span<const ExprId> shapes[] = {tensor_of(call.context, product)->sizes, bias.sizes};
  broadcast_sizes(call, shapes);
  return product;
}

// Rows padded to 16 bytes, as TMA wants them (_create_grouped_mm_output_tensor).
TypeId padded_rows(TypeRuleCall& call, DType dtype, Dims sizes, StringId device) {
  const std::int64_t alignment = 16 / info(dtype).bytes;
  const ExprId row = call.exprs.mul(ceil_div(call.facts, sizes.back(), alignment), call.number(alignment));
  Dims strides(sizes.size(), call.number(1));
  strides[sizes.size() - 2] = row;
  if (sizes.size() == 3) strides[0] = call.exprs.mul(sizes[1], row);
  return call.result(dtype, std::move(sizes), std::move(strides), device);
}

// One operand is 2-dimensional where its groups lie one behind another, delimited by offs.
TypeId grouped(TypeRuleCall& call, const TensorType& a, const TensorType& b, const TensorType* offs,
               DType dtype) {
  if ((a.rank() != 2 && a.rank() != 3) || (b.rank() != 2 && b.rank() != 3))
    call.mismatch("operands have {} and {} dimensions, not 2 or 3", a.rank(), b.rank());
  const bool a_is_2d = a.rank() == 2, b_is_2d = b.rank() == 2;
  const ExprId inner_a = a.sizes.back(), inner_b = b.sizes[b.rank() - 2];
  if (!a_is_2d || !b_is_2d) check_inner(call, inner_a, inner_b);
  if ((a_is_2d || b_is_2d) && offs == nullptr) call.mismatch("'offs' is missing");
  if (offs != nullptr) {
    call.check_rank(*offs, 1, "offs");
    if (offs->dtype != DType::kInt32) call.mismatch("offs is {}, not i32", info(offs->dtype).short_name);
  }
  const ExprId rows = a.sizes[a.rank() - 2], columns = b.sizes.back();
  if (a_is_2d && b_is_2d) {
    call.check_equal(inner_a, inner_b, "inner sizes");
    return padded_rows(call, dtype, {offs->sizes[0], rows, columns}, a.device);
  }
  if (a_is_2d) {
    call.check_equal(offs->sizes[0], b.sizes[0], "numbers of groups");
    return padded_rows(call, dtype, {rows, columns}, a.device);
  }
  if (b_is_2d) {
    call.check_equal(offs->sizes[0], a.sizes[0], "numbers of groups");
    return padded_rows(call, dtype, {rows, columns}, a.device);
  }
  call.check_equal(a.sizes[0], b.sizes[0], "batch sizes");
  return padded_rows(call, dtype, {a.sizes[0], rows, columns}, a.device);
}

}  // namespace

TypeId mm(TypeRuleCall& call) {
  return mm_of(call, call.tensor(std::size_t{0}), call.tensor(std::size_t{1}));
}
TypeId bmm(TypeRuleCall& call) {
  return bmm_of(call, call.tensor(std::size_t{0}), call.tensor(std::size_t{1}));
}
TypeId addmm(TypeRuleCall& call) {
  return with_bias(call, mm_of(call, call.tensor(std::size_t{1}), call.tensor(std::size_t{2})));
}
TypeId baddbmm(TypeRuleCall& call) {
  return with_bias(call, bmm_of(call, call.tensor(std::size_t{1}), call.tensor(std::size_t{2})));
}

TypeId mv(TypeRuleCall& call) {
  const TensorType &a = call.tensor(std::size_t{0}), &b = call.tensor(std::size_t{1});
  call.check_rank(a, 2, "the matrix");
  call.check_rank(b, 1, "the vector");
  check_dtypes(call, a, b);
  check_inner(call, a.sizes[1], b.sizes[0]);
  return call.contiguous(a.dtype, {a.sizes[0]}, a.device);
}

TypeId dot(TypeRuleCall& call) {
  const TensorType &a = call.tensor(std::size_t{0}), &b = call.tensor(std::size_t{1});
  call.check_rank(a, 1, "the left operand");
  call.check_rank(b, 1, "the right operand");
  check_inner(call, a.sizes[0], b.sizes[0]);
  return call.contiguous(a.dtype, {}, a.device);
}

// _grouped_mm(self, mat2, offs, bias, out_dtype).
TypeId grouped_mm(TypeRuleCall& call) {
  const TensorType &a = call.tensor(std::size_t{0}), &b = call.tensor(std::size_t{1});
  check_dtypes(call, a, b);
  return grouped(call, a, b, call.optional_tensor(2), call.dtype_or(4, a.dtype));
}

// _scaled_grouped_mm(self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype,
// use_fast_accum).
TypeId scaled_grouped_mm(TypeRuleCall& call) {
  return grouped(call, call.tensor(std::size_t{0}), call.tensor(std::size_t{1}), call.optional_tensor(4),
                 call.dtype_or(7, DType::kBfloat16));
}

// _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum).
TypeId scaled_mm(TypeRuleCall& call) {
  const TensorType &a = call.tensor(std::size_t{0}), &b = call.tensor(std::size_t{1});
  call.check_rank(a, 2, "the left operand");
  call.check_rank(b, 2, "the right operand");
  check_inner(call, a.sizes[1], b.sizes[0]);
  return call.contiguous(call.dtype_or(6, a.dtype), {a.sizes[0], b.sizes[1]}, a.device);
}

// linalg_solve_triangular(self, B, *, upper, left, unitriangular): dimensions in front broadcast;
// columns of the result lie one behind another.
TypeId solve_triangular(TypeRuleCall& call) {
  const TensorType &square = call.tensor(std::size_t{0}), &given = call.tensor(std::size_t{1});
  for (const TensorType* tensor : {&square, &given})
    if (tensor->rank() < 2) call.mismatch("an operand has {} dimensions, not 2 or more", tensor->rank());
  check_dtypes(call, square, given);
  const ExprId size = square.sizes.back();
  call.check_equal(square.sizes[square.rank() - 2], size, "sides of the triangular matrix");
  call.check_equal(given.sizes[given.rank() - (call.boolean(3) ? 2 : 1)], size, "inner sizes");
  const auto in_front = [](const TensorType& tensor) {
    return std::span<const ExprId>(tensor.sizes).first(tensor.rank() - 2);
  };
  const std::span<const ExprId> shapes[] = {in_front(square), in_front(given)};
  Dims sizes = broadcast_sizes(call, shapes);
  sizes.insert(sizes.end(), {given.sizes.back(), given.sizes[given.rank() - 2]});
  Dims strides = contiguous_strides(call.facts, sizes);
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return call.result(given.dtype, std::move(sizes), std::move(strides), given.device);
}

}  // namespace epweave::rules
