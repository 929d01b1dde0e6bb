#include "pipeline/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <stdexcept>

#include "ops/op.h"
#include "passes/test_text.h"

namespace epweave {
namespace {

// Passes that each do one thing a runner must notice.
PassResult keep_all(const Graph& graph, const Options&) {
  return {graph, {"nothing to do"}};
}

PassResult drop_last(const Graph& graph, const Options&) {
  Graph result = graph;
  auto& order = result.step().order;
  order.erase(order.end() - 2);
  return {std::move(result)};
}

// Runs the last two calls the other way around.
PassResult swap_last(const Graph& graph, const Options&) {
  Graph result = graph;
  auto& order = result.step().order;
  std::iter_swap(order.end() - 3, order.end() - 2);
  return {std::move(result)};
}

Node negated(const Graph& graph, NodeId input, std::string_view name) {
  Node node;
  node.name = graph.intern(name);
  node.target = graph.intern("aten.neg.default");
  resolve_op(*graph.context, node);
  const Arg self = Arg::node(input);
  node.args = graph.context->args.add({&self, 1});
  node.type = graph.step().nodes[input].type;
  return node;
}

PassResult add_unexplained(const Graph& graph, const Options&) {
  Graph result = graph;
  Body& step = result.step();
  step.order.insert(step.order.begin() + 1, step.nodes.push_back(negated(graph, step.order.front(), "new")));
  return {std::move(result)};
}

PassResult decline_all(const Graph&, const Options&) {
  throw PassError("test.declined", "this graph will not do", {}, "take another");
}

PassResult stumble(const Graph&, const Options&) {
  throw std::runtime_error("mm: inner sizes 5 and 4 differ");
}

// A call of a node, with the type of another one.
PassResult misjudge(const Graph& graph, std::string_view input, std::string_view like) {
  Graph result = graph;
  Body& step = result.step();
  const auto find = [&](std::string_view name) {
    return *std::ranges::find_if(step.order,
                                 [&](NodeId id) { return result.text(step.nodes[id].name) == name; });
  };
  Node node = negated(result, find(input), "new");
  node.type = step.nodes[find(like)].type;
  append_provenance(*result.context, node,
                    {.pass = result.intern("misjudge"), .role = ProvenanceRole::kAdded, .origins = {}});
  step.order.insert(step.order.end() - 1, step.nodes.push_back(node));
  return {std::move(result)};
}
PassResult misjudge_broken(const Graph& graph, const Options&) {
  return misjudge(graph, "c", "b");
}
PassResult misjudge_sound(const Graph& graph, const Options&) {
  return misjudge(graph, "b", "c");
}

const Registry& toy_passes() {
  static const Registry kToys = {
      .passes =
          {
              {.name = "keep",
               .summary = "",
               .options = {{"level", OptionKind::kInt, "1", ""}},
               .run = keep_all},
              {.name = "drop-last", .summary = "", .options = {}, .run = drop_last},
              {.name = "swap-last", .summary = "", .options = {}, .run = swap_last},
              {.name = "add-unexplained", .summary = "", .options = {}, .run = add_unexplained},
              {.name = "stumble", .summary = "", .options = {}, .run = stumble},
              {.name = "misjudge-sound", .summary = "", .options = {}, .run = misjudge_sound},
              {.name = "misjudge-broken", .summary = "", .options = {}, .run = misjudge_broken},
              {.name = "decline", .summary = "", .options = {}, .run = decline_all},
          },
      .presets = {},
  };
  return kToys;
}

constexpr std::string_view kGraph = R"(
output other

graph
  %x = placeholder : f32[4] role=user
  %a = aten.neg.default(%x) : f32[4]
  %b = aten.neg.default(%x) : f32[4]
  output((%a,))
)";

Graph run_toys(std::string_view pipeline, const RunnerOptions& options = {}) {
  return run_pipeline(parse_test_graph(kGraph), parse_pipeline(pipeline, toy_passes()), options);
}

template <class Error, class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("the log says what ran") {
  const Graph result = run_toys("keep{level=3},drop-last", {.tool = "epweave 1.2", .input_sha256 = "00ff"});
  REQUIRE(result.passes.size() == 2);
  CHECK(result.passes[0].name == "keep");
  CHECK(result.passes[0].options == "level=3");
  CHECK(result.passes[0].tool == "epweave 1.2");
  CHECK(result.passes[0].input_sha256 == "00ff");
  CHECK(result.passes[0].notes == std::vector<std::string>{"nothing to do"});
  CHECK(result.passes[0].nodes_before == 4);
  CHECK(result.passes[1].name == "drop-last");
  CHECK(result.passes[1].input_sha256.empty());
  CHECK(result.passes[1].nodes_before == 4);
  CHECK(result.passes[1].nodes_after == 3);
}

TEST_CASE("origins are those of the first run's input") {
  const Pipeline drop = parse_pipeline("drop-last", toy_passes());
  const Graph once = run_pipeline(parse_test_graph(kGraph), drop);
  REQUIRE(once.origins.size() == 4);
  CHECK(once.text(once.origins[1].name) == "a");
  CHECK(once.text(once.origins[1].target) == "aten.neg.default");
  CHECK(print_records(once, "a") == "drop-last kept a\n");
  CHECK(print_records(once, "output") == "drop-last kept output\n");
  const Graph twice = run_pipeline(once, parse_pipeline("keep", toy_passes()));
  CHECK(twice.origins.size() == 4);
  CHECK(print_records(twice, "a") == "drop-last kept a\n");
  CHECK(twice.passes.size() == 2);
}

TEST_CASE("a new node without a record is the pass's bug") {
  CHECK(error_of<CheckError>([] { run_toys("add-unexplained"); }) ==
        "pass 'add-unexplained' made node 'new' without saying where it comes from");
}

TEST_CASE("what a pass breaks is blamed on it, at once or at the end") {
  const auto drop_used = [](VerifyPolicy policy) {
    return error_of<CheckError>([&] { run_toys("drop-last,drop-last,keep", {.verify = policy}); });
  };
  CHECK(drop_used(VerifyPolicy::kEach).starts_with("pass 'drop-last' broke the graph"));
  CHECK(drop_used(VerifyPolicy::kEnd).starts_with("pass 'keep' broke the graph"));
  CHECK(drop_used(VerifyPolicy::kOff) == "no error");
}

TEST_CASE("a read moved before the host has waited is blamed on the pass") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4]@cuda:0 role=user
  %early = aten._to_copy.default(%x, device=@cpu, non_blocking=True) : f32[4]@cpu
  %late = aten._to_copy.default(%x, device=@cpu) : f32[4]@cpu
  %read = aten.neg.default(%early) : f32[4]@cpu
  output((%read,))
)");
  REQUIRE(verify_graph(graph).empty());
  CHECK(
      error_of<CheckError>([&] { run_pipeline(graph, parse_pipeline("swap-last", toy_passes())); }) ==
      "pass 'swap-last' broke the graph (1 violations; this is a bug of the tool):\n"
      "  host-reads: read (aten.neg.default): reads %early before anything made the host wait for the copy");
}

TEST_CASE("a wrong type is blamed on the pass that recorded it, behind passes that were verified") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4] role=user
  %b = aten.neg.default(%x) : f32[4]
  %c = aten.unsqueeze.default(%b, 0) : f32[1, 4]
  %unused = aten.neg.default(%x) : f32[4]
  output((%c,))
)");
  REQUIRE(verify_graph(graph).empty());
  for (const char* pipeline : {"misjudge-sound", "keep,misjudge-sound", "drop-last,misjudge-sound"})
    CHECK(error_of<CheckError>([&] { run_pipeline(graph, parse_pipeline(pipeline, toy_passes())); }) ==
          "pass 'misjudge-sound' broke the graph (1 violations; this is a bug of the tool):\n"
          "  type: new (aten.neg.default): recorded f32[1, 4]{4, 1}@, the arguments give f32[4]{1}@");
}

// As the views in front of a merged collective, behind chunk.
TEST_CASE("what a pass added for an origin may be several calls, each divided") {
  const auto verified = [](std::string_view first_record) {
    return verify_graph(parse_test_graph(fmt::format(R"(
output other
pass bucket tool="epweave 1" nodes_before=3 nodes_after=6
origins %x = x, %sum = aten.sum.default, %output = output

graph
  %x = placeholder : f32[4] role=user from(chunk kept %x)
  %a0 = aten.view.default(%x, [-1]) : f32[4] {0}from(chunk body %sum 0/2)
  %a1 = aten.view.default(%x, [-1]) : f32[4] {0}from(chunk body %sum 1/2)
  %b0 = aten.view.default(%x, [-1]) : f32[4] {0}from(chunk body %sum 0/2)
  %b1 = aten.view.default(%x, [-1]) : f32[4] {0}from(chunk body %sum 1/2)
  %c = aten.cat.default([%a0, %a1, %b0, %b1]) : f32[16] from(chunk added %sum)
  output([%c]) from(chunk kept %output)
)",
                                                     first_record)));
  };
  CHECK(verified("from(bucket added %sum) ").empty());
  CHECK(!verified("").empty());
}

TEST_CASE("what was broken before is not blamed on a pass") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4] role=user
  %a = aten.neg.default(%x) : f32[5]
  %b = aten.neg.default(%x) : f32[4]
  output((%a,))
)");
  REQUIRE_FALSE(verify_graph(graph).empty());
  CHECK_NOTHROW(run_pipeline(graph, parse_pipeline("keep,drop-last", toy_passes())));
}

TEST_CASE("what a pass cannot do for a graph that does not verify is the graph's fault") {
  const Graph broken = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4] role=user
  %a = aten.neg.default(%x) : f32[5]
  %b = aten.neg.default(%x) : f32[4]
  %c = aten.neg.default(%a) : f32[5]
  output((%a,))
)");
  const auto run_broken = [&](std::string_view pipeline) {
    run_pipeline(broken, parse_pipeline(pipeline, toy_passes()));
  };
  const auto said = [](std::string_view pass, std::string_view ended) {
    return fmt::format(R"(pass '{}' cannot rewrite a graph that does not verify:
  type: a (aten.neg.default): recorded f32[5]{{1}}@, the arguments give f32[4]{{1}}@
  so that {} [pipeline.broken-graph]
  node:   a
  op:     aten.neg.default
  remedy: mend what is recorded until `epweave verify` accepts the graph, or trace it again)",
                       pass, ended);
  };
  CHECK(error_of<PassError>([&] { run_broken("keep,stumble"); }) ==
        said("stumble", "mm: inner sizes 5 and 4 differ"));
  CHECK(error_of<std::runtime_error>([] { run_toys("stumble"); }) == "mm: inner sizes 5 and 4 differ");
  CHECK(error_of<PassError>([&] { run_broken("misjudge-broken"); }) ==
        said("misjudge-broken",
             "its result breaks: type: new (aten.neg.default): recorded f32[4]{1}@, the "
             "arguments give f32[5]{1}@"));
  CHECK(error_of<CheckError>([&] { run_broken("misjudge-sound"); }) ==
        "pass 'misjudge-sound' broke the graph (1 violations; this is a bug of the tool):\n"
        "  type: new (aten.neg.default): recorded f32[5]{1}@, the arguments give f32[4]{1}@");
}

TEST_CASE("a broken structure is the file's fault") {
  const Graph graph =
      parse_test_graph("\noutput other\n\ngraph\n  %a = aten.neg.default(%gone)\n  output((%a,))\n");
  CHECK(error_of<InputError>([&] {
          run_pipeline(graph, parse_pipeline("keep", toy_passes()));
        }).starts_with("the graph's structure is broken:"));
}

TEST_CASE("hooks see each pass, and what a failing one was given") {
  std::string seen;
  RunnerOptions options;
  options.hooks.after_pass = [&](const PassReport& report) {
    seen += fmt::format("{}/{} {} {}->{} {}\n", report.position, report.count, report.call.pass->name,
                        report.before.step().order.size(), report.after.step().order.size(),
                        same_code(report.before, report.after) ? "same" : "changed");
  };
  options.hooks.on_failure = [&](const FailureReport& report) {
    seen += fmt::format("{} failed on {} nodes: {} | {}\n", report.call.pass->name,
                        report.input.step().order.size(), report.remaining,
                        report.what.substr(0, report.what.find('\n')));
  };
  CHECK_THROWS_AS(run_toys("keep,drop-last,decline,keep{level=2}", options), PassError);
  CHECK(seen == R"(0/4 keep 4->4 same
1/4 drop-last 4->3 changed
decline failed on 3 nodes: decline,keep{level=2} | this graph will not do [test.declined]
)");
}

}  // namespace
}  // namespace epweave
