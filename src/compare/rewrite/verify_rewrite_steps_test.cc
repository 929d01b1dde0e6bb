// Small steps through the passes: what they give is accepted, and one line changed in it is not.
#include <catch2/catch.hpp>
#include <string>

#include "analysis/verify.h"
#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

constexpr const char* kChunk = "chunk{roots=layers.*,require-exchange=false}";

Graph parse_step(const std::string& text) {
  return parse_text("epweave text 1\ndevice cpu\n" + text, "before");
}

struct Step {
  Graph before;
  std::string after;  // as text

  Step(const std::string& text, const std::string& pipeline)
      : before(parse_step(text)),
        after(print_text(run_pipeline(before, parse_pipeline(pipeline), {.verify = VerifyPolicy::kOff}))) {}

  Graph graph() const { return parse_text(after, "after", before.context); }
  // The invariants that are broken, each once, in order.
  std::string broken() const {
    std::string names;
    for (const Violation& violation : verify_rewrite(before, graph()).violations)
      if (names.find(violation.invariant) == names.npos)
        names += (names.empty() ? "" : ", ") + violation.invariant;
    return names;
  }
  Step with(std::string_view old, std::string_view replacement) const {
    Step changed = *this;
    const std::size_t at = changed.after.find(old);
    REQUIRE(at != changed.after.npos);
    changed.after.replace(at, old.size(), replacement);
    return changed;
  }
  // With a line taken out and put behind another one; both begin as given.
  Step moved(std::string_view line, std::string_view behind) const {
    Step changed = *this;
    const auto find_line = [&](std::string_view word) {
      const std::size_t at = changed.after.find("\n  " + std::string(word) + " = ");
      REQUIRE(at != changed.after.npos);
      return std::pair(at + 1, changed.after.find('\n', at + 1) + 1);
    };
    const auto [begin, end] = find_line(line);
    const std::string taken = changed.after.substr(begin, end - begin);
    changed.after.erase(begin, end - begin);
    changed.after.insert(find_line(behind).second, taken);
    return changed;
  }
};

// ----------------------------------------------------------------------------------------------
// numbers

const std::string kNumberRead = R"text(
symbol u0 range=[2, 64] hint=4 unbacked
symbol u1 range=[0, 64] hint=2 size_like unbacked asserts=[u1 <= u0]

graph
  %ids = placeholder : i64[u0] role=user which=ids
  %x = placeholder : f32[u0, 3] role=user which=x
  %sum = aten.sum.default(%ids) : i64[] @layers.0 ep=compute
  %n = aten._local_scalar_dense.default(%sum) : SymInt(u1) @layers.0 ep=compute bind(u1)
  %twice = operator.mul(%n, 2) : SymInt(2*u1) @layers.0 ep=compute
  %relu = aten.relu.default(%x) : f32[u0, 3] @layers.0 ep=compute
  %zeros = aten.new_zeros.default(%x, [%n, 3]) : f32[u1, 3]
  %more = aten.new_zeros.default(%x, [%twice, 3]) : f32[2*u1, 3]
  output([%relu, %zeros, %more])
)text";

TEST_CASE("a number read in parts sizes a tensor outside of its region") {
  const Step step(kNumberRead, GENERATE("chunk{roots=layers.*,require-exchange=false}",
                                        "chunk{roots=layers.*,require-exchange=false,parts=3},concretize"));
  CHECK(step.broken() == "");
  CHECK(step.with("[%n_chunk_materialized, 3]", "[%n_chunk0, 3]").broken() == "rewrite-argument");
  CHECK(step.with("[%n_chunk_materialized, 3]", "[%twice_chunk_materialized, 3]").broken() ==
        "rewrite-argument");
}

TEST_CASE("the size of a part is not that of the whole") {
  const Step step(R"text(
symbol u0 range=[2, 64] hint=4 unbacked

graph
  %x = placeholder : f32[u0, 3] role=user which=x
  %relu = aten.relu.default(%x) : f32[u0, 3] @layers.0 ep=compute
  %n = aten.sym_size.int(%relu, 0) : SymInt(u0)
  %ones = aten.new_ones.default(%relu, [4, 3]) : f32[4, 3]
  output([%relu, %n, %ones])
)text",
                  kChunk);
  CHECK(step.broken() == "");
  // Dtype and device of a part are those of the whole.
  CHECK(step.with("new_ones.default(%relu_chunk_materialized", "new_ones.default(%relu_chunk0").broken() ==
        "");
  CHECK(step.with("sym_size.int(%relu_chunk_materialized, 0) : SymInt(u0)",
                  "sym_size.int(%relu_chunk0, 0) : SymInt((u0//2))")
            .broken() == "rewrite-type");
}

TEST_CASE("the recorded size is what the parts add up to") {
  const Step step(kNumberRead, kChunk);
  CHECK(step.with(": f32[u2 + u3, 3]", ": f32[2*u2, 3]").broken() == "rewrite-type");
  CHECK(step.with(": f32[2*u2 + 2*u3, 3]", ": f32[u2 + u3, 3]").broken() == "rewrite-type");
}

TEST_CASE("a number that only a multiple of is wanted outside of its region") {
  const Step step(R"text(
symbol u0 range=[2, 64] hint=4 unbacked
symbol u1 range=[0, 64] hint=2 size_like unbacked asserts=[u1 <= u0]

graph
  %ids = placeholder : i64[u0] role=user which=ids
  %x = placeholder : f32[u0, 3] role=user which=x
  %sum = aten.sum.default(%ids) : i64[] @layers.0 ep=compute
  %n = aten._local_scalar_dense.default(%sum) : SymInt(u1) @layers.0 ep=compute bind(u1)
  %twice = operator.mul(%n, 2) : SymInt(2*u1) @layers.0 ep=compute
  %more = aten.new_zeros.default(%x, [%twice, 3]) : f32[2*u1, 3]
  output([%more])
)text",
                  kChunk);
  CHECK(step.broken() == "");
  CHECK(step.with(": f32[2*u2 + 2*u3, 3]", ": f32[2*u2 + u3, 3]").broken() == "rewrite-type");
}

TEST_CASE("of two numbers only the sum is wanted whole, or that and one of them") {
  const std::string returned = GENERATE("%zeros", "%zeros, %more", "%more, %zeros");
  const Step step(R"text(
symbol u0 range=[2, 64] hint=4 unbacked
symbol u1 range=[0, 64] hint=2 size_like unbacked
symbol u2 range=[0, 64] hint=2 size_like unbacked

graph
  %ids = placeholder : i64[u0] role=user which=ids
  %x = placeholder : f32[u0, 3] role=user which=x
  %sum = aten.sum.default(%ids) : i64[] @layers.0 ep=compute
  %n = aten._local_scalar_dense.default(%sum) : SymInt(u1) @layers.0 ep=compute bind(u1)
  %m = aten._local_scalar_dense.default(%sum) : SymInt(u2) @layers.0 ep=compute bind(u2)
  %all = operator.add(%n, %m) : SymInt(u1 + u2) @layers.0 ep=compute
  %zeros = aten.new_zeros.default(%x, [%all]) : f32[u1 + u2]
  %more = aten.new_zeros.default(%x, [%m]) : f32[u2]
  output([)text" + returned +
                      "])\n",
                  std::string(kChunk) + ",dce");
  CHECK(step.broken() == "");
  CHECK(step.with("f32[u3 + u4 + u5 + u6]", "f32[u3 + u4 + u5 + u5]").broken() == "rewrite-type");
}

TEST_CASE("extents of an input in two symbols become a number") {
  const Step step(R"text(
symbol b range=[2, 64] hint=4 unbacked
symbol r range=[2, 64] hint=5 unbacked

graph
  %x = placeholder : f32[b, 8] role=user which=x
  %y = placeholder : f32[b + r, 8] role=buffer
  %neg = aten.neg.default(%y) : f32[b + r, 8]
  %r = aten.new_zeros.default(%x, [sym(r)]) : f32[r]
  output([%x, %neg, %r])
)text",
                  "concretize");
  CHECK(step.broken() == "");
  CHECK(step.with("(%x, [5]) : f32[5]", "(%x, [4]) : f32[4]").broken() == "rewrite-argument, rewrite-type");
}

TEST_CASE("a number that became a constant in a nested graph") {
  const Step step(R"text(
symbol b range=[2, 4] hint=4 unbacked asserts=[b <= 4]

graph
  %x = placeholder : f32[b] example=SymInt(b)
  %g = get_attr attr=graph(inner)
  output([%x, %g])

graph inner
  %y = placeholder : f32[b]
  %n = placeholder : SymInt(b)
  %m = operator.add(%n, 1) : SymInt(b + 1)
  output(%m)
)text",
                  "concretize");
  CHECK(step.broken() == "");
  CHECK(step.with("output(5)", "output(4)").broken() == "rewrite-nested");
  CHECK(step.with("output(5)", "output(%n)").broken() == "rewrite-nested");
}

// ----------------------------------------------------------------------------------------------
// updates

const std::string kUpdatedTwice = R"text(
symbol u0 range=[2, 64] hint=4 unbacked

graph
  %x = placeholder : f32[u0, 3] role=user which=x
  %buffer = placeholder : f32[3] role=buffer fqn=counts
  %sum = aten.sum.dim_IntList(%x, [0]) : f32[3] @layers.0 ep=compute
  %first = aten.add_.Tensor(%buffer, %sum) : f32[3] @layers.0 ep=compute
  %exp = aten.exp.default(%first) : f32[3]
  %relu = aten.relu.default(%x) : f32[u0, 3] @layers.1 ep=compute
  %rows = aten.sum.dim_IntList(%relu, [0]) : f32[3] @layers.1 ep=compute
  %second = aten.add_.Tensor(%buffer, %rows) : f32[3] @layers.1 ep=compute
  %log = aten.exp.default(%second) : f32[3]
  output([%exp, %log, %relu])
)text";

TEST_CASE("a buffer updated by two regions") {
  const Step step(kUpdatedTwice, GENERATE("chunk{roots=layers.*,require-exchange=false}",
                                          "chunk{roots=layers.*,require-exchange=false,parts=3}"));
  CHECK(step.broken() == "");
  const std::string last = step.after.find("%first_chunk2") == step.after.npos ? "1)" : "2)";
  CHECK(step.with("exp.default(%first_chunk" + last, "exp.default(%first_chunk0)").broken() ==
        "rewrite-argument");
}

TEST_CASE("a region that begins to update a buffer before the one in front of it is done") {
  const Step step(kUpdatedTwice, kChunk);
  CHECK(step.broken() == "");
  CHECK(step.moved("%first_chunk1", "%second_chunk0").moved("%exp", "%first_chunk1").broken() ==
        "rewrite-effects");
}

std::string replace_all(std::string text, std::string_view old, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(old, at)) != text.npos; at += with.size())
    text.replace(at, old.size(), with);
  return text;
}

TEST_CASE("each part adds its part to what all parts share") {
  const auto with_op = [](std::string_view op) {
    Step step(kUpdatedTwice, kChunk);
    step.before = parse_step(replace_all(kUpdatedTwice, "aten.add_.Tensor", op));
    step.after = replace_all(step.after, "aten.add_.Tensor", op);
    return step.broken();
  };
  CHECK(with_op("aten.sub_.Tensor") == "");
  // A product of parts is not the product of the whole.
  CHECK(with_op("aten.mul_.Tensor") == "rewrite-effects, rewrite-argument, rewrite-part");
  // Every part adds all of it, with what the part before added.
  const std::string whole = replace_all(kUpdatedTwice, "Tensor(%buffer, %sum)", "Tensor(%buffer, %buffer)");
  Step step(kUpdatedTwice, kChunk);
  step.before = parse_step(whole);
  step.after = replace_all(replace_all(step.after, "%sum_chunk0)", "%buffer)"), "%sum_chunk1)", "%buffer)");
  CHECK(step.broken() == "rewrite-effects, rewrite-part");
}

// ----------------------------------------------------------------------------------------------
// spellings

TEST_CASE("parts are cleaned up behind chunk") {
  const Step step(R"text(
symbol u0 range=[2, 64] hint=4 unbacked

graph
  %x = placeholder : f32[u0, 8] role=user which=x
  %n = aten.sym_size.int(%x, 0) : SymInt(u0) @layers.0.moe ep=compute
  %view = aten.view.default(%x, [-1, 8]) : f32[u0, 8] @layers.0.moe ep=compute
  %flat = aten.view.default(%view, [-1]) : f32[8*u0] @layers.0.moe ep=compute
  %add = aten.add.Tensor(%view, 1) : f32[u0, 8] @layers.0.moe ep=compute
  %view_1 = aten.view.default(%add, [%n, 8]) : f32[u0, 8] @layers.0.moe ep=compute
  output([%view_1, %view, %flat])
)text",
                  "chunk{roots=layers.*,require-exchange=false,parts=4},dce,canonicalize");
  CHECK(step.after.find("%view_1_chunk0") == step.after.npos);
  CHECK(step.broken() == "");
  CHECK(verify_graph(step.graph()).empty());
  CHECK(step.with("cat.default([%x_split_0, %x_split_1", "cat.default([%x_split_1, %x_split_0").broken() ==
        "rewrite-join");
  CHECK(step.with("cat.default([%x_split_0, %x_split_1", "cat.default([%add_chunk0, %x_split_1").broken() ==
        "rewrite-join");
}

TEST_CASE("a group that is listed twice is the first one of its name") {
  const Step step(R"text(
group 0 ranks=[0, 1, 2, 3] description=fsdp
group 0 ranks=[0, 1]

graph
  %x = placeholder : f32[8]
  %g = _c10d_functional.all_gather_into_tensor.default(%x, 4, "0") : f32[32]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[32]
  output([%w])
)text",
                  "dce");
  CHECK(step.broken() == "");
  CHECK(step.with("group 0 ranks=[0, 1, 2, 3]", "group 0 ranks=[0, 1]").broken() == "rewrite-group");
}

// ----------------------------------------------------------------------------------------------
// looked-up groups

// Of four ranks, two and two; a parameter of each of two layers, which backward gathers again.
constexpr const char* kLookedUp = R"(
info global_meshes = {"dense": {"axes": ["fsdp", "tp"], "shape": [2, 2]}}
info world_size = 4
info compile_on_one_rank = True
info rank = 0
group 23 ranks=[0, 2] description=mesh_fsdp axes=[fsdp]
graph
  %p = placeholder : f32[4, 8] role=parameter fqn=layers.0.a.weight
  %mesh = placeholder : =mesh(["fsdp", "tp"], [2, 2], [[0, 1], [2, 3]], "cuda") role=parameter fqn=layers.0.a.weight
  %q = placeholder : f32[4, 8] role=parameter fqn=layers.0.b.weight
  %x = placeholder : f32[16, 8] role=user which=x
  %group = _dtensor.mesh_get_process_group.default(%mesh, 0) : =pg(23) @layers.0.a
  %ag = _c10d_functional.all_gather_into_tensor.default(%p, 2, %group) : f32[8, 8] @layers.0.a
  %w = _c10d_functional.wait_tensor.default(%ag) : f32[8, 8] @layers.0.a
  %group_1 = _dtensor.mesh_get_process_group.default(%mesh, 0) : =pg(23) @layers.0.b
  %ag_1 = _c10d_functional.all_gather_into_tensor.default(%q, 2, %group_1) : f32[8, 8] @layers.0.b
  %w_1 = _c10d_functional.wait_tensor.default(%ag_1) : f32[8, 8] @layers.0.b
  %mm = aten.mm.default(%x, %w) : f32[16, 8] @layers.0.a
  %mm_1 = aten.mm.default(%mm, %w_1) : f32[16, 8] @layers.0.b
  %loss = aten.sin.default(%mm_1) : f32[16, 8] @lm_head
  %gb = aten.mm.default(%loss, %w_1) : f32[16, 8] @layers.0.b bwd
  %ga = aten.mm.default(%gb, %w) : f32[16, 8] @layers.0.a bwd
  output([%loss, %ga, %mesh])
)";

TEST_CASE("buckets of gathers that backward does again, over a group that is looked up") {
  const Step step(kLookedUp, "memory-policy,recompute,bucket");
  REQUIRE(step.after.find("group_1_recomputed") != std::string::npos);
  REQUIRE(step.after.find("_pre_bucket_all_gather_1") != std::string::npos);
  CHECK(step.broken().empty());
}

TEST_CASE("buckets over a group that is split from one that is looked up") {
  const Step step(kLookedUp, "reassign-pgs,bucket");
  REQUIRE(step.after.find("split_from=23") != std::string::npos);
  CHECK(step.broken().empty());
  CHECK(step.with("ranks=[0, 2] description=fsdp_extra", "ranks=[0, 1] description=fsdp_extra").broken() !=
        "");
}

TEST_CASE("a coordinate's symbol has no name of one that chunk took away") {
  const Step step(R"(
info world_size = 2
info compile_on_one_rank = True
info rank = 0
group 0 ranks=[0, 1] axes=[fsdp]
symbol u0 range=[2, 64] hint=4 unbacked
symbol u1 range=[0, 64] unbacked
symbol u2 range=[2, 64] hint=4 unbacked
graph
  %p = placeholder : f32[4, 8] role=parameter fqn=layers.0.weight
  %q = placeholder : f32[4, 8] role=parameter fqn=layers.0.bias
  %x = placeholder : b8[u0, 8] role=user which=tokens
  %ag = _c10d_functional.all_gather_into_tensor.default(%p, 2, "0") : f32[8, 8] @layers.0
  %w = _c10d_functional.wait_tensor.default(%ag) : f32[8, 8] @layers.0
  %ag_1 = _c10d_functional.all_gather_into_tensor.default(%q, 2, "0") : f32[8, 8] @layers.0
  %w_1 = _c10d_functional.wait_tensor.default(%ag_1) : f32[8, 8] @layers.0
  %count = aten.sum.default(%x) : i64[] @layers.0
  %n = aten.item.default(%count) : SymInt(u1) bind(u1) @layers.0
  %out = aten.full.default([%n], 1.0, dtype=f32, device=@cpu, pin_memory=False) : f32[u1]
  output([%out, %w, %w_1])
)",
                  "chunk{roots=layers.*,dense=true},bucket");
  REQUIRE(step.after.find("coordinate") != std::string::npos);
  CHECK(step.broken().empty());
}

}  // namespace
}  // namespace epweave
