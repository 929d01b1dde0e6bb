// The check of a rewritten graph: right ones, and ones with a fault in one place.
#include "replay/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "replay/kernels/host/check_graphs_test.h"
#include "replay/kernels/host/cpu_table_test.h"

namespace epweave::replay {
namespace {

CheckReport check(const std::string& a, const std::string& b) {
  return check_graphs(parse(a), parse(b), {table(), 2, 3, {}});
}

std::uint64_t count(const RankCheck& rank, Verdict verdict) {
  return rank.nodes[static_cast<std::size_t>(verdict)];
}

}  // namespace

TEST_CASE("parts are compared with the whole") {
  const CheckReport report = check(kWhole, kParts);
  CHECK(report.is_same());
  CHECK(report.baseline_is_deterministic);
  CHECK_FALSE(report.first);
  REQUIRE(report.outputs.size() == 4);
  REQUIRE(report.ranks.size() == 2);
  for (const RankCheck& rank : report.ranks) {
    CHECK(count(rank, Verdict::kEqual) == 8);
    CHECK(count(rank, Verdict::kSumOrder) == 2);  // the parts of dw, and dw
    CHECK(count(rank, Verdict::kDiffers) == 0);
    CHECK(rank.unverified.empty());
    CHECK(rank.skipped.size() == 1);  // the launches
  }
}

TEST_CASE("rows of a regrouped sum that parts have in orders of their own are compared row by row") {
  const std::string whole = whole_taking_rows();
  const CheckReport report = check(whole, parts_taking_rows("7, -1"));
  CHECK_FALSE(report.first);
  for (const RankCheck& rank : report.ranks) CHECK(count(rank, Verdict::kSumOrder) == 3);  // and p
  const CheckReport twice = check(whole, parts_taking_rows("8, 0"));  // row 8 twice, row 0 not at all
  REQUIRE(twice.first);
  CHECK(twice.first->origin == "p");
}

TEST_CASE("equal NaNs verify nothing, nor do infinities in loss or gradients") {
  struct Case {
    const char *role, *result;
    CheckReport::Conclusion conclusion;
  };
  for (const auto& [role, result, conclusion] :
       {Case{"loss", "div.Tensor(%y, %y)", CheckReport::Conclusion::kNotVerified},
        Case{"grad", "div.Tensor(%y, %y)", CheckReport::Conclusion::kNotVerified},
        Case{"user", "div.Tensor(%y, %y)", CheckReport::Conclusion::kNotVerified},
        Case{"grad", "log.default(%y)", CheckReport::Conclusion::kNotVerified},
        Case{"user", "log.default(%y)", CheckReport::Conclusion::kSame}}) {
    INFO(role << " " << result);
    const std::string graph = fmt::format(
        "output {}\ngraph\n  %x = placeholder : f32[4]\n  %y = aten.sub.Tensor(%x, %x) : f32[4]\n"
        "  %z = aten.{} : f32[4]\n  output([%z])\n",
        role, result);
    const CheckReport report = check_graphs(parse(graph), parse(graph), {table(), 2, 3, {}});
    CHECK(report.conclusion() == conclusion);
    CHECK(report.outputs_not_finite == 2);  // of each rank
  }
}

TEST_CASE("without bounds what comes from a regrouped sum is unverified") {
  CheckSetup setup{table(), 2, 3, {}};
  setup.bounds = Bounds::kNone;
  const CheckReport none = check_graphs(parse(kWhole), parse(kParts), setup), whole = check(kWhole, kParts);
  CHECK(none.conclusion() == CheckReport::Conclusion::kNotVerified);
  CHECK(none.baseline_is_deterministic);
  REQUIRE(none.outputs.size() == whole.outputs.size());
  for (std::size_t i = 0; i < none.outputs.size(); ++i) {
    INFO(none.outputs[i].name);
    const Verdict with_bounds = whole.outputs[i].verdict;
    CHECK(none.outputs[i].verdict ==
          (with_bounds == Verdict::kSumOrder ? Verdict::kUnverified : with_bounds));
    CHECK_FALSE(none.outputs[i].bound);
  }
  for (std::size_t rank = 0; rank < none.ranks.size(); ++rank) {
    const RankCheck &counts = none.ranks[rank], &bounded = whole.ranks[rank];
    const auto at = [](const RankCheck& check, Verdict verdict) {
      return check.nodes[static_cast<std::size_t>(verdict)];
    };
    CHECK(at(counts, Verdict::kSumOrder) == 0);
    CHECK(at(counts, Verdict::kEqual) == at(bounded, Verdict::kEqual));
    CHECK(counts.unverified.at("from a regrouped sum: bounds were not asked for (--bounds none)") ==
          at(bounded, Verdict::kSumOrder));
  }
  // What no sum is behind is still compared.
  const std::string wrong = replace(kParts, "(%dw0, %dw1) : bf16[16, 16] from(chunk materialize %dw)",
                                    "(%dw0, %dw0) : bf16[16, 16] from(chunk materialize %dw)");
  CHECK(check_graphs(parse(kWhole), parse(wrong), setup).conclusion() != CheckReport::Conclusion::kSame);
}

// Behind the gradient, a regrouped sum: a number that the host reads, and what it computes from it.
std::string reading(const std::string& graph, bool is_parts) {
  std::string text = replace(graph, "  output([%g])\n", "");
  const auto add = [&](const std::string& line, const std::string& name) {
    text += line + (is_parts ? " from(chunk kept " + name + ")\n" : "\n");
  };
  if (is_parts)
    text =
        replace(text, "%g = aten._to_copy.default\n",
                "%g = aten._to_copy.default, %s = aten.sum.default, %n = aten._local_scalar_dense.default, "
                "%h = operator.mul, %z = aten.mul.Tensor\n");
  add("  %s = aten.sum.default(%g) : f32[]", "%s");
  add("  %n = aten._local_scalar_dense.default(%s)", "%n");
  add("  %h = operator.mul(%n, 0.5)", "%h");
  add("  %z = aten.mul.Tensor(%x, %h) : bf16[64, 32]", "%z");
  return text + "  output([%g, %z, %n])\n";
}

TEST_CASE("a number that is read of a regrouped sum is exact only if both graphs have it") {
  const Graph whole = parse(reading(kTokens, false)), parts = parse(reading(parts_of_tokens(), true));
  const CheckReport report = check_graphs(whole, parts, {table(), 1, 3, {}});
  CHECK(report.conclusion() == CheckReport::Conclusion::kNotVerified);
  CHECK_FALSE(report.first);
  CHECK(report.ops_without_bound == std::set<std::string>{"aten._local_scalar_dense.default"});
  REQUIRE(report.outputs.size() == 3);
  CHECK(report.outputs[0].verdict == Verdict::kSumOrder);
  CHECK(report.outputs[1].verdict == Verdict::kUnverified);
  CHECK(report.outputs[2].verdict == Verdict::kUnverified);
  const CheckReport same =
      check_graphs(whole, parts, {table(), 1, {3, DataKind::kInteger}, {}});  // the sums are exact
  CHECK(same.is_same());
  CHECK(same.ops_without_bound.empty());
}

// The two graphs with a line each behind the gradient, which is the output then.
CheckReport check_behind(const std::string& in_whole, const std::string& in_parts,
                         const std::string& origins) {
  const auto with = [](const std::string& graph, const std::string& lines) {
    return replace(graph, "  output([%g])\n", lines + "  output([%w])\n");
  };
  const std::string parts = replace(parts_of_tokens(), "%g = aten._to_copy.default\n",
                                    "%g = aten._to_copy.default, " + origins + "\n");
  return check_graphs(parse(with(kTokens, in_whole)), parse(with(parts, in_parts)), {table(), 1, 3, {}});
}

TEST_CASE("the size of a regrouped sum is no number that is read of it") {
  const CheckReport report =
      check_behind("  %w = aten.mul.Tensor(%g, 32) : f32[32, 32]\n",
                   "  %k = aten.sym_size.int(%g, 0) from(chunk added)\n"
                   "  %w = aten.mul.Tensor(%g, %k) : f32[32, 32] from(chunk kept %w)\n",
                   "%w = aten.mul.Tensor");
  CHECK(report.is_same());
  CHECK(report.ops_without_bound.empty());
  CHECK(report.outputs.at(0).verdict == Verdict::kSumOrder);
}

// Rows that may be others are found: so many more or less.
TEST_CASE("the size of what is found in a regrouped sum may be another one") {
  const CheckReport report =
      check_behind("  %w = aten.mul.Tensor(%g, 1024) : f32[32, 32]\n",
                   "  %found = aten.nonzero.default(%g) from(chunk added)\n"
                   "  %k = aten.sym_size.int(%found, 0) from(chunk added)\n"
                   "  %w = aten.mul.Tensor(%g, %k) : f32[32, 32] from(chunk kept %w)\n",
                   "%w = aten.mul.Tensor");
  CHECK(report.conclusion() == CheckReport::Conclusion::kNotVerified);
}

TEST_CASE("what both graphs have of a number in doubt is exact") {
  std::string in_whole, in_parts, origins;
  constexpr const char* kLines[][2] = {
      {"s", "aten.sum.default(%g) : f32[]"},
      {"n", "aten._local_scalar_dense.default(%s)"},
      {"zero", "aten.zeros.default([32, 32], dtype=f32) : f32[32, 32]"},
      {"none", "aten.mul.Tensor(%zero, %n) : f32[32, 32]"},
      {"w", "aten.add.Tensor(%g, %none) : f32[32, 32]"},
  };
  for (const auto& [name, call] : kLines) {
    in_whole += fmt::format("  %{} = {}\n", name, call);
    in_parts += fmt::format("  %{} = {} from(chunk kept %{})\n", name, call, name);
    origins += fmt::format("{}%{} = {}", origins.empty() ? "" : ", ", name,
                           std::string(call).substr(0, std::string_view(call).find('(')));
  }
  const CheckReport report = check_behind(in_whole, in_parts, origins);
  CHECK(report.outputs.at(0).verdict == Verdict::kSumOrder);
  CHECK(report.outputs[0].difference.differing > 0);
  CHECK(report.ops_without_bound == std::set<std::string>{"aten._local_scalar_dense.default"});
}

TEST_CASE("a check says how many runs there are as soon as it knows") {
  const std::string wrong = replace(kParts, "[%y0, %y1]", "[%y1, %y0]");
  for (const auto& [b, kept_bytes, bounds, expected] :
       {std::tuple{std::string(kWhole), std::size_t{1} << 30, Bounds::kCpu, 3},  // no sum is regrouped
        {std::string(kParts), std::size_t{1} << 30, Bounds::kCpu, 4},
        {std::string(kParts), std::size_t{1}, Bounds::kCpu, 8},  // lots
        {std::string(kParts), std::size_t{1} << 30, Bounds::kNone, 3},
        {wrong, std::size_t{1} << 30, Bounds::kCpu, 6}}) {
    INFO(b);
    CheckSetup setup{table(), 2, 3, {}};
    setup.bounds = bounds;
    setup.kept_bytes = kept_bytes;
    std::size_t said = 0;
    std::set<std::string> runs;
    setup.expect_runs = [&](std::size_t count) { said = count; };
    setup.options.progress = [&](std::string_view run, std::size_t, std::size_t) { runs.emplace(run); };
    check_graphs(parse(kWhole), parse(b), setup);
    CHECK(said == static_cast<std::size_t>(expected));
    CHECK(runs.size() == said);
  }
}

TEST_CASE("values that cannot be kept together are compared in lots") {
  CheckSetup setup{table(), 2, 3, {}};
  setup.kept_bytes = 1;  // each group by itself
  const CheckReport lots = check_graphs(parse(kWhole), parse(kParts), setup), whole = check(kWhole, kParts);
  CHECK(lots.is_same());
  REQUIRE(lots.ranks.size() == whole.ranks.size());
  for (std::size_t rank = 0; rank < lots.ranks.size(); ++rank) {
    CHECK(lots.ranks[rank].nodes == whole.ranks[rank].nodes);
    CHECK(lots.ranks[rank].unverified == whole.ranks[rank].unverified);
  }
  CHECK(lots.largest_share == whole.largest_share);
}

TEST_CASE("a regrouped sum is held to what its summands allow") {
  const CheckReport report = check(kWhole, kParts);
  const OutputCheck& output = report.outputs[1];
  CHECK(output.verdict == Verdict::kSumOrder);
  CHECK(output.difference.differing > 0);
  REQUIRE(output.bound);
  CHECK(output.bound->is_within);
  CHECK(output.bound->largest_share > 0.05);  // the bound is not far above what happens
  CHECK(output.bound->largest_share <= 1);
  // An error of 8 units of the last place in a sum of the same magnitude is beyond it.
  const std::string wrong = replace(kParts, "(%dw0, %dw1) : bf16[16, 16] from(chunk materialize %dw)",
                                    "(%dw0, %dw1, alpha=1.0625) : bf16[16, 16] from(chunk materialize %dw)");
  const CheckReport other = check(kWhole, wrong);
  CHECK_FALSE(other.is_same());
  CHECK(other.outputs[1].verdict == Verdict::kDiffers);
}

// The smallest power of two that is found; 0: none up to 2.
double find_least(const std::string& a, const std::string& b, Where where, const ErrorPosition& at) {
  double least = 0;
  for (double size = 2; size >= 0x1p-23; size /= 2) {
    const std::string wrong = replace(b, kGood, error_of(size, where, at));
    if (check_graphs(parse(a), parse(wrong), {table(), 1, 3, {}}).is_same()) break;
    least = size;
  }
  return least;
}

// Of the elements of a row, the one nearest to this share of the row's largest.
ErrorPosition find_place(const Tensor& gradient, std::int64_t row, double share) {
  const float* numbers = gradient.data<float>() + row * gradient.sizes[1];
  double largest = 0;
  for (std::int64_t i = 0; i < gradient.sizes[1]; ++i)
    largest = std::max(largest, std::abs(static_cast<double>(numbers[i])));
  ErrorPosition best{row, 0};
  const auto distance = [&](std::int64_t i) {
    return std::abs(std::log2(std::abs(static_cast<double>(numbers[i])) / largest / share));
  };
  for (std::int64_t i = 0; i < gradient.sizes[1]; ++i)
    if (distance(i) < distance(best.column)) best.column = i;
  return best;
}

Tensor run_for_gradient(const std::string& text) {
  const Graph graph = parse(text);
  const World world = derive_world(graph, 1);
  static HostMemory memory;
  const RunResult run = run_ranks(graph, world, table(), make_inputs(graph, world, table(), {3}));
  return copy_tensor(run.ranks[0].outputs[0].tensor(), memory);
}

TEST_CASE("which errors of a regrouped gradient are found", "[repetitive]") {
  const std::string whole = kTokens, parts = parts_of_tokens();
  const Tensor gradient = run_for_gradient(whole);
  const CheckReport right = check_graphs(parse(whole), parse(parts), {table(), 1, 3, {}});
  CHECK(right.is_same());
  REQUIRE(right.outputs.at(0).bound);
  CHECK(right.outputs[0].bound->largest_share > 0.05);
  CHECK(right.outputs[0].bound->largest_unrounded < kUnroundedShare / 16);
  // By way of float64 there are no ideals: what is found by the bounds alone.
  const auto in_double = [](const std::string& text, const std::string& from) {
    return replace(
        replace(text, "= aten._to_copy.default(" + from + ", dtype=f32)",
                "= aten._to_copy.default(%far, dtype=f32)"),
        "  %g = ",
        "  %far = aten._to_copy.default(" + from + ", dtype=f64) : f64[32, 32] from(chunk added)\n  %g = ");
  };
  std::string far_whole = in_double(whole, "%dw");
  far_whole = replace(far_whole, " from(chunk added)", "");
  const std::string far_parts = in_double(parts, "%bad");
  std::string table_text;
  for (const double share : {1.0, 0.1, 0.01, 0.001}) {
    double worst = 0, worst_by_bound = 0;
    for (std::int64_t row = 0; row < 32; row += 5) {
      const ErrorPosition at = find_place(gradient, row, share);
      worst = std::max(worst, find_least(whole, parts, Where::kElement, at));
      const double by_bound = find_least(far_whole, far_parts, Where::kElement, at);
      worst_by_bound = std::max(worst_by_bound, by_bound == 0 ? 4 : by_bound);
    }
    table_text += fmt::format("element of {} of its row's largest: 2^{}, by bounds alone 2^{}\n", share,
                              std::log2(worst), std::log2(worst_by_bound));
    CHECK(worst > 0);
    CHECK(worst <= 0x1p-18);
  }
  for (const Where where : {Where::kRow, Where::kTensor}) {
    const double least = find_least(whole, parts, where, {3, 0});
    table_text += fmt::format("{}: 2^{}, by bounds alone 2^{}\n", where == Where::kRow ? "row" : "tensor",
                              std::log2(least), std::log2(find_least(far_whole, far_parts, where, {3, 0})));
    CHECK(least > 0);
    CHECK(least <= 0x1p-20);
  }
  SUCCEED(table_text);  // docs/replay.md; printed with --success
}

TEST_CASE("which errors are found behind attention's gradients and complex numbers", "[repetitive]") {
  const std::string whole = kQueries, parts = parts_of_queries();
  const CheckReport right = check_graphs(parse(whole), parse(parts), {table(), 1, 3, {}});
  CHECK(right.is_same());
  REQUIRE(right.outputs.at(0).bound);
  const BoundComparison& found = *right.outputs[0].bound;
  CHECK(found.has_ideals);
  CHECK(found.largest_share > 0.05);
  CHECK(found.largest_unrounded < kUnroundedShare / 16);
  const Tensor gradient = run_for_gradient(whole);
  std::string table_text;
  for (const double share : {1.0, 0.1, 0.01, 0.001}) {
    double worst = 0;
    for (std::int64_t row = 0; row < 32; row += 5) {
      const double least = find_least(whole, parts, Where::kElement, find_place(gradient, row, share));
      worst = std::max(worst, least == 0 ? 4 : least);
    }
    table_text += fmt::format("element of {} of its row's largest: 2^{}\n", share, std::log2(worst));
    CHECK(worst <= 0x1p-12);
  }
  for (const Where where : {Where::kRow, Where::kTensor}) {
    const double least = find_least(whole, parts, where, {3, 0});
    table_text += fmt::format("{}: 2^{}\n", where == Where::kRow ? "row" : "tensor", std::log2(least));
    CHECK(least > 0);
    CHECK(least <= 0x1p-12);
  }
  SUCCEED(table_text);  // docs/replay.md; printed with --success
}

namespace {

// A step of AdamW in place, of the gradient %g clipped by its norm. `kept`: in the second graph.
std::string with_step(const std::string& text, bool kept) {
  constexpr const char* kLines[][2] = {
      {"head", "aten.slice.Tensor(%x, 0, 0, 32) : bf16[32, 32]"},
      {"p0", "aten._to_copy.default(%head, dtype=f32) : f32[32, 32]"},
      {"norm", "aten.linalg_vector_norm.default(%g) : f32[]"},
      {"all", "aten.stack.default([%norm]) : f32[1]"},
      {"total", "aten.linalg_vector_norm.default(%all) : f32[]"},
      {"above", "aten.add.Tensor(%total, 1e-06) : f32[]"},
      {"inverse", "aten.reciprocal.default(%above) : f32[]"},
      {"scaled", "aten.mul.Tensor(%inverse, 0.1) : f32[]"},
      {"clip", "aten.clamp.default(%scaled, max=1.0) : f32[]"},
      {"clipped", "aten.mul_.Tensor(%g, %clip) : f32[32, 32]"},
      {"p1", "aten.clone.default(%p0) : f32[32, 32]"},
      {"p2", "aten.mul_.Scalar(%p1, 0.999) : f32[32, 32]"},
      {"m1", "aten.mul.Tensor(%p0, 0.001) : f32[32, 32]"},
      {"m2", "aten.lerp_.Scalar(%m1, %clipped, 0.1) : f32[32, 32]"},
      {"v1", "aten.mul.Tensor(%p0, %p0) : f32[32, 32]"},
      {"v2", "aten.mul_.Scalar(%v1, 1e-06) : f32[32, 32]"},
      {"v3", "aten.addcmul_.default(%v2, %clipped, %clipped, value=0.05) : f32[32, 32]"},
      {"root", "aten.sqrt.default(%v3) : f32[32, 32]"},
      {"d1", "aten.div_.Scalar(%root, 0.5) : f32[32, 32]"},
      {"d2", "aten.add_.Scalar(%d1, 1e-08) : f32[32, 32]"},
      {"p3", "aten.addcdiv_.default(%p2, %m2, %d2, value=-0.01) : f32[32, 32]"},
  };
  std::string lines, origins;
  for (const auto& [name, call] : kLines) {
    const std::string target = std::string(call).substr(0, std::string_view(call).find_first_of(" ("));
    lines +=
        fmt::format("  %{} = {}{}\n", name, call, kept ? fmt::format(" from(chunk kept %{})", name) : "");
    origins += fmt::format(", %{} = {}", name, target);
  }
  const std::string made = replace(text, "  output([%g])\n", lines + "  output([%p3, %total])\n");
  return kept ? replace(made, "%g = aten._to_copy.default\n", "%g = aten._to_copy.default" + origins + "\n")
              : made;
}

}  // namespace

TEST_CASE("which errors are found behind clipping and an optimizer's step") {
  const std::string whole = with_step(kTokens, false), parts = with_step(parts_of_tokens(), true);
  const CheckReport right = check_graphs(parse(whole), parse(parts), {table(), 1, 3, {}});
  CHECK(right.is_same());
  REQUIRE(right.outputs.size() == 2);
  for (const OutputCheck& output : right.outputs) {
    INFO(output.name);
    CHECK(output.verdict == Verdict::kSumOrder);
    REQUIRE(output.bound);
    CHECK(output.bound->has_ideals);
    CHECK(output.bound->largest_share <= 1);
    CHECK(output.bound->largest_unrounded < kUnroundedShare / 16);
  }
  const Tensor gradient = run_for_gradient(kTokens);
  for (const double share : {1.0, 0.1}) {
    const double least = find_least(whole, parts, Where::kElement, find_place(gradient, 5, share));
    CHECK(least > 0);
    CHECK(least <= 0x1p-12);
  }
  for (const Where where : {Where::kRow, Where::kTensor}) {
    const double least = find_least(whole, parts, where, {3, 0});
    CHECK(least > 0);
    CHECK(least <= 0x1p-12);
  }
}

// The numbers 1, e, 0, e with e = 2^-24, each a part. Sixteen lanes add them exactly, and so does
// float64; one after the other in float32 they give 1.
TEST_CASE("parts that add up in float64 by chance are a regrouped sum") {
  const char* const whole = R"(graph
  %one = aten.full.default([1, 2], 1.0, dtype=f32) : f32[1, 2]
  %e = aten.full.default([1, 2], 5.9604644775390625e-08, dtype=f32) : f32[1, 2]
  %zero = aten.full.default([1, 2], 0.0, dtype=f32) : f32[1, 2]
  %x = aten.cat.default([%one, %e, %zero, %e]) : f32[4, 2]
  %s = aten.sum.dim_IntList(%x, [0]) : f32[2]
  output([%s])
)";
  const char* const parts =
      R"(origins %one = aten.full.default, %e = aten.full.default, %zero = aten.full.default, %s = aten.sum.dim_IntList
graph
  %one = aten.full.default([1, 2], 1.0, dtype=f32) : f32[1, 2] from(chunk kept %one)
  %e = aten.full.default([1, 2], 5.9604644775390625e-08, dtype=f32) : f32[1, 2] from(chunk kept %e)
  %zero = aten.full.default([1, 2], 0.0, dtype=f32) : f32[1, 2] from(chunk kept %zero)
  %s0 = aten.sum.dim_IntList(%one, [0]) : f32[2] from(chunk body %s 0/4)
  %s1 = aten.sum.dim_IntList(%e, [0]) : f32[2] from(chunk body %s 1/4)
  %s2 = aten.sum.dim_IntList(%zero, [0]) : f32[2] from(chunk body %s 2/4)
  %s3 = aten.sum.dim_IntList(%e, [0]) : f32[2] from(chunk body %s 3/4)
  %a = aten.add.Tensor(%s0, %s1) : f32[2] from(chunk materialize %s)
  %b = aten.add.Tensor(%a, %s2) : f32[2] from(chunk materialize %s)
  %s = aten.add.Tensor(%b, %s3) : f32[2] from(chunk materialize %s)
  output([%s])
)";
  const CheckReport report = check_graphs(parse(whole), parse(parts), {table(), 1, 3, {}});
  CHECK(report.is_same());
  REQUIRE(report.outputs.size() == 1);
  CHECK(report.outputs[0].verdict == Verdict::kSumOrder);
  CHECK(report.outputs[0].difference.differing == 2);
}

TEST_CASE("a regrouped sum that is exact is equal") {
  const CheckReport report = check(R"(graph
  %x = aten.ones.default([4, 2], dtype=f32) : f32[4, 2]
  %s = aten.sum.dim_IntList(%x, [0]) : f32[2]
  output([%s])
)",
                                   R"(origins %x = aten.ones.default, %s = aten.sum.dim_IntList
graph
  %x = aten.ones.default([4, 2], dtype=f32) : f32[4, 2] from(chunk kept %x)
  %x0 = aten.slice.Tensor(%x, 0, 0, 1) : f32[1, 2] from(chunk split %x 0/2)
  %x1 = aten.slice.Tensor(%x, 0, 1, 4) : f32[3, 2]+2 from(chunk split %x 1/2)
  %s0 = aten.sum.dim_IntList(%x0, [0]) : f32[2] from(chunk body %s 0/2)
  %s1 = aten.sum.dim_IntList(%x1, [0]) : f32[2] from(chunk body %s 1/2)
  %s = aten.add.Tensor(%s0, %s1) : f32[2] from(chunk materialize %s)
  output([%s])
)");
  CHECK(report.is_same());
  for (const OutputCheck& output : report.outputs) CHECK(output.verdict == Verdict::kEqual);
}

TEST_CASE("a graph equals itself") {
  const CheckReport report = check(kWhole, kWhole);
  CHECK(report.is_same());
  for (const RankCheck& rank : report.ranks) CHECK(count(rank, Verdict::kEqual) == 7);
}

TEST_CASE("injected faults are found where they are made") {
  for (const GraphFault& fault : kFaults) {
    INFO(fault.kind);
    const std::string wrong = replace(kParts, fault.from, fault.to);
    const Graph b = parse(wrong);
    const CheckReport report = check_graphs(parse(kWhole), b, {table(), 2, 3, {}});
    CHECK_FALSE(report.is_same());
    if (*fault.found_at == '\0') {
      CHECK_FALSE(report.first);
      continue;
    }
    REQUIRE(report.first);
    CHECK(b.text(b.step().nodes[report.first->node].name) == fault.found_at);
    CHECK(report.first->difference);
    CHECK(report.first->difference->index >= 0);
  }
}

TEST_CASE("parts in torchtitan's names") {
  const std::string whole = R"(graph
  %x = placeholder : f32[4]
  %h = aten.neg.default(%x) : f32[4]
  %y = aten.abs.default(%h) : f32[4]
  output([%y])
)";
  const std::string parts = R"(graph
  %x = placeholder : f32[4]
  %a = aten.slice.Tensor(%x, 0, 0, 2) : f32[2]
  %b = aten.slice.Tensor(%x, 0, 2, 4) : f32[2]+2
  %h_chunk0 = aten.neg.default(%a) : f32[2]
  %h_chunk1 = aten.neg.default(%b) : f32[2]
  %cat = aten.cat.default([%h_chunk0, %h_chunk1]) : f32[4]
  %y = aten.abs.default(%cat) : f32[4]
  output([%y])
)";
  const CheckReport right = check(whole, parts);
  CHECK(right.is_same());
  CHECK(count(right.ranks[0], Verdict::kEqual) == 3);
  CHECK(right.ranks[0].skipped.at("made by the rewrite") == 3);
  const std::string wrong =
      replace(parts, "%h_chunk1 = aten.neg.default(%b)", "%h_chunk1 = aten.neg.default(%a)");
  const Graph b = parse(wrong);
  const CheckReport report = check_graphs(parse(whole), b, {table(), 2, 3, {}});
  REQUIRE(report.first);
  CHECK(b.text(b.step().nodes[report.first->node].name) == "h_chunk1");
}

TEST_CASE("the host computes with a floating-point number that it reads") {
  const std::string on_host = R"(symbol zuf0 unbacked
graph
  %x = placeholder : f32[4]
  %s = aten.sum.default(%x) : f32[]
  %f = aten._local_scalar_dense.default(%s) : SymFloat(zuf0) bind(zuf0)
  %m = operator.mul(%f, 2.5) : SymFloat(2.5*zuf0)
  %d = operator.truediv(%m, 5.0) : SymFloat(FloatTrueDiv(2.5*zuf0, 5.0))
  %p = operator.pow(%d, 2.0) : SymFloat(FloatPow(FloatTrueDiv(2.5*zuf0, 5.0), 2.0))
  %q = operator.truediv(%p, %d) : SymFloat(FloatTrueDiv(FloatPow(FloatTrueDiv(2.5*zuf0, 5.0), 2.0), FloatTrueDiv(2.5*zuf0, 5.0)))
  %y = aten.mul.Tensor(%x, %q) : f32[4]
  output([%y])
)";
  const std::string in_tensors = R"(graph
  %x = placeholder : f32[4]
  %t = aten.sum.default(%x) : f32[]
  %h = aten.mul.Tensor(%t, 0.5) : f32[]
  %z = aten.mul.Tensor(%x, %h) : f32[4]
  output([%z])
)";
  const CheckReport report =
      check_graphs(parse(on_host), parse(in_tensors), {table(), 2, {3, DataKind::kInteger}, {}});
  CHECK(report.is_same());
  REQUIRE(report.outputs.size() == 2);
  CHECK(report.outputs[0].verdict == Verdict::kEqual);
}

TEST_CASE("a view may stand on either side of a write to its storage") {
  const std::string before = R"(graph
  %x = placeholder : f32[4]
  %z = aten.mul.Tensor(%x, 2) : f32[4]
  %v = aten.view.default(%z, [2, 2]) : f32[2, 2]
  %w = aten.add_.Tensor(%z, 1) : f32[4]
  %y = aten.neg.default(%v) : f32[2, 2]
  output([%y, %w])
)";
  const std::string view = "  %v = aten.view.default(%z, [2, 2]) : f32[2, 2]\n",
                    write = "  %w = aten.add_.Tensor(%z, 1) : f32[4]\n";
  const std::string after = replace(before, view + write, write + view);
  for (const auto& [a, b] : {std::pair{before, after}, {after, before}}) {
    const CheckReport report = check(a, b);
    CHECK(report.is_same());
    CHECK(report.ranks[0].skipped.at("a view of memory that is written in place: its readers are compared") ==
          1);
  }
  // A read is on its side of the write.
  const std::string read = "  %y = aten.neg.default(%v) : f32[2, 2]\n";
  const Graph early = parse(replace(before, write + read, read + write));
  const CheckReport wrong = check_graphs(parse(before), early, {table(), 2, 3, {}});
  REQUIRE(wrong.first);
  CHECK(early.text(early.step().nodes[wrong.first->node].name) == "y");
}

TEST_CASE("faults that stop the run are found at their node") {
  const auto failure = [](const std::string& wrong) -> std::string {
    try {
      check(kWhole, wrong);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "no failure";
  };
  SECTION("a wait dropped") {
    const std::string unwaited =
        replace(kParts, "_c10d_functional.wait_tensor.default(%g1)", "aten.alias.default(%g1)");
    CHECK(
        failure(replace(unwaited, "%y1 = aten.mul.Tensor(%r1, %x1)", "%y1 = aten.mul.Tensor(%g1, %x1)"))
            .find(
                "%y1 = aten.mul.Tensor: reads or writes the result of a collective that nobody waited for") !=
        std::string::npos);
  }
  SECTION("a collective on an unknown group") {
    CHECK(
        failure(replace(kParts, "all_reduce.default(%h1, \"sum\", \"7\")",
                        "all_reduce.default(%h1, \"sum\", \"8\")"))
            .find(
                "%g1 = _c10d_functional.all_reduce.default: process group '8' is not in the graph's table") !=
        std::string::npos);
  }
  SECTION("a part of another size") {
    CHECK(failure(replace(kParts, "(%x, 0, 4, 8) : bf16[4, 16]+64", "(%x, 0, 5, 8) : bf16[4, 16]+80"))
              .find("%x1 = aten.slice.Tensor: the result is bf16[3, 16]") != std::string::npos);
  }
}

}  // namespace epweave::replay
