// overlap-ep, isolate-ep-pg and concretize against torchtitan's passes, on real graphs.
//
//   NAME.4_bucket (or NAME.2_*)  overlap-ep     NAME.5_schedule   every node in the same order
//   NAME.2_*                     isolate-ep-pg  NAME.3_pg         the same launches change group
//   NAME.5_schedule              concretize     NAME.6_concrete   the same nodes are left, in the same order
//
// The folder is $EPWEAVE_REFERENCE_GRAPHS, or testdata/graphs; graphs are files of any form that io
// reads (scripts/dev/compare_schedules.sh makes them of dumps).
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "analysis/collectives.h"
#include "analysis/ep_regions.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "passes/concretize.h"
#include "passes/isolate_ep_pg.h"
#include "passes/overlap_ep/overlap_ep.h"

namespace epweave {
namespace {

using Clock = std::chrono::steady_clock;

struct Pair {
  std::string name, input, expected;
};

using Stages = std::map<std::string, std::string>;  // stage -> path

std::map<std::string, Stages> find_stages() {
  const char* env = std::getenv("EPWEAVE_REFERENCE_GRAPHS");
  const std::filesystem::path folder = env != nullptr
                                           ? std::filesystem::path(env)
                                           : std::filesystem::path(EPWEAVE_SOURCE_DIR) / "testdata/graphs";
  std::map<std::string, Stages> graphs;
  REQUIRE(std::filesystem::exists(folder));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    const std::size_t dot = file.find('.');
    if (dot == file.npos) continue;
    graphs[file.substr(0, dot)][file.substr(dot + 1, file.find('.', dot + 1) - dot - 1)] =
        entry.path().string();
  }
  return graphs;
}

// Graphs that have the expected stage and one of the inputs, the first that is there.
std::vector<Pair> find_pairs(const std::vector<const char*>& inputs, const char* expected) {
  std::vector<Pair> pairs;
  for (const auto& [name, stages] : find_stages()) {
    const auto result = stages.find(expected);
    if (result == stages.end()) continue;
    for (const char* stage : inputs)
      if (auto input = stages.find(stage); input != stages.end()) {
        pairs.push_back({name, input->second, result->second});
        break;
      }
  }
  REQUIRE_FALSE(pairs.empty());
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

std::size_t count_moved(const Graph& graph) {
  return static_cast<std::size_t>(
      std::count_if(graph.step().order.begin(), graph.step().order.end(), [&](NodeId id) {
        const auto& records = graph.step().nodes[id].provenance;
        return std::any_of(records.begin(), records.end(),
                           [](const Provenance& r) { return r.role == ProvenanceRole::kMoved; });
      }));
}

// "launch: group -> group" of the launches whose group changed; groups that are new are called new.
std::vector<std::string> list_regrouped(const Graph& before, const Graph& after) {
  std::map<std::string, std::string> groups;
  for (const Launch& launch : find_launches(*before.context, before.step()))
    groups[std::string(before.text(before.step().nodes[launch.node].name))] =
        name_of_group(*before.context, before.step(), launch.group);
  std::vector<std::string> lines;
  for (const Launch& launch : find_launches(*after.context, after.step())) {
    const std::string name(after.text(after.step().nodes[launch.node].name));
    const std::string_view group = name_of_group(*after.context, after.step(), launch.group);
    const bool is_new = std::none_of(before.groups.begin(), before.groups.end(),
                                     [&](const ProcessGroup& g) { return before.text(g.name) == group; });
    if (groups[name] != group)
      lines.push_back(fmt::format("{}: {} -> {}", name, groups[name], is_new ? "new" : group));
  }
  return lines;
}

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    if (begins && (end == text.size() || !is_word_character(text[end]))) return true;
  }
  return false;
}

// The lines of the graph, without provenance.
std::string print_without_provenance(const Graph& graph) {
  const std::string text = print_text(graph);
  std::string code;
  for (std::size_t at = text.find("\ngraph"); at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at + 1), text.size());
    code += std::string_view(text).substr(at, std::min(text.find(" from(", at), end) - at);
    at = end;
  }
  return code;
}

// Those of the symbols named in the result's note ("u0 = 1024, u1 = 2") that its code still
// mentions (N-3).
std::vector<std::string> find_left_symbols(const PassResult& concrete) {
  const std::string code = print_without_provenance(concrete.graph);
  const std::string& note = concrete.notes.front();
  std::vector<std::string> left;
  for (std::size_t at = note.find(" = "); at != note.npos; at = note.find(" = ", at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && is_word_character(note[begin - 1])) --begin;
    if (begin < at && has_word(code, note.substr(begin, at - begin)))
      left.push_back(note.substr(begin, at - begin));
  }
  return left;
}

}  // namespace

TEST_CASE("real graphs are scheduled as torchtitan schedules them") {
  for (const Pair& pair :
       find_pairs({"4_bucket", "2_chunk_batch", "2_chunk_seq", "2_eagerchunk"}, "5_schedule")) {
    CAPTURE(pair.name);
    const Graph input = read_graph(pair.input);
    const Graph expected = read_graph(pair.expected);
    const auto begin = Clock::now();
    const Graph result = overlap_ep(input, {}).graph;
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    const auto ours = list_names(result, expected), theirs = list_names(expected, result);
    const auto mismatch = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const bool equal = mismatch.first == ours.end() && mismatch.second == theirs.end();
    fmt::print("{:36} {:6} nodes {:8.1f} ms {:5} moved {} regions: {}\n", pair.name, ours.size(), ms,
               count_moved(result), find_ep_regions(result).regions.size(),
               equal ? "equal"
                     : fmt::format("differs at {}: {} instead of {}", mismatch.first - ours.begin(),
                                   *mismatch.first, *mismatch.second));
    CHECK(equal);
    CHECK(count_moved(overlap_ep(input, {.movement = Movement::kMinimal}).graph) < count_moved(result));
    CHECK(list_flags(result, expected) == list_flags(expected, result));
  }
}

TEST_CASE("token exchanges of real graphs leave the groups that they leave in torchtitan") {
  for (const Pair& pair : find_pairs({"2_chunk_batch", "2_chunk_seq", "2_eagerchunk"}, "3_pg")) {
    CAPTURE(pair.name);
    const Graph input = read_graph(pair.input);
    const Graph expected = read_graph(pair.expected);
    CHECK(list_regrouped(input, isolate_ep_pg(input).graph) == list_regrouped(input, expected));
  }
}

TEST_CASE("real graphs keep the nodes that torchtitan keeps when token symbols become numbers") {
  for (const Pair& pair : find_pairs({"5_schedule"}, "6_concrete")) {
    CAPTURE(pair.name);
    const Graph input = read_graph(pair.input);
    const PassResult concrete = concretize(input);
    const Graph& result = concrete.graph;
    const Graph expected = read_graph(pair.expected);
    CHECK(list_names(result, input) == list_names(expected, input));
    CHECK(find_left_symbols(concrete).empty());
  }
}

}  // namespace epweave
