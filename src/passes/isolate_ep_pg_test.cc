#include "passes/isolate_ep_pg.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "analysis/collectives.h"
#include "ir/text/text.h"

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

std::string gather_in(const std::string& name, const std::string& group) {
  return fmt::format("  %{} = _c10d_functional.all_gather_into_tensor.default(%x, 4, {}) : f32[32]\n", name,
                     group);
}

}  // namespace

TEST_CASE("an exchange that comes to the group later joins the extra group that is there") {
  const Graph once =
      isolate_ep_pg(parse(gather_in("g", "\"0\"") + exchange("d", "\"0\"", "ep=dispatch"))).graph;
  const std::string text = print_text(once);
  const std::size_t output = text.find("  output(");
  const Graph more = parse_text(
      text.substr(0, output) + exchange("late", "\"0\"", "ep=dispatch") + text.substr(output), "test.txt");
  const Graph result = isolate_ep_pg(more).graph;
  CHECK(result.groups.size() == 3);
  CHECK(groups_of(result) == "g:0 d:0_ep_extra late:0_ep_extra");
}

}  // namespace epweave
