// What the schedules of small marked regions record, and how they meet the rest of the graph. The
// orders themselves and the refusals are goldens in testdata/schedule.
#include "passes/overlap_ep/overlap_ep.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/order.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

struct Marked {
  std::string root = "layers.0.moe";
  bool backward = false;
  std::string build = "01";  // parts in the order in which they are traced
};

// One statement per line and part, `#` standing for the part: "d# = a2a(%r#)
// token_exchange=dispatch". `!` before it: outside the region.
std::string mark_line(std::string line, const Marked& marked, char part) {
  const bool is_outside = line.front() == '!';
  if (is_outside) line.erase(0, 1);
  const std::size_t close = line.find(')');
  std::string call = line.substr(0, close + 1), labels = line.substr(close + 1);
  if (call.find("a2a(") != call.npos) call.insert(call.size() - 1, ", [], [], \"ep\"");
  call = replace_all(call, "a2a(", "_c10d_functional.all_to_all_single.default(");
  call = replace_all(call, "wait(", "_c10d_functional.wait_tensor.default(");
  call = replace_all(call, "f(", "aten.silu.default(");
  call = replace_all(call, "add(", "aten.add.Tensor(");
  const std::string chunk = is_outside ? ""
                                       : fmt::format(" chunk(@{} body {} {} by=graph)", marked.root, part,
                                                     marked.backward ? "bwd" : "fwd");
  const bool is_typed = labels.find(" : ") != labels.npos;
  return replace_all(fmt::format("  %{}{}{}{}\n", call, is_typed ? "" : " : f32[4, 8]", labels, chunk), "#",
                     std::string(1, part));
}

std::string mark_text(const std::string& body, const Marked& marked) {
  std::string text =
      "epweave text 1\ndevice cuda:0\ngraph\n  %x0 = placeholder : f32[4, 8]\n  %x1 = placeholder : f32[4, "
      "8]\n";
  for (char part : marked.build) {
    std::istringstream stream(body);
    for (std::string line; std::getline(stream, line);)
      if (line.find('=') != line.npos)
        text += mark_line(line.substr(line.find_first_not_of(' ')), marked, part);
  }
  return text + "  output([])\n";
}

Graph mark(const std::string& body, const Marked& marked = {}) {
  return parse_text(mark_text(body, marked), "test.txt");
}

Graph schedule(const std::string& body, const Marked& marked = {}, const OverlapEpOptions& options = {}) {
  return overlap_ep(mark(body, marked), options).graph;
}

const Node& node_of(const Graph& graph, std::string_view name) {
  for (const Node& node : graph.step().nodes)
    if (graph.text(node.name) == name) return node;
  throw CheckError("no such node");
}

std::string order_of(const Graph& graph) {
  std::string names;
  for (NodeId id : graph.step().order)
    if (graph.step().nodes[id].kind == NodeKind::kCall)
      names += fmt::format("{}{}", names.empty() ? "" : " ", graph.text(graph.step().nodes[id].name));
  return names;
}

const std::string kExchanges = R"(
  a# = f(%x#)
  d# = a2a(%a#) token_exchange=dispatch
  dw# = wait(%d#) token_exchange=dispatch
  b# = f(%dw#)
  c# = a2a(%b#) token_exchange=combine
  cw# = wait(%c#)
  e# = f(%cw#))";

}  // namespace

TEST_CASE("a region that is given its parts one by one is scheduled behind the one before") {
  const std::string first = mark_text(kExchanges, {.root = "layers.0", .build = "01"});
  std::string second = mark_text(kExchanges, {.root = "layers.1", .build = "01"});
  second = second.substr(second.find("  %a0"));
  for (const char* name :
       {"a0", "a1", "d0", "d1", "dw0", "dw1", "b0", "b1", "c0", "c1", "cw0", "cw1", "e0", "e1"})
    second = replace_all(second, fmt::format("%{} ", name), fmt::format("%n{} ", name));
  second = replace_all(second, "(%x", "(%e");
  for (const char* name : {"a", "d", "dw", "b", "c", "cw"})
    second = replace_all(second, fmt::format("(%{}", name), fmt::format("(%n{}", name));
  second = replace_all(second, "(%ne", "(%e");
  const std::string text = first.substr(0, first.find("  output(")) + second;
  CHECK(order_of(overlap_ep(parse_text(text, "test.txt"), {}).graph) ==
        "a0 d0 a1 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 cw1 e1 na0 nd0 na1 nd1 "
        "ndw0 nb0 nc0 ndw1 nb1 nc1 ncw0 ne0 ncw1 ne1");
}

TEST_CASE("what only follows a body stays behind it, and says what it follows") {
  const Graph graph = schedule(kExchanges + "\n  !z# = f(%e#)");
  CHECK(order_of(graph) == "a0 a1 d0 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 z0 cw1 e1 z1");
  const Provenance& record = node_of(graph, "d1").provenance.back();
  CHECK(record.role == ProvenanceRole::kMoved);
  CHECK(graph.text(record.reason) == "launches exchange 0 (dispatch)");
  CHECK(graph.text(record.region) == "layers.0.moe");
  CHECK(graph.text(record.origins[0]) == "d1");
  CHECK(node_of(graph, "a0").provenance.empty());
}

TEST_CASE("a buffer that both parts update in place keeps its order") {
  // The write is reached by no data edge from the other part's read: only the storage ties them.
  const std::string body = R"(
    a# = f(%x#)
    d# = a2a(%a#) token_exchange=dispatch
    dw# = wait(%d#)
    read# = f(%buffer)
    write# = aten.add_.Tensor(%buffer, %read#)
    e# = f(%dw#))";
  const std::string text = replace_all(mark_text(body, {.backward = true}), "graph\n",
                                       "graph\n  %buffer = placeholder : f32[4, 8]\n");
  const Graph graph = overlap_ep(parse_text(text, "test.txt"), {}).graph;
  CHECK(order_of(graph) == "a1 a0 d1 d0 read0 write0 read1 write1 dw1 e1 dw0 e0");
}

}  // namespace epweave
