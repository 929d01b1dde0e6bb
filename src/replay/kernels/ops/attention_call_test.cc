// The three kernels of scaled dot product attention keep other things for their backward: flash
// attention numbers without a sign, the memory-efficient one sums of rows that are padded to a
// multiple of 32.
#include "replay/kernels/ops/attention_call.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text/text.h"
#include "replay/check/check.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

// Its outputs are the attention of 5 rows and the gradients of queries, keys and values.
std::string step(std::string_view forward, std::string_view backward) {
  return fmt::format(R"(epweave text 1
graph
  %q = placeholder : f32[1, 2, 5, 4]
  %k = placeholder : f32[1, 2, 5, 4]
  %v = placeholder : f32[1, 2, 5, 4]
  %g = placeholder : f32[1, 2, 5, 4]
{}
  %out = operator.getitem(%attention, 0)
  %sums = operator.getitem(%attention, 1)
{}
  %gq = operator.getitem(%gradients, 0)
  %gk = operator.getitem(%gradients, 1)
  %gv = operator.getitem(%gradients, 2)
  output([%gq, %gk, %gv])
)",
                     forward, backward);
}

const std::string kCudnnStep = step(
    R"(  %attention = aten._scaled_dot_product_cudnn_attention.default(%q, %k, %v, None, True, 0.0, False, scale=0.5)
  %seed = operator.getitem(%attention, 6)
  %offset = operator.getitem(%attention, 7))",
    R"(  %gradients = aten._scaled_dot_product_cudnn_attention_backward.default(%g, %q, %k, %v, %out, %sums, %seed, %offset, None, None, None, 5, 5, 0.0, False, scale=0.5))");
const std::string kFlashStep = step(
    R"(  %attention = aten._scaled_dot_product_flash_attention.default(%q, %k, %v, 0.0, False, scale=0.5) : (f32[1, 2, 5, 4], f32[1, 2, 5], =None, =None, =5, =5, u64[2], u64[], f32[0])
  %state = operator.getitem(%attention, 6) : u64[2]
  %unused = operator.getitem(%attention, 7) : u64[])",
    R"(  %gradients = aten._scaled_dot_product_flash_attention_backward.default(%g, %q, %k, %v, %out, %sums, None, None, 5, 5, 0.0, False, %state, %unused, scale=0.5))");
const std::string kEfficientStep = step(
    R"(  %attention = aten._scaled_dot_product_efficient_attention.default(%q, %k, %v, None, True, 0.0, False, scale=0.5) : (f32[1, 2, 5, 4]{40, 4, 8, 1}, f32[1, 2, 32], i64[], i64[])
  %seed = operator.getitem(%attention, 2)
  %offset = operator.getitem(%attention, 3))",
    R"(  %gradients = aten._scaled_dot_product_efficient_attention_backward.default(%g, %q, %k, %v, None, %out, %sums, %seed, %offset, 0.0, [True, True, True, False], False, scale=0.5))");

CheckReport::Conclusion compare(const std::string& a, const std::string& b) {
  static const KernelTable kernels = make_cpu_kernels();
  const auto parse = [](const std::string& text) { return parse_text(text, "test"); };
  return check_graphs(parse(a), parse(b), {.kernels = kernels, .ranks = 1, .data = 3}).conclusion();
}

TEST_CASE("gradients of scaled dot product attention do not depend on the kernel that keeps its sums") {
  CHECK(compare(kFlashStep, kCudnnStep) == CheckReport::Conclusion::kSame);
  CHECK(compare(kEfficientStep, kCudnnStep) == CheckReport::Conclusion::kSame);
}

TEST_CASE("padded sums of attention") {
  HostMemory memory;
  cpu::AttentionShape shape;
  shape.batches = shape.heads = 1;
  shape.queries = 3;
  const Tensor padded = make_tensor(memory, DType::kFloat32, {1, 1, 32});
  for (int i = 0; i < 32; ++i) padded.data<float>()[i] = static_cast<float>(i);
  const auto rows = cpu::logsumexp_of_queries(padded, shape);
  REQUIRE(rows);
  CHECK(rows->sizes == Extents{1, 1, 3});
  CHECK(rows->data<float>()[2] == 2);
  shape.queries = 33;
  CHECK_FALSE(cpu::logsumexp_of_queries(padded, shape));
  CHECK_THROWS_AS(cpu::require_logsumexp(padded, shape), KernelError);
  // Of other batches, of other heads, without batches, with one dimension more.
  shape.queries = 3;
  shape.batches = 2;
  CHECK_FALSE(cpu::logsumexp_of_queries(padded, shape));
  CHECK_FALSE(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {1, 2, 32}), shape));
  shape.heads = 2;
  CHECK_FALSE(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {2, 1, 32}), shape));
  CHECK_FALSE(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {1, 2, 32}), shape));
  CHECK_FALSE(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {2, 32}), shape));
  CHECK_FALSE(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {2, 2, 32, 1}), shape));
  CHECK(cpu::logsumexp_of_queries(make_tensor(memory, DType::kFloat32, {2, 2, 32}), shape)->sizes ==
        Extents{2, 2, 3});
}

}  // namespace
}  // namespace epweave::replay
