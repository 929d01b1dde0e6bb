#include "passes/dedup_unshard.h"

#include <catch2/catch.hpp>

#include "passes/test_text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

Graph deduplicated(const std::string& nodes) {
  Graph result = dedup_unshard(parse_test_graph(fmt::format("output other\n\ngraph\n{}", nodes)));
  CHECK(same_code(result, dedup_unshard(result)));
  return result;
}

std::size_t count_gathers(const std::string& code) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = code.find("= _c10d_functional.all_gather", at)) != code.npos; ++at) ++count;
  return count;
}

TEST_CASE("equal unshard chains of a parameter become one", "[A2]") {
  const Graph result = deduplicated(R"(
  %sharded_param = placeholder : f32[4]
  %x = placeholder : f32[4]
  %ag0 = _c10d_functional.all_gather_into_tensor.default(%sharded_param, 1, "fsdp_pg") : f32[4]
  %wait0 = _c10d_functional.wait_tensor.default(%ag0) : f32[4]
  %view0 = aten.view.default(%wait0, [4]) : f32[4]
  %ag1 = _c10d_functional.all_gather_into_tensor.default(%sharded_param, 1, "fsdp_pg") : f32[4]
  %wait1 = _c10d_functional.wait_tensor.default(%ag1) : f32[4]
  %view1 = aten.view.default(%wait1, [4]) : f32[4]
  %add = aten.add.Tensor(%view0, %view1) : f32[4]
  %y = aten.add.Tensor(%add, %x) : f32[4]
  output((%y,))
)");
  CHECK(print_code(result) == R"(%sharded_param = placeholder
%x = placeholder
%ag0 = _c10d_functional.all_gather_into_tensor.default(%sharded_param, 1, "fsdp_pg")
%wait0 = _c10d_functional.wait_tensor.default(%ag0)
%view0 = aten.view.default(%wait0, [4])
%view1 = aten.view.default(%wait0, [4])
%add = aten.add.Tensor(%view0, %view1)
%y = aten.add.Tensor(%add, %x)
output((%y,))
)");
  CHECK(print_records(result, "ag0") == "dedup-unshard merged ag0 ag1\n");
  CHECK(print_records(result, "wait0") == "dedup-unshard merged wait0 wait1\n");
  CHECK(print_records(result, "sharded_param").empty());
}

// Two chains of a cast, a gather and a split whose pieces are joined along another dimension.
std::string rejoined_chains(const std::string& split, const std::string& sizes) {
  return fmt::format(R"(
  %w = placeholder : f32[4, 2]
  %c0 = aten._to_copy.default(%w, dtype=bf16) : bf16[4, 2]
  %ag0 = _c10d_functional.all_gather_into_tensor.default(%c0, 2, "0") : bf16[8, 2]
  %wait0 = _c10d_functional.wait_tensor.default(%ag0) : bf16[8, 2]
  %s0 = {0}(%wait0, {1}) : (bf16[4, 2], bf16[4, 2])
  %a0 = operator.getitem(%s0, 0) : bf16[4, 2]
  %b0 = operator.getitem(%s0, 1) : bf16[4, 2]
  %cat0 = aten.cat.default([%a0, %b0], 1) : bf16[4, 4]
  %c1 = aten._to_copy.default(%w, dtype=bf16) : bf16[4, 2]
  %ag1 = _c10d_functional.all_gather_into_tensor.default(%c1, 2, "0") : bf16[8, 2]
  %wait1 = _c10d_functional.wait_tensor.default(%ag1) : bf16[8, 2]
  %s1 = {0}(%wait1, {1}) : (bf16[4, 2], bf16[4, 2])
  %a1 = operator.getitem(%s1, 0) : bf16[4, 2]
  %b1 = operator.getitem(%s1, 1) : bf16[4, 2]
  %cat1 = aten.cat.default([%a1, %b1], 1) : bf16[4, 4]
  %y = aten.add.Tensor(%cat0, %cat1) : bf16[4, 4]
  output((%y,))
)",
                     split, sizes);
}

TEST_CASE("a cast before and a split rejoined behind the gather belong to the chain") {
  for (const auto& [split, sizes] :
       {std::pair("aten.split.Tensor", "4"), {"aten.split_with_sizes.default", "[4, 4]"}}) {
    const std::string code = print_code(deduplicated(rejoined_chains(split, sizes)));
    CHECK(count_gathers(code) == 1);
    CHECK(code.find("%y = aten.add.Tensor(%cat0, %cat0)") != code.npos);
  }
}

// Two chains of %w: `first` and `second` fill in what differs.
std::string two_chains(const std::string& first, const std::string& second, const std::string& more) {
  return fmt::format(R"(
  %w = placeholder : f32[4]
  %x = placeholder : f32[8]
  %mesh = placeholder : =mesh(["fsdp"], [2], [0, 1], "cuda")
  %pg0 = _dtensor.mesh_get_process_group.default(%mesh, 0) : =pg(0)
  %ag0 = _c10d_functional.all_gather_into_tensor.default(%w, {}
  %wait0 = _c10d_functional.wait_tensor.default(%ag0) : f32[8]
  %y0 = aten.add.Tensor(%wait0, %x) : f32[8]
{}
  %pg1 = _dtensor.mesh_get_process_group.default(%mesh, 0) : =pg(0)
  %ag1 = _c10d_functional.all_gather_into_tensor.default(%w, {}
  %wait1 = _c10d_functional.wait_tensor.default(%ag1) : f32[8]
  %y1 = aten.add.Tensor(%wait1, %x) : f32[8]
  output((%y0, %y1))
)",
                     first, more, second);
}

std::size_t gathers_left(const std::string& first, const std::string& second, const std::string& more = "") {
  return count_gathers(print_code(deduplicated(two_chains(first, second, more))));
}

TEST_CASE("chains that differ stay apart") {
  CHECK(gathers_left("2, \"0\") : f32[8]", "2, \"0\") : f32[8]") == 1);
  CHECK(gathers_left("2, \"0\") : f32[8]", "2, \"1\") : f32[8]") == 2);
  CHECK(gathers_left("2, \"0\") : f32[8]", "4, \"0\") : f32[8]") == 2);
}

TEST_CASE("chains of other calls stay apart, though their values are equal") {
  const std::string ag = "2, \"0\") : f32[8]\n";
  const std::string more = "  %same = aten.alias.default(%w) : f32[4]";
  std::string nodes = two_chains(ag, ag, more);
  const std::string second = "%ag1 = _c10d_functional.all_gather_into_tensor.default(%w";
  nodes.replace(nodes.find(second), second.size(),
                "%ag1 = _c10d_functional.all_gather_into_tensor.default(%same");
  CHECK(count_gathers(print_code(deduplicated(nodes))) == 2);
}

TEST_CASE("a chain rebuilt in backward is not merged with the forward one") {
  CHECK(gathers_left("2, \"0\") : f32[8]", "2, \"0\") : f32[8] bwd") == 2);
  CHECK(gathers_left("2, \"0\") : f32[8] bwd", "2, \"0\") : f32[8] bwd") == 1);
}

TEST_CASE("groups looked up anew are the same group, in rank-agnostic graphs") {
  const std::string code = print_code(deduplicated(two_chains("2, %pg0) : f32[8]", "2, %pg1) : f32[8]", "")));
  CHECK(count_gathers(code) == 1);
  CHECK(code.find("%pg1") == code.npos);
  CHECK(code.find("%y1 = aten.add.Tensor(%wait0, %x)") != code.npos);
}

TEST_CASE("nothing is merged across a write") {
  const std::string ag = "2, \"0\") : f32[8]";
  CHECK(gathers_left(ag, ag, "  %z = aten.add_.Tensor(%w, 1) : f32[4]") == 2);
  CHECK(gathers_left(ag, ag, "  %z = aten.add_.Tensor(%wait0, 1) : f32[8]") == 2);
  CHECK(gathers_left(ag, ag, "  %v = aten.view.default(%wait0, [8]) : f32[8]\n  %z = my.unknown(%v)") == 2);
}

}  // namespace
}  // namespace epweave
