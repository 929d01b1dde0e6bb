#include "placement/rules/placement_rules.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/module_path.h"
#include "io/file.h"

namespace epweave {
namespace {

std::vector<std::filesystem::path> graphs_to_chunk() {
  const char* env = std::getenv("EPWEAVE_GRAPHS");
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(env != nullptr ? env : "testdata/graphs"))
    for (const char* stage : {".0_traced.", ".1_norm.", ".1b_remat."})  // those that chunk is for
      if (entry.path().string().find(stage) != std::string::npos) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST_CASE("a family of ops has at most one placement rule of its own") {
  std::set<OpFamily> seen;
  for (const PlacementRow& row : placement_rows()) {
    INFO(name_of(row.family));
    CHECK(seen.insert(row.family).second);
    CHECK(row.rule != nullptr);
  }
}

TEST_CASE("an op without a placement rule moves data between ranks or devices, or writes elsewhere") {
  std::size_t without = 0;
  for (const OpInfo& op : ops()) {
    INFO(op.target);
    if (find_placement_rule(op) != nullptr) continue;
    ++without;
    const bool is_moving = op.cost == CostClass::kCollective || op.cost == CostClass::kWait ||
                           op.cost == CostClass::kHostSync || op.family == OpFamily::kTransfer;
    const bool writes_behind = op.writes && !op.params[0].is_written;
    CHECK((is_moving || op.is_effectful || writes_behind));
  }
  CHECK(without > 0);
}

TEST_CASE("every op in the MoE modules of real graphs has a placement rule") {
  std::set<std::string> missing;
  std::size_t calls = 0;
  for (const auto& path : graphs_to_chunk()) {
    const Graph graph = read_graph(path.string());
    ModuleMatcher moe({"layers.*.moe"}, graph.context->strings);
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (node.kind != NodeKind::kCall || !moe.root_of(node.module)) continue;
      ++calls;
      if (node.op == nullptr || find_placement_rule(*node.op) == nullptr)
        missing.insert(std::string(graph.text(node.target)));
    }
  }
  CHECK(calls > 0);
  CHECK(missing == std::set<std::string>());
}

TEST_CASE("patterns match modules component by component") {
  CHECK(match_module("layers.*.moe", "layers.3.moe.router.gate") == "layers.3.moe");
  CHECK(match_module("layers.*.moe", "layers.3.moe") == "layers.3.moe");
  CHECK(match_module("layers.*", "layers.3.moe") == "layers.3");
  CHECK(match_module("layers.*.moe", "layers.3").empty());
  CHECK(match_module("layers.*.moe", "layers.3.moe2").empty());
  CHECK(match_module("layer", "layers").empty());
  CHECK(match_module("*", "layers.3") == "layers");
  CHECK(match_module("layers.3", "layers.30").empty());
  CHECK(match_module("", "layers").empty());
  CHECK(match_module("layers", "").empty());
}

TEST_CASE("two patterns on one path are an overlap") {
  StringTable strings;
  ModuleMatcher same({"layers.*", "layers.1"}, strings);
  CHECK(strings[same.root_of(strings.intern("layers.1.moe"))] == "layers.1");
  CHECK_FALSE(same.overlap());
  ModuleMatcher nested({"layers.*", "layers.*.moe"}, strings);
  nested.root_of(strings.intern("layers.1.attention"));
  CHECK_FALSE(nested.overlap());
  nested.root_of(strings.intern("layers.1.moe.router"));
  REQUIRE(nested.overlap());
  CHECK(strings[nested.overlap()->first] == "layers.1");
  CHECK(strings[nested.overlap()->second] == "layers.1.moe");
}

}  // namespace
}  // namespace epweave
