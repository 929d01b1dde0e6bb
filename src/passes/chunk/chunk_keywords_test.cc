// Whether a call passes an argument by position or by keyword makes no difference to chunk. The
// graphs are the inputs of the goldens of chunk.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"
#include "ops/op.h"
#include "passes/test_text.h"
#include "pipeline/pipeline.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

struct Golden {
  std::string name, input, pipeline;
};

std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t begin = text.find(from);
  if (begin == text.npos) return {};
  const std::size_t end = text.find(to, begin + from.size());
  return text.substr(begin + from.size(), end - begin - from.size());
}

std::vector<Golden> read_goldens() {
  std::vector<Golden> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(EPWEAVE_SOURCE_DIR "/testdata/chunk")) {
    if (entry.path().extension() != ".test") continue;
    const std::string text = read_bytes(entry.path().string());
    const Golden golden{entry.path().filename().string(),
                        between(text, "=== input.txt ===\n", "=== stdout ==="), between(text, "-p '", "'")};
    if (!golden.input.empty() && golden.pipeline.starts_with("chunk")) goldens.push_back(golden);
  }
  std::sort(goldens.begin(), goldens.end(), [](auto& a, auto& b) { return a.name < b.name; });
  return goldens;
}

enum class Order : std::uint8_t { kOfSchema, kReversed };

// All arguments of the step's calls by keyword.
void respell(Graph& graph, Order order) {
  Context& context = *graph.context;
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    const auto args = context.args[node.args];
    if (node.kind != NodeKind::kCall || node.op == nullptr || args.size() > node.op->params.size()) continue;
    std::vector<std::pair<Arg, Arg>> pairs;
    for (std::size_t i = 0; i < args.size(); ++i)
      pairs.emplace_back(Arg::text(context.strings.intern(node.op->params[i].name)), args[i]);
    const auto kwargs = context.args[node.kwargs];
    for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) pairs.emplace_back(kwargs[i], kwargs[i + 1]);
    if (order == Order::kReversed) std::reverse(pairs.begin(), pairs.end());
    std::vector<Arg> words;
    for (const auto& [name, value] : pairs) words.insert(words.end(), {name, value});
    node.args = ArgRange();
    node.kwargs = context.args.add(words);
  }
}

// The code of the result, all by keyword in the order of the schema, or why the graph is declined.
std::string outcome(const Golden& golden, std::optional<Order> order) {
  try {
    Graph graph = parse_text(golden.input, "input.txt");
    if (order) respell(graph, *order);
    Graph result = run_pipeline(graph, parse_pipeline(golden.pipeline), {.verify = VerifyPolicy::kOff});
    respell(result, Order::kOfSchema);
    return print_code(result);
  } catch (const PassError& error) {
    return error.what();
  } catch (const UsageError& error) {
    return error.what();
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST_CASE("arguments by keyword are chunked as those by position are") {
  const std::vector<Golden> goldens = read_goldens();
  REQUIRE(goldens.size() > 150);
  for (const Golden& golden : goldens) {
    INFO(golden.name);
    const std::string expected = outcome(golden, {});
    CHECK(outcome(golden, Order::kOfSchema) == expected);
  }
}

// What is cut or joined first may change with the order in which arguments are written, and with it
// numbers in names; not whether the graph can be divided.
TEST_CASE("the order of keywords does not decide whether a graph can be chunked") {
  const auto id_of = [](const std::string& text) {
    const std::size_t begin = text.rfind(" [chunk.");
    return begin == text.npos ? std::string("divided") : text.substr(begin, text.find(']', begin) - begin);
  };
  for (const Golden& golden : read_goldens()) {
    INFO(golden.name);
    CHECK(id_of(outcome(golden, Order::kReversed)) == id_of(outcome(golden, {})));
  }
}

}  // namespace
}  // namespace epweave
