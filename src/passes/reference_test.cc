// Against torchtitan: dce, canonicalize and dedup-unshard on each NAME.0_traced graph give
// NAME.1_norm, node by node with everything recorded about it, and leave graphs alone that are
// already normal.
//
// The folder is $EPWEAVE_GRAPHS, or testdata/graphs; graphs are files of any form that io reads.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <limits>

#include "cost/memory.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "passes/canonicalize.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/mark_eager_chunks.h"
#include "passes/memory_budget.h"
#include "passes/memory_policy.h"
#include "passes/recompute.h"
#include "passes/reference_graphs_test.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

// One line per node with everything that the graph records about it, but what our passes add.
std::vector<std::string> print_nodes(Graph graph) {
  std::vector<std::string> lines;
  for (Body& body : graph.bodies) {
    lines.push_back(fmt::format("graph {}", graph.text(body.name)));
    for (NodeId id : body.order) {
      body.nodes[id].provenance = {};
      lines.push_back(print_node(graph, body, id, TextMode::kFull));
    }
  }
  return lines;
}

// torchtitan merges no gathers of graphs that look their groups up at run time
// (docs/differences.md).
bool is_rank_agnostic(const std::string& name) {
  return name.find("_coor") != name.npos;
}

// Name -> path, of the graphs at a stage of torchtitan's pass list.
Graph normalise(const Graph& graph) {
  return dedup_unshard(canonicalize(dce(graph)));
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Where the two part ways, for the message of a failing comparison.
std::string first_difference(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    if (ours[i] != theirs[i]) return fmt::format("line {}:\n  ours   {}\n  theirs {}", i, ours[i], theirs[i]);
  return fmt::format("ours has {} lines, theirs {}", ours.size(), theirs.size());
}

TEST_CASE("normalising gives torchtitan's normal form") {
  const auto normal = find_graphs("1_norm");
  for (const auto& [name, path] : find_graphs("0_traced")) {
    if (!normal.contains(name) || is_rank_agnostic(name)) continue;
    const Graph traced = read_graph(path);
    const auto start = std::chrono::steady_clock::now();
    const Graph result = normalise(traced);
    const double took = milliseconds_since(start);
    const auto ours = print_nodes(result), theirs = print_nodes(read_graph(normal.at(name)));
    UNSCOPED_INFO(fmt::format("{}: {} -> {} nodes in {:.1f} ms", name, traced.step().order.size(),
                              result.step().order.size(), took));
    INFO(first_difference(ours, theirs));
    CHECK((ours == theirs));
  }
}

// The policy that torchtitan ran with, by what its tags say.
MemoryPolicy policy_of(const Graph& graph) {
  const StringId full = graph.intern("MUST_RECOMPUTE");
  for (const Node& node : graph.step().nodes)
    if (node.recompute == full) return MemoryPolicy::kFull;
  return MemoryPolicy::kDefault;
}

TEST_CASE("policy and recomputation give torchtitan's graph, node by node", "[J26]") {
  const auto expected = find_graphs("1b_remat");
  for (const auto& [name, path] : find_graphs("1_norm")) {
    if (!expected.contains(name)) continue;
    const Graph theirs = read_graph(expected.at(name)), norm = read_graph(path);
    const auto start = std::chrono::steady_clock::now();
    const Graph ours = recompute(memory_policy(norm, {.policy = policy_of(theirs)}).graph).graph;
    const double took = milliseconds_since(start);
    const auto our_lines = print_nodes(ours), their_lines = print_nodes(theirs);
    UNSCOPED_INFO(fmt::format("{}: {} -> {} nodes in {:.1f} ms", name, norm.step().order.size(),
                              ours.step().order.size(), took));
    INFO(first_difference(our_lines, their_lines));
    CHECK((our_lines == their_lines));
    CHECK(same_code(recompute(ours).graph, ours));
  }
}

TEST_CASE("what the eager chunker noted is marked as torchtitan marks it") {
  const auto expected = find_graphs("2_eagerchunk");
  for (const auto& [name, path] : find_graphs("1b_remat")) {
    if (!expected.contains(name)) continue;
    const Graph result = mark_eager_chunks(read_graph(path)).graph;
    const auto ours = print_nodes(result), theirs = print_nodes(read_graph(expected.at(name)));
    INFO(name << ": " << first_difference(ours, theirs));
    CHECK((ours == theirs));
    CHECK(same_code(mark_eager_chunks(result).graph, result));
  }
}

TEST_CASE("normal graphs are left alone") {
  for (const char* stage : {"1_norm", "1b_remat"})
    for (const auto& [name, path] : find_graphs(stage)) {
      if (is_rank_agnostic(name)) continue;
      const Graph graph = read_graph(path);
      const auto start = std::chrono::steady_clock::now();
      const Graph result = normalise(graph);
      const double took = milliseconds_since(start);
      UNSCOPED_INFO(
          fmt::format("{}.{}: {} nodes in {:.1f} ms", name, stage, graph.step().order.size(), took));
      const bool is_same = same_code(graph, result);
      INFO((is_same ? "" : first_difference(print_nodes(result), print_nodes(graph))));
      CHECK(is_same);
    }
}

TEST_CASE("rank-agnostic graphs gather each parameter once, too") {
  for (const auto& [name, path] : find_graphs("1_norm")) {
    if (!is_rank_agnostic(name)) continue;
    const Graph graph = read_graph(path);
    const Graph result = normalise(graph);
    INFO(name << ": " << graph.step().order.size() << " -> " << result.step().order.size() << " nodes");
    CHECK(result.step().order.size() < graph.step().order.size());
    CHECK(same_code(result, normalise(result)));
  }
}

TEST_CASE("policy=budget: no smaller budget gives a larger peak, and none that fits is refused",
          "[repetitive]") {
  for (const auto& [name, path] : find_graphs("1_norm")) {
    if (name != "llama3_debug_fsdp4" && name != "dsv3_debug_ep2") continue;
    INFO(name);
    const Graph graph = read_graph(path);
    const auto measure = [](const Graph& step) {
      Extents extents(step);
      std::int64_t peak = 0;
      for (const DeviceMemory& device : estimate_memory(step, extents).devices)
        peak = std::max(peak, device.peak);
      return peak;
    };
    std::int64_t last = std::numeric_limits<std::int64_t>::max();
    int fitting = 0;
    bool is_below = false;
    for (double mib = 400; mib > 20; mib *= 0.8) {
      std::int64_t peak = 0;
      try {
        peak = measure(recompute(tag_for_budget(graph, {.peak_mib = mib}).graph).graph);
      } catch (const PassError&) {
        is_below = true;
        continue;
      }
      CHECK_FALSE(is_below);
      CHECK(peak <= last);
      CHECK(static_cast<double>(peak) <= mib * (1 << 20));
      last = peak;
      ++fitting;
    }
    CHECK(fitting >= 3);
    CHECK(is_below);
  }
}

}  // namespace
}  // namespace epweave
