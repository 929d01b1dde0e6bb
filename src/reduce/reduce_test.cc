#include "reduce/reduce.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/verify.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

Graph debug_graph() {
  return read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz");
}

std::size_t count(const Graph& graph, std::string_view target) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.step().order, [&](NodeId id) { return graph.text(graph.step().nodes[id].target) == target; }));
}

// Whether some wait takes an exchange of an index.
bool has_pattern(const Graph& graph) {
  const Body& step = graph.step();
  const auto input_is = [&](NodeId id, std::string_view target) -> NodeId {
    NodeId found;
    for_each_input(*graph.context, step.nodes[id], [&](NodeId input) {
      if (graph.text(step.nodes[input].target) == target) found = input;
    });
    return found;
  };
  return std::ranges::any_of(step.order, [&](NodeId id) {
    if (graph.text(step.nodes[id].target) != "_c10d_functional.wait_tensor.default") return false;
    const NodeId exchange = input_is(id, "_c10d_functional.all_to_all_single.default");
    return exchange && input_is(exchange, "aten.index.Tensor");
  });
}

TEST_CASE("what remains of a real graph has the property and is sound, each step on the way, too") {
  const Graph graph = debug_graph();
  std::size_t steps = 0, last = graph.step().order.size();
  const Reduction reduction =
      reduce_graph(graph, {.holds = has_pattern, .on_smaller = [&](const Graph& smaller) {
                             ++steps;
                             std::vector<Violation> violations;
                             verify_structure(smaller, violations);
                             CHECK(violations.empty());
                             CHECK(has_pattern(smaller));
                             CHECK(smaller.step().order.size() <= last);
                             last = smaller.step().order.size();
                           }});
  CHECK(reduction.is_finished);
  CHECK(steps > 3);
  CHECK(reduction.tries < 400);
  // The three calls and what they take: the value, the index and eight sizes, and the output.
  CHECK(reduction.graph.step().order.size() <= 12);
  CHECK(count(reduction.graph, "_c10d_functional.all_to_all_single.default") == 1);
  CHECK(reduction.graph.symbols.empty());
  CHECK(reduction.graph.bodies.size() == 1);
  CHECK(reduction.graph.inputs.size() ==
        static_cast<std::size_t>(std::ranges::count_if(reduction.graph.step().order, [&](NodeId id) {
          return reduction.graph.step().nodes[id].kind == NodeKind::kPlaceholder;
        })));
}

TEST_CASE("an input in a call's place has not the call's name") {
  // As a command does that looks for the op in what is printed.
  const auto mentions_exchange = [](const Graph& graph) {
    return std::ranges::any_of(graph.step().order, [&](NodeId id) {
      const Node& node = graph.step().nodes[id];
      return (graph.text(node.name).starts_with("all_to_all_single") ||
              graph.text(node.target).find("all_to_all_single") != std::string_view::npos);
    });
  };
  const Reduction reduction = reduce_graph(debug_graph(), {.holds = mentions_exchange});
  CHECK(count(reduction.graph, "_c10d_functional.all_to_all_single.default") == 1);
}

TEST_CASE("a property that any graph has leaves nothing") {
  const Reduction reduction = reduce_graph(debug_graph(), {.holds = [](const Graph&) { return true; }});
  CHECK(reduction.graph.step().order.size() == 1);  // the output
}

TEST_CASE("a property that no smaller graph has leaves all") {
  const Graph graph = debug_graph();
  const Reduction reduction = reduce_graph(graph, {.holds = [](const Graph&) { return false; }});
  CHECK(reduction.graph.step().order == graph.step().order);
}

TEST_CASE("rows of a table go one by one: those that the property needs stay") {
  Graph graph = debug_graph();
  const std::size_t all = graph.symbols.size();
  REQUIRE(all > 20);
  const StringId first = graph.symbols[3].name, last = graph.symbols[all - 2].name;
  const auto holds = [&](const Graph& candidate) {
    const auto has = [&](StringId name) {
      return std::ranges::any_of(candidate.symbols,
                                 [&](const Symbol& symbol) { return symbol.name == name; });
    };
    return has(first) && has(last);
  };
  const Reduction reduction = reduce_graph(graph, {.holds = holds});
  REQUIRE(reduction.graph.symbols.size() == 2);
  CHECK(reduction.graph.symbols[0].name == first);
  CHECK(reduction.graph.symbols[1].name == last);
}

TEST_CASE("candidates tried at once give the same result, in as many tries") {
  std::vector<Reduction> reductions;
  for (const std::size_t width : {1UL, 2UL, 3UL, 7UL}) {
    std::size_t most = 0;
    // The first that holds, found from the last on: what is tried ahead must not count.
    const auto find_first = [&](std::span<const Graph> graphs) {
      most = std::max(most, graphs.size());
      std::optional<std::size_t> found;
      for (std::size_t i = graphs.size(); i-- > 0;)
        if (has_pattern(graphs[i])) found = i;
      return found;
    };
    reductions.push_back(reduce_graph(debug_graph(), {.width = width, .find_first = find_first}));
    CHECK(most == width);
  }
  const std::string text = print_text(reductions[0].graph);
  for (const Reduction& reduction : reductions) {
    CHECK(reduction.is_finished);
    CHECK(reduction.tries == reductions[0].tries);
    CHECK(print_text(reduction.graph) == text);
  }
}

TEST_CASE("the reduction can be stopped, with the best so far") {
  int asked = 0;
  const Reduction reduction =
      reduce_graph(debug_graph(), {.holds = has_pattern, .is_stopped = [&] { return ++asked > 20; }});
  CHECK(!reduction.is_finished);
  CHECK(reduction.tries <= 20);
  CHECK(has_pattern(reduction.graph));
}

}  // namespace
}  // namespace epweave
