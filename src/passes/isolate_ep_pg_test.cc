#include "passes/isolate_ep_pg.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "analysis/collectives.h"
#include "ir/text.h"

namespace epweave {
namespace {

Graph parse(const std::string& body) {
  return parse_text(
      "epweave text 1\ndevice cuda:0\ngroup 0 ranks=[0, 1, 2, 3] description=fsdp axes=[fsdp] backend=nccl\n"
      "group 35 ranks=[0, 1, 2, 3] description=mesh_ep\ngraph\n  %m = placeholder\n  %x = placeholder : "
      "f32[8]\n" +
          body + "  output([])\n",
      "test.txt");
}

std::string groups_of(const Graph& graph) {
  std::string text;
  for (const Launch& launch : find_launches(*graph.context, graph.step()))
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", graph.text(graph.step().nodes[launch.node].name),
                        name_of_group(*graph.context, graph.step(), launch.group));
  return text;
}

std::string exchange(const std::string& name, const std::string& group, const std::string& labels) {
  return fmt::format("  %{} = _c10d_functional.all_to_all_single.default(%x, [], [], {}) : f32[8] {}\n", name,
                     group, labels);
}

std::string gather(const std::string& name, const std::string& group) {
  return fmt::format("  %{} = _c10d_functional.all_gather_into_tensor.default(%x, 4, {}) : f32[32]\n", name,
                     group);
}

}  // namespace

TEST_CASE("A6, A8: all token exchanges of a shared group move to one extra group") {
  const Graph graph =
      parse(gather("g", "\"0\"") + exchange("d", "\"0\"", "ep=dispatch token_exchange=dispatch") +
            exchange("c", "\"0\"", "ep=combine") + exchange("cp", "\"0\"", ""));
  const Graph result = isolate_ep_pg(graph).graph;
  CHECK(groups_of(result) == "g:0 d:0_ep_extra c:0_ep_extra cp:0");
  REQUIRE(result.groups.size() == 3);
  const ProcessGroup& extra = result.groups.back();
  CHECK(extra.ranks == std::vector<std::uint32_t>{0, 1, 2, 3});
  CHECK(result.text(extra.description) == "ep_extra");
  CHECK(result.text(extra.priority) == "high");
  CHECK(result.text(extra.split_from) == "0");
  CHECK(result.text(extra.backend) == "nccl");
  CHECK_FALSE(extra.axes);
  CHECK(groups_of(graph) == "g:0 d:0 c:0 cp:0");
  CHECK(print_text(isolate_ep_pg(result).graph) == print_text(result));
}

TEST_CASE("A7: a group of its own stays, even with the ranks of another") {
  const Graph graph =
      parse(gather("g", "\"0\"") + exchange("c", "\"35\"", "ep=combine token_exchange=combine"));
  const PassResult result = isolate_ep_pg(graph);
  CHECK(print_text(result.graph) == print_text(graph));
  CHECK(result.notes.empty());
}

TEST_CASE("an exchange that comes to the group later joins the extra group that is there") {
  const Graph once = isolate_ep_pg(parse(gather("g", "\"0\"") + exchange("d", "\"0\"", "ep=dispatch"))).graph;
  const std::string text = print_text(once);
  const std::size_t output = text.find("  output(");
  const Graph more = parse_text(
      text.substr(0, output) + exchange("late", "\"0\"", "ep=dispatch") + text.substr(output), "test.txt");
  const Graph result = isolate_ep_pg(more).graph;
  CHECK(result.groups.size() == 3);
  CHECK(groups_of(result) == "g:0 d:0_ep_extra late:0_ep_extra");
}

TEST_CASE("groups that are looked up at run time are left, or declined where they are shared") {
  const std::string lookups =
      "  %g0 = _dtensor.mesh_get_process_group.default(%m, 0)\n"
      "  %g1 = _dtensor.mesh_get_process_group.default(%m, 1)\n";
  const PassResult apart =
      isolate_ep_pg(parse(lookups + gather("g", "%g0") + exchange("d", "%g1", "ep=dispatch")));
  CHECK(groups_of(apart.graph) == "g:g0 d:g1");
  CHECK(apart.notes.size() == 1);
  CHECK_THROWS_AS(isolate_ep_pg(parse(lookups + gather("g", "%g1") + exchange("d", "%g1", "ep=dispatch"))),
                  PassError);
}

TEST_CASE("G-1: a group that is not in the table is declined") {
  CHECK_THROWS_AS(isolate_ep_pg(parse(gather("g", "\"7\"") + exchange("d", "\"7\"", "ep=dispatch"))),
                  PassError);
}

}  // namespace epweave
