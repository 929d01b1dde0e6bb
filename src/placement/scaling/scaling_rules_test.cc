#include "placement/scaling/scaling_rules.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>

#include "ops/op.h"

namespace epweave {
namespace {

// Whose results are numbers, groups, or as many elements as data say.
bool has_no_extent_of_operands(OpFamily family) {
  constexpr OpFamily kFamilies[] = {OpFamily::kSize,       OpFamily::kNumber, OpFamily::kComparison,
                                    OpFamily::kHostRead,   OpFamily::kCheck,  OpFamily::kMesh,
                                    OpFamily::kMaskedRows, OpFamily::kCount};
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

TEST_CASE("an op without a scaling rule has none of an operand's extents, or stands here with its reason") {
  const std::set<std::string_view> expected = {
      // Strides, which are numbers of the call, would have to scale, too.
      "ao.reload.default", "aten.as_strided.default", "aten.empty_strided.default",
      "aten.new_empty_strided.default",
      // No extent.
      "aten.scalar_tensor.default",
      // As many steps as the numbers at its ends say, perhaps.
      "aten.linspace.default",
      // A diagonal has the smaller of two extents.
      "aten.diagonal.default",
      // Buffers of parameters, whose extents are no tokens'.
      "_c10d_functional.all_gather_into_tensor_out.default",
      "_c10d_functional.reduce_scatter_tensor_out.default", "aten.split_with_sizes_copy.out",
      "bucketing._pre_bucket_all_gather.default", "bucketing._pre_bucket_reduce_scatter.default",
      // Made by async-tp, behind what scales.
      "symm_mem.fused_all_gather_matmul.default", "symm_mem.fused_matmul_reduce_scatter.default"};
  std::set<std::string_view> without;
  for (const OpInfo& op : ops())
    if (find_scaling_rule(op) == nullptr && !has_no_extent_of_operands(op.family)) without.insert(op.target);
  CHECK(without == expected);
}

}  // namespace
}  // namespace epweave
