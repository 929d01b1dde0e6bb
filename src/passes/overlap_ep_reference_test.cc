// Our schedule against torchtitan's, on real graphs: NAME.4_bucket (or NAME.2_*) in, NAME.5_schedule
// expected.
//
// The folder is $EPWEAVE_REFERENCE_GRAPHS, or testdata/graphs; graphs are files of any form that io reads.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "analysis/ep_regions.h"
#include "io/file.h"
#include "passes/overlap_ep.h"

namespace epweave {
namespace {

using Clock = std::chrono::steady_clock;

struct Pair {
  std::string name, input, expected;
};

std::vector<Pair> find_pairs() {
  const char* env = std::getenv("EPWEAVE_REFERENCE_GRAPHS");
  const std::filesystem::path folder = env != nullptr
                                           ? std::filesystem::path(env)
                                           : std::filesystem::path(EPWEAVE_SOURCE_DIR) / "testdata/graphs";
  std::map<std::string, std::map<std::string, std::string>> stages;  // name -> stage -> path
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().filename().string();
      const std::size_t dot = file.find('.');
      if (dot == file.npos) continue;
      stages[file.substr(0, dot)][file.substr(dot + 1, file.find('.', dot + 1) - dot - 1)] =
          entry.path().string();
    }
  std::vector<Pair> pairs;
  for (const auto& [name, files] : stages) {
    auto expected = files.find("5_schedule");
    if (expected == files.end()) continue;
    for (const char* stage : {"4_bucket", "2_chunk_batch", "2_chunk_seq", "2_eagerchunk"})
      if (auto input = files.find(stage); input != files.end()) {
        pairs.push_back({name, input->second, expected->second});
        break;
      }
  }
  return pairs;
}

// Names in execution order, without those the other graph lacks (dead code removed in between).
std::vector<std::string> list_names(const Graph& graph, const Graph& other) {
  std::map<std::string_view, bool> known;
  for (NodeId id : other.step().order) known[other.text(other.step().nodes[id].name)] = true;
  std::vector<std::string> names;
  for (NodeId id : graph.step().order) {
    const std::string_view name = graph.text(graph.step().nodes[id].name);
    if (known.contains(name)) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> list_flags(const Graph& graph, const Graph& other) {
  std::map<std::string_view, bool> known;
  for (NodeId id : other.step().order) known[other.text(other.step().nodes[id].name)] = true;
  std::map<std::string, std::string> flags;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (!known.contains(graph.text(node.name))) continue;
    const Arg* flag = find_kwarg(*graph.context, node, "non_blocking");
    const std::string label =
        fmt::format("{}/{}", graph.text(node.ep.token_exchange), graph.text(node.ep.token_exchange_wait));
    if (flag != nullptr || label != "/")
      flags[std::string(graph.text(node.name))] = fmt::format("{} {}",
                                                              flag == nullptr   ? "absent"
                                                              : flag->as_bool() ? "True"
                                                                                : "False",
                                                              label);
  }
  std::vector<std::string> lines;
  for (const auto& [name, flag] : flags) lines.push_back(name + " " + flag);
  return lines;
}

}  // namespace

TEST_CASE("real graphs are scheduled as torchtitan schedules them") {
  for (const Pair& pair : find_pairs()) {
    const Graph input = read_graph(pair.input);
    const Graph expected = read_graph(pair.expected);
    const auto begin = Clock::now();
    const Graph result = overlap_ep(input, {}).graph;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    const auto ours = list_names(result, expected), theirs = list_names(expected, result);
    const auto mismatch = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const bool equal = mismatch.first == ours.end() && mismatch.second == theirs.end();
    std::size_t moved = 0;
    for (NodeId id : result.step().order) moved += !result.step().nodes[id].provenance.empty();
    fmt::print("{:36} {:6} nodes {:8.1f} ms {:5} recorded {} regions: {}\n", pair.name, ours.size(), ms,
               moved, find_ep_regions(result).regions.size(),
               equal ? "equal"
                     : fmt::format("differs at {}: {} instead of {}", mismatch.first - ours.begin(),
                                   *mismatch.first, *mismatch.second));
    CHECK(equal);
    CHECK(list_flags(result, expected) == list_flags(expected, result));
  }
}

}  // namespace epweave
