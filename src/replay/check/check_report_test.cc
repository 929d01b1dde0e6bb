// Reports of a check: merged, and as other processes get them.
#include "replay/check/check_report.h"

#include <catch2/catch.hpp>
#include <limits>

#include "replay/values/message.h"

namespace epweave::replay {
namespace {

using Conclusion = CheckReport::Conclusion;

// Everything that a report may hold, of one rank.
CheckReport full_report(Rank rank) {
  CheckReport report;
  TensorDifference difference;
  difference.differing = 3;
  difference.index = 17;
  difference.bits_a = "0x3f80";
  difference.bits_b = "0x3f81";
  difference.value_a = 1;
  difference.value_b = std::numeric_limits<double>::infinity();
  difference.ulp = 1;
  difference.relative_error = 0.25;
  const BoundComparison bound{.is_within = true, .is_bounded = false, .largest_share = 0.5};
  report.outputs = {{rank, "loss", Verdict::kEqual, {}, {}},
                    {rank, "grad layers.0.w", Verdict::kUnverified, difference, bound}};
  RankCheck& counts = report.ranks.emplace_back();
  counts.nodes = {5, 4, 3, 2, 1, 0};
  counts.unverified = {{"a sum of parts", 1}};
  counts.skipped = {{"made by the rewrite", 7}, {"", 2}};
  report.first = NodeCheck{rank, NodeId(4U), "mm", "the bits differ", difference, 40 + rank};
  report.kernel_changes = {{rank, 9, "mm", {"tile 1"}, {"tile 2", "tile 3"}}};
  report.first_change = NodeCheck{rank, NodeId(5U), "mm", "another algorithm", std::nullopt, 0};
  report.largest_share = 0.5;
  report.ops_without_bound = {"aten.sort.default"};
  report.reference = ReferenceCheck{2, 1, 0, 0.125, 0.5, rank == 1 ? "rank 1: loss" : ""};
  report.outputs_not_finite = 1;
  report.bounds = Bounds::kDevice;
  report.run_a = {1.5 + rank, 2, "rank 0: %mm"};
  return report;
}

}  // namespace

TEST_CASE("a report reaches another process as it is") {
  const std::string text = encode(full_report(2));
  const CheckReport read = decode_check_report(text);
  CHECK(encode(read) == text);
  REQUIRE(read.outputs.size() == 2);
  CHECK(read.outputs[1].difference.value_b == std::numeric_limits<double>::infinity());
  CHECK(read.outputs[1].bound->is_bounded == false);
  CHECK(read.bounds == Bounds::kDevice);
  CHECK_FALSE(read.outputs[0].bound);
  CHECK(read.ranks[0].skipped.at("") == 2);
  CHECK(read.first->position == 42);
  CHECK(read.first->node == NodeId(4U));
  CHECK(read.kernel_changes[0].b == std::vector<std::string>{"tile 2", "tile 3"});
  CHECK_FALSE(read.first_change->difference);
  CHECK(read.reference->largest_error == 0.125);
  CHECK_THROWS_AS(decode_check_report(text.substr(0, text.size() - 1)), WireError);
}

TEST_CASE("reports of ranks make one") {
  std::vector<CheckReport> ranks{full_report(0), full_report(1), full_report(2)};
  ranks[0].first.reset();
  ranks[1].first->position = ranks[2].first->position = 7;  // the lower rank is named
  ranks[0].kernel_changes.clear();
  ranks[0].first_change.reset();
  ranks[2].baseline_is_deterministic = false;
  ranks[2].largest_share = 0.75;
  ranks[1].step_is_finite = false;
  ranks[2].bounds = Bounds::kNone;
  const CheckReport all = merge(ranks);
  CHECK(all.first->rank == 1);
  CHECK(all.first_change->rank == 1);
  CHECK(all.kernel_changes.size() == 2);
  CHECK(all.outputs.size() == 6);
  CHECK(all.ranks.size() == 3);
  CHECK_FALSE(all.baseline_is_deterministic);
  CHECK(all.devices_agree);
  CHECK(all.bounds == Bounds::kDevice);
  CHECK_FALSE(all.step_is_finite);
  CHECK(all.outputs_not_finite == 3);
  CHECK(all.largest_share == 0.75);
  CHECK(all.run_a.seconds == 3.5);
  CHECK(all.run_a.contradictions == 6);
  CHECK(all.reference->outputs == 6);
  CHECK(all.reference->equal_to_a == 3);
  CHECK(all.reference->first_unlike_b == "rank 1: loss");
  CHECK(all.conclusion() == Conclusion::kDifferent);
}

TEST_CASE("the conclusion of all ranks is the worst of them") {
  CheckReport fine, unknown, wrong;
  fine.outputs = {{0, "loss", Verdict::kSumOrder, {}, {}}};
  unknown.outputs = {{1, "loss", Verdict::kUnverified, {}, {}}};
  wrong.outputs = {{2, "loss", Verdict::kDiffers, {}, {}}};
  CHECK(fine.conclusion() == Conclusion::kSame);
  CHECK(merge({fine, fine}).conclusion() == Conclusion::kSame);
  CHECK(merge({fine, unknown}).conclusion() == Conclusion::kNotVerified);
  CHECK(merge({wrong, unknown, fine}).conclusion() == Conclusion::kDifferent);
  for (bool CheckReport::*flag :
       {&CheckReport::baseline_is_deterministic, &CheckReport::rewrite_is_deterministic,
        &CheckReport::devices_agree, &CheckReport::step_is_finite}) {
    CheckReport doubtful = fine;
    doubtful.*flag = false;
    CHECK(merge({fine, doubtful}).conclusion() == Conclusion::kNotVerified);
    CHECK_FALSE(decode_check_report(encode(doubtful)).*flag);
  }
}

}  // namespace epweave::replay
