// What the tests of chunking on real graphs share: the graphs, and what is counted in them.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "analysis/verify.h"
#include "io/file.h"
#include "passes/chunk/chunk.h"

namespace epweave {

// Fails where the graph is missing: a test without its data says nothing.
inline Graph read_real_graph(std::string_view name) {
  const std::string path = fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name);
  INFO(path << " is missing: scripts/epweave_fx.py from-dump makes it of a trace");
  REQUIRE(std::filesystem::exists(path));
  return read_graph(path);
}

inline Graph chunked(const Graph& graph, std::int64_t parts) {
  return chunk(graph, {.parts = parts}).graph;
}

inline std::vector<std::string> print_violations(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Violation& violation : verify_graph(graph)) lines.push_back(print_violation(graph, violation));
  return lines;
}

struct Counts {
  std::size_t nodes = 0, splits = 0, cats = 0, sums = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};
inline Counts count_joins(const Graph& graph) {
  Counts counts{.nodes = graph.step().order.size()};
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    const std::string_view role = graph.text(node.chunk.role), target = graph.text(node.target);
    const bool is_join = role == "materialization";
    if (role == "split_boundary" && target == "aten.split_with_sizes.default") ++counts.splits;
    if (is_join && target == "aten.cat.default") ++counts.cats;
    if (is_join && target == "aten.add.Tensor") ++counts.sums;
  }
  return counts;
}

// Calls of what takes time or memory, on device or host.
inline std::map<std::string, std::size_t> count_calls(const Graph& graph) {
  std::map<std::string, std::size_t> counts;
  for (const char* target :
       {"aten.mm.default", "aten._grouped_mm.default", "aten.index.Tensor", "aten.sort.stable",
        "aten.topk.default", "aten.sum.dim_IntList", "_c10d_functional.all_to_all_single.default",
        "_c10d_functional.all_gather_into_tensor.default", "_c10d_functional.reduce_scatter_tensor.default"})
    counts[target] = 0;
  for (NodeId id : graph.step().order)
    if (auto found = counts.find(std::string(graph.text(graph.step().nodes[id].target)));
        found != counts.end())
      ++found->second;
  return counts;
}

}  // namespace epweave
