// The schedules of small marked regions; ids F1 ... F18 are those of the acceptance list.
#include "passes/overlap_ep.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/order.h"
#include "ir/text.h"

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

// One statement per line and part, `#` standing for the part: "d# = a2a(%r#) token_exchange=dispatch". `!`
// before it: outside the region.
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
  call = replace_all(call, "copy(", "aten._to_copy.default(");
  call = replace_all(call, "item(", "aten._local_scalar_dense.default(");
  if (call.find("all_reduce(") != call.npos) call.insert(call.size() - 1, ", \"sum\", \"dp\"");
  call = replace_all(call, "all_reduce(", "_c10d_functional.all_reduce.default(");
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

std::string refusal_of(const std::string& body, const Marked& marked = {}) {
  try {
    schedule(body, marked);
  } catch (const PassError& error) {
    return error.id();
  }
  return "scheduled";
}

const std::string kExchanges = R"(
  a# = f(%x#)
  d# = a2a(%a#) token_exchange=dispatch
  dw# = wait(%d#) token_exchange=dispatch
  b# = f(%dw#)
  c# = a2a(%b#) token_exchange=combine
  cw# = wait(%c#)
  e# = f(%cw#))";

const std::string kCounts = R"(
  r# = f(%x#)
  n# = a2a(%r#)
  k# = copy(%n#, device=@cpu) : f32[4, 8]@cpu token_count_sync=dispatch
  i# = item(%k#) : SymInt(u)
  m# = f(%n#)
  l# = copy(%m#, device=@cpu) : f32[4, 8]@cpu token_count_sync=dispatch
  j# = item(%l#) : SymInt(u)
  d# = a2a(%r#, %i#, %j#) token_exchange=dispatch
  w# = wait(%d#))";

std::string flags_of(const Graph& graph, std::initializer_list<const char*> copies) {
  std::string flags;
  for (const char* copy : copies)
    flags += find_kwarg(*graph.context, node_of(graph, copy), "non_blocking")->as_bool() ? "T" : "F";
  return flags;
}

}  // namespace

TEST_CASE("F1: first exchanges are paired, later ones follow the other part's wait") {
  CHECK(order_of(schedule(kExchanges)) == "a0 a1 d0 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 cw1 e1");
  const std::string swapped = replace_all(
      replace_all(replace_all(kExchanges, "=dispatch", "=X"), "=combine", "=dispatch"), "=X", "=combine");
  CHECK(order_of(schedule(swapped, {.backward = true, .build = "10"})) ==
        "a1 a0 d1 d0 dw1 b1 c1 dw0 b0 c0 cw1 e1 cw0 e0");
}

TEST_CASE("F2: MoE-shaped regions") {
  const std::string forward = R"(
    router# = f(%x#)
    cnt# = a2a(%router#)
    sync# = item(%cnt#) : SymInt(u)
    disp# = a2a(%router#, %sync#) token_exchange=dispatch
    shared# = f(%x#)
    dwait# = wait(%disp#)
    gmm# = f(%dwait#)
    comb# = a2a(%gmm#) token_exchange=combine
    cwait# = wait(%comb#))";
  CHECK(
      order_of(schedule(forward)) ==
      "router0 cnt0 sync0 router1 cnt1 sync1 disp0 disp1 shared0 shared1 dwait0 gmm0 comb0 dwait1 gmm1 comb1 "
      "cwait0 cwait1");
  const std::string backward = R"(
    comb# = a2a(%x#) token_exchange=combine
    remat# = f(%x#)
    cwait# = wait(%comb#)
    ig# = add(%cwait#, %remat#)
    disp# = a2a(%ig#) token_exchange=dispatch
    wgrad# = f(%disp#)
    dwait# = wait(%disp#))";
  CHECK(order_of(schedule(backward, {.backward = true})) ==
        "comb1 comb0 remat1 remat0 cwait1 ig1 disp1 cwait0 ig0 disp0 wgrad1 wgrad0 dwait1 dwait0");
}

TEST_CASE("F3: a block's first exchange runs while the other part computes") {
  CHECK(order_of(schedule(kExchanges, {.root = "layers.0"})) ==
        "a0 d0 a1 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 cw1 e1");
  CHECK(order_of(schedule(kExchanges, {.root = "layers.0", .backward = true})) ==
        "a1 d1 a0 d0 dw1 b1 c1 dw0 b0 c0 cw1 e1 cw0 e0");
  CHECK(order_of(schedule(kExchanges, {.root = "layers.0"}, {.pair_first = PairFirst::kYes})) ==
        order_of(schedule(kExchanges)));
}

TEST_CASE("F4, F5: the copies of token counts wait once") {
  const Graph paired = schedule(kCounts);
  CHECK(order_of(paired) == "r0 n0 m0 r1 n1 m1 k0 l0 k1 l1 i0 j0 i1 j1 d0 d1 w0 w1");
  CHECK(flags_of(paired, {"k0", "l0", "k1", "l1"}) == "TTTF");
  const Graph gated = schedule(kCounts, {.root = "layers.0"});
  CHECK(order_of(gated) == "r0 n0 m0 k0 l0 i0 j0 d0 r1 n1 m1 k1 l1 i1 j1 d1 w0 w1");
  CHECK(flags_of(gated, {"k0", "l0", "k1", "l1"}) == "TFTF");
  const Provenance& record = node_of(paired, "l0").provenance.back();
  CHECK(record.role == ProvenanceRole::kSpecialized);
  CHECK(paired.text(record.reason) ==
        "non_blocking=True: a later token-count copy makes the host wait for all");
}

TEST_CASE("F6 ... F11, F14: malformed regions are declined") {
  const std::string one_copy =
      replace_all(kCounts, "device=@cpu) : f32[4, 8]@cpu token_count_sync=dispatch\n  j#",
                  "device=@cpu) : f32[4, 8]@cpu\n  j#");
  CHECK(refusal_of(one_copy) == "overlap-ep.count-copies");
  CHECK(refusal_of(replace_all(replace_all(kCounts, ", device=@cpu", ""), "]@cpu", "]")) ==
        "overlap-ep.count-copy-device");
  CHECK(refusal_of(replace_all(replace_all(kExchanges, "token_exchange=dispatch", ""),
                               "token_exchange=combine", "")) == "overlap-ep.nothing-to-schedule");
  CHECK(refusal_of(replace_all(kExchanges, "b# = f(%dw#)", "b# = f(%dw#) token_exchange=combine")) ==
        "overlap-ep.label-misplaced");
  CHECK(refusal_of(kExchanges, {.build = "0"}) == "overlap-ep.part-missing");
  CHECK(refusal_of(kExchanges, {.build = "02"}) == "overlap-ep.part-missing");
  CHECK(refusal_of(replace_all(kExchanges, "cw# = wait(%c#)", "cw# = f(%c#)")) == "overlap-ep.wait-count");
}

namespace {

// The text of the F1 graph with one edit, scheduled.
std::string refusal_of_edit(std::string_view from, std::string_view to) {
  std::string text = mark_text(kExchanges, {});
  REQUIRE(text.find(from) != text.npos);
  try {
    overlap_ep(parse_text(replace_all(text, from, to), "test.txt"), {});
  } catch (const PassError& error) {
    return error.id();
  }
  return "scheduled";
}

}  // namespace

TEST_CASE("parts that differ are declined") {
  const std::string d0 = "%d0 = _c10d_functional.all_to_all_single.default(%a0, [], [], \"ep\") : f32[4, 8] ";
  CHECK(refusal_of_edit(d0 + "token_exchange=dispatch", d0 + "token_exchange=combine") ==
        "overlap-ep.exchange-labels");
  const std::string c1 = "%c1 = _c10d_functional.all_to_all_single.default(%b1, [], [], \"ep\") : f32[4, 8] ";
  CHECK(refusal_of_edit(c1 + "token_exchange=combine", c1) == "overlap-ep.exchange-count");
  CHECK(refusal_of_edit("body 0 fwd", "body fwd") == "overlap-ep.body-fields");
  CHECK(refusal_of_edit("all_to_all_single.default(%a1,", "all_to_all_single.default(%cw0,") == "scheduled");
}

TEST_CASE("F12: what the next exchange needs but no wait fills the time of this one") {
  const std::string body = R"(
    pre# = f(%x#)
    comb# = a2a(%pre#) token_exchange=combine
    prefix# = f(%x#)
    cwait# = wait(%comb#)
    sum# = add(%prefix#, %cwait#)
    disp# = a2a(%sum#) token_exchange=dispatch
    dwait# = wait(%disp#)
    tail# = f(%dwait#))";
  const Graph graph = schedule(body, {.backward = true});
  CHECK(
      order_of(graph) ==
      "pre1 pre0 comb1 comb0 prefix1 prefix0 cwait1 sum1 disp1 cwait0 sum0 disp0 dwait1 tail1 dwait0 tail0");
  CHECK(graph.text(node_of(graph, "cwait1").ep.token_exchange_wait) == "combine");
  CHECK_FALSE(node_of(graph, "cwait1").ep.token_exchange);
}

TEST_CASE("F13: other collectives are no filler") {
  const std::string body = R"(
    disp# = a2a(%x#) token_exchange=dispatch
    dwait# = wait(%disp#)
    ar# = all_reduce(%x#)
    pre# = add(%dwait#, %ar#)
    comb# = a2a(%pre#) token_exchange=combine
    cwait# = wait(%comb#))";
  CHECK(order_of(schedule(body)) == "disp0 disp1 dwait0 ar0 pre0 comb0 dwait1 ar1 pre1 comb1 cwait0 cwait1");
}

TEST_CASE("any number of parts: forward in ascending turns, backward in descending ones") {
  CHECK(order_of(schedule(kExchanges, {.build = "012"})) ==
        "a0 a1 a2 d0 d1 d2 dw0 b0 c0 dw1 b1 c1 dw2 b2 c2 cw0 e0 cw1 e1 cw2 e2");
  CHECK(order_of(schedule(kExchanges, {.backward = true, .build = "012"})) ==
        "a2 a1 a0 d2 d1 d0 dw2 b2 c2 dw1 b1 c1 dw0 b0 c0 cw2 e2 cw1 e1 cw0 e0");
  CHECK(order_of(schedule(kExchanges, {.root = "layers.0", .build = "210"})) ==
        "a0 d0 a1 d1 a2 d2 dw0 b0 c0 dw1 b1 c1 dw2 b2 c2 cw0 e0 cw1 e1 cw2 e2");
  // Order of the parts' names in the file does not matter.
  CHECK(order_of(schedule(kExchanges, {.build = "2013"})) ==
        order_of(schedule(kExchanges, {.build = "0123"})));
}

TEST_CASE("only the last of all parts' token-count copies waits") {
  const Graph paired = schedule(kCounts, {.build = "012"});
  CHECK(order_of(paired) ==
        "r0 n0 m0 r1 n1 m1 r2 n2 m2 k0 l0 k1 l1 k2 l2 i0 j0 i1 j1 i2 j2 d0 d1 d2 w0 w1 w2");
  CHECK(flags_of(paired, {"k0", "l0", "k1", "l1", "k2", "l2"}) == "TTTTTF");
  const Graph gated = schedule(kCounts, {.root = "layers.0", .build = "012"});
  CHECK(order_of(gated) ==
        "r0 n0 m0 k0 l0 i0 j0 d0 r1 n1 m1 k1 l1 i1 j1 d1 r2 n2 m2 k2 l2 i2 j2 d2 w0 w1 w2");
  CHECK(flags_of(gated, {"k0", "l0", "k1", "l1", "k2", "l2"}) == "TFTFTF");
}

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

TEST_CASE("F15: any sequence of labels") {
  const std::string body = R"(
    a# = a2a(%x#) token_exchange=combine
    aw# = wait(%a#)
    b# = a2a(%aw#) token_exchange=dispatch
    bw# = wait(%b#)
    c# = a2a(%bw#) token_exchange=combine
    cw# = wait(%c#))";
  CHECK(order_of(schedule(body, {.backward = true})) == "a1 a0 aw1 b1 aw0 b0 bw1 c1 bw0 c0 cw1 cw0");
}

TEST_CASE("F16: what a body needs from outside goes before it") {
  const std::string body = replace_all(kExchanges, "a# = f(%x#)", "!s# = f(%x#)\n  a# = f(%s#)");
  CHECK(order_of(schedule(body)) == "s0 a0 s1 a1 d0 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 cw1 e1");
}

TEST_CASE("what only follows a body stays behind it, and says what it follows") {
  const Graph graph = schedule(kExchanges + "\n  !z# = f(%e#)");
  CHECK(order_of(graph) == "a0 a1 d0 d1 dw0 b0 c0 dw1 b1 c1 cw0 e0 z0 cw1 e1 z1");
  const Provenance& record = node_of(graph, "d1").provenance.back();
  CHECK(record.role == ProvenanceRole::kMoved);
  CHECK(graph.text(record.reason) == "launches exchange 0 (dispatch)");
  CHECK(graph.text(record.region) == "layers.0.moe");
  CHECK(graph.text(record.origins.at(0)) == "d1");
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

TEST_CASE("a schedule that contradicts the graph names the cycle") {
  // Part 1 needs part 0's result through another region.
  std::string text = mark_text(kExchanges, {});
  text = replace_all(text, "  %a1 = aten.silu.default(%x1)",
                     "  %other = aten.silu.default(%e0) : f32[4, 8] chunk(@layers.9.moe body 0 fwd)\n"
                     "  %a1 = aten.silu.default(%other)");
  try {
    overlap_ep(parse_text(text, "test.txt"), {});
    FAIL("scheduled");
  } catch (const PassError& error) {
    CHECK(error.id() == "overlap-ep.contradiction");
    CHECK(error.problem() ==
          "other: the schedule contradicts the graph: e0 -> other (takes its value) -> a1 (takes its value) "
          "-> d0 "
          "(is scheduled behind it) -> dw0 (takes its value) -> b0 (takes its value) -> c0 (takes its value) "
          "-> "
          "cw0 (takes its value) -> e0 (takes its value)");
  }
}

TEST_CASE("F18: an owned node before the first computation goes with its part") {
  const std::string body = replace_all(kExchanges, "a# = f(%x#)", "setup# = f(%x#)\n  a# = f(%setup#)");
  CHECK(order_of(schedule(body, {.backward = true})) ==
        "setup1 a1 setup0 a0 d1 d0 dw1 b1 c1 dw0 b0 c0 cw1 e1 cw0 e0");
}

}  // namespace epweave
