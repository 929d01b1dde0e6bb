#include "ir/text/text.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "io/file.h"

namespace epweave {
namespace {

std::string everything() {
  return read_bytes(EPWEAVE_SOURCE_DIR "/testdata/text/everything.txt");
}

Graph parse(std::string_view text) {
  return parse_text(text, "t.txt");
}

// The message for a graph of this one line, without the file name.
std::string error_of_line(std::string_view line) {
  try {
    parse("epweave text 1\n" + std::string(line));
  } catch (const InputError& error) {
    return std::string(error.what()).substr(std::string("t.txt:2:").size());
  }
  return "no error";
}

// Anything is read or refused, and what is read can be written and read again.
void check_survives(std::string_view text) {
  try {
    const Graph graph = parse(text);
    const std::string printed = print_text(graph);
    CHECK(print_text(parse(printed)) == printed);
    print_text(graph, TextMode::kShort);
  } catch (const InputError&) {
  }
}

constexpr std::string_view kMinimal = R"(epweave text 1
symbol u range=[2, 8] hint=4 unbacked

graph
  %x = placeholder : f32[u, 3]
  %w = placeholder : f32[3, 3]
  %mm = aten.mm.default(%x, %w) : f32[u, 3] @layers.0
  %relu = aten.relu.default(%mm)
  output([%relu])
)";

}  // namespace

TEST_CASE("a hand-written graph needs little") {
  const Graph graph = parse(kMinimal);
  CHECK(print_text(graph) == kMinimal);
  const Node& mm = graph.step().nodes[graph.step().order[2]];
  CHECK(mm.op != nullptr);
  CHECK(mm.has_custom);
  CHECK(graph.inputs.size() == 2);
  CHECK(graph.outputs.size() == 1);
  const TensorType& type = *tensor_of(*graph.context, mm.type);
  CHECK(graph.context->exprs.text(type.strides[0]) == "3");
}

TEST_CASE("the step needs no header of its own") {
  const Graph graph =
      parse("# a comment\nepweave text 1  # another\n\n%x = placeholder\r\noutput(%x)  # the end");
  CHECK(graph.step().order.size() == 2);
  CHECK(graph.outputs.size() == 1);
}

TEST_CASE("everything a file can hold is printed as it was read") {
  const std::string text = everything();
  const Graph graph = parse(text);
  CHECK(print_text(graph) == text);
  const std::string binary = encode_binary(graph);
  CHECK(print_text(decode(binary, Format::kBinary, "t")) == text);
  CHECK(encode_binary(decode(binary, Format::kBinary, "t")) == binary);
}

TEST_CASE("roles that do not fit the placeholders have lines of their own") {
  for (const char* roles :
       {"no inputs\nno outputs\n", "input a fqn=w\ninput _ role=user\noutput loss\noutput grad\n"}) {
    const std::string text =
        std::string("epweave text 1\n") + roles + "\ngraph\n  %x = placeholder\n  output([%x])\n";
    CHECK(print_text(parse(text)) == text);
  }
}

TEST_CASE("references to nodes that do not exist or come twice are for verify to judge") {
  const Graph graph = parse("epweave text 1\n%a = f(%b, %c)\n%b = f()\n%b = g(%b)\noutput(%a)\n");
  const auto args = graph.context->args[graph.step().nodes[graph.step().order[0]].args];
  CHECK(args[0] == Arg::node(graph.step().order[1]));
  CHECK(args[1].is(ArgKind::kUnresolved));
}

TEST_CASE("an extent that is a number has one spelling") {
  const Graph graph = parse("epweave text 1\n%x = placeholder : f32[03, 2*2]{2*2, 1}\n");
  CHECK(print_text(graph) == "epweave text 1\n\ngraph\n  %x = placeholder : f32[3, 4]\n");
}

TEST_CASE("control characters are escapes") {
  const std::string text = "epweave text 1\n\ngraph\n  output(\"\\x1b\\x7f\\u0080\\u009f\xc2\xa0\")\n";
  CHECK(print_text(parse(text)) == text);
  CHECK(print_text(parse("epweave text 1\noutput(\"\x1b\x7f\xc2\x80\xc2\x9f\xc2\xa0\")\n")) == text);
}

TEST_CASE("doubles are exact") {
  for (const char* number :
       {"0.1", "1e-05", "5e-324", "1.7976931348623157e+308", "-0.0", "nan(0xfff8000000000000)"}) {
    const std::string text = fmt::format("epweave text 1\n\ngraph\n  output({})\n", number);
    CHECK(print_text(parse(text)) == text);
  }
}

TEST_CASE("strides are left out only where the reader arrives at the same") {
  Graph graph;
  Context& context = *graph.context;
  auto expr = [&](std::string_view text) { return context.exprs.parse(text); };
  TensorType type{.device = context.strings.intern("cpu")};
  type.sizes = {expr("2"), expr("u0"), expr("u1 + 1")};
  auto printed = [&](std::vector<ExprId> strides) {
    type.strides = std::move(strides);
    Body& body = graph.bodies.emplace_back();
    Node node;
    node.name = node.target = context.strings.intern("n");
    node.type = context.types.tensor(type);
    return print_node(graph, body, body.nodes.push_back(node), TextMode::kFull);
  };
  CHECK(printed({expr("u0 + u0*u1"), expr("u1 + 1"), expr("1")}) == "%n = n() : f32[2, u0, u1 + 1]@cpu");
  CHECK(printed({expr("u0*(u1 + 1)"), expr("u1 + 1"), expr("1")}) ==
        "%n = n() : f32[2, u0, u1 + 1]{u0*(u1 + 1), u1 + 1, 1}@cpu");
}

TEST_CASE("the short mode is for reading") {
  CHECK(print_text(parse(kMinimal), TextMode::kShort) == R"(5 nodes
symbol u in [2, 8], was 4

  %x       placeholder      f32[u, 3]
  %w       placeholder      f32[3, 3]
  %mm      aten.mm(%x, %w)  f32[u, 3]  layers.0
  %relu    aten.relu(%mm)
  %output  output([%relu])
)");
}

TEST_CASE("parse errors name file, line and column") {
  CHECK_THROWS_WITH(parse(""), "t.txt:1:1: expected 'epweave text 1'\n  \n  ^");
  CHECK_THROWS_WITH(parse("epweave text 1\n\n  %x = f(%y %z)\n"),
                    "t.txt:3:13: expected ',' or ')'\n    %x = f(%y %z)\n              ^");
  CHECK_THROWS_WITH(parse("epweave text 1\n%x = f(\"\xc3\xa9\", !)\n"),
                    "t.txt:2:13: expected a value\n  %x = f(\"\xc3\xa9\", !)\n              ^");
}

TEST_CASE("parse errors say what is wrong") {
  auto check = [](std::string_view line, std::string_view expected) {
    const std::string error = error_of_line(line);
    CHECK(error.substr(0, error.find('\n')) == expected);
  };
  check("nonsense", "1: unknown line 'nonsense'");
  check("%x = placeholder hints(_=8)", "25: expected the name of a symbol");
  check("%x = placeholder bind(_)", "24: expected the name of a symbol");
  check("symbol u hint=x", "15: expected an integer");
  check("symbol u hint=1 hint=2", "17: 'hint' is given twice");
  check("symbol u range=[1]", "10: a range has two bounds: range=[0, 8]");
  check("symbol u asserts=[u ==]", "19: bad expression: expression ends early");
  check("version min_reader=2",
        "1: needs a reader of format version 2; this is version 1: use a newer epweave");
  check("unknown a006", "9: these bytes are not protobuf fields");
  check("info a = %x", "10: only arguments of nodes can refer to nodes");
  check("%x = f() : =%x", "13: only arguments of nodes can refer to nodes");
  check("%x f()", "4: expected '='");
  check("%_ = f()", "1: a node needs a name");
  check("%x = f", "6: expected a call: target(...)");
  check("f(%x)", "1: unknown line 'f'");
  check("%x = f(1, a=2, 3)", "16: a positional argument cannot follow a keyword");
  check("%x = f((1))", "11: a tuple of one element is written with a comma: (x,)");
  check("%x = f(slice(1))", "8: a slice has a start, a stop and a step");
  check("%x = f(99999999999999999999)", "8: integer does not fit in 64 bits");
  check("%x = f(\"a)", "8: this string has no closing quote");
  for (const char* escape : {"\\q", "\\x80", "\\u007f", "\\u00a0", "\\u85"})
    check(fmt::format("%x = f(\"{}\")", escape),
          "9: unknown escape: \\\" \\\\ \\n \\t, \\x00 to \\x7f and \\u0080 to \\u009f are known");
  check("%x = f(\"\xff\")", "9: not UTF-8");
  // Wherever it stands among bytes that are looked at together, in a text and as its last bytes.
  for (std::size_t ahead = 0; ahead < 18; ++ahead)
    for (const char* broken : {"\xe2\x82", "\xf0\x9f\x98", "\xc0\xaf", "\xed\xa0\x80", "\x80"}) {
      const std::string text = fmt::format("%x = f(\"{}\xc3\xa9{}", std::string(ahead, 'a'), broken);
      const std::string expected = fmt::format("{}: not UTF-8", text.size() - std::strlen(broken));
      check(text, expected);
      check(text + "behind it\")", expected);
    }
  check("%x = f(torch.odd)", "8: unknown value 'torch.odd'");
  check("%x = f() : f31[3]", "12: unknown dtype 'f31'");
  check("%x = f() : f32[3]{1, 1}", "12: 1 sizes but 2 strides");
  check("%x = f() : f32[u +]", "16: bad expression: expression ends early");
  check("%x = f() colour=red", "10: unknown key 'colour'");
  check("%x = f() chunk(@a @b)", "19: the region is given twice");
  check("%x = f() from(p invented)",
        "17: expected a role: kept, moved, body, split, part-input, materialize, size, "
        "added, merged or specialized");
  check("%x = f(" + std::string(1000, '['), "108: nested too deeply");
  check("%x = f() : " + std::string(1000, '('), "112: nested too deeply");
}

TEST_CASE("a long line is shown in part") {
  const std::string error =
      error_of_line("%x = f(" + std::string(200, '1') + ", \"" + std::string(200, 'a') + "\")");
  CHECK(error.find("...\n") != error.npos);
}

TEST_CASE("no text makes the parser crash") {
  const std::string text = everything();
  for (std::size_t i = 0; i < text.size(); i += 7) check_survives(text.substr(0, i));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = text;
    for (int edits = 0; edits < 3; ++edits) {
      const std::size_t at = random() % changed.size();
      switch (random() % 3) {
        case 0:
          changed[at] = text[random() % text.size()];
          break;
        case 1:
          changed.erase(at, 1 + random() % 4);
          break;
        default:
          changed.insert(at, text, random() % text.size(), 1 + random() % 8);
      }
    }
    check_survives(changed);
  }
}

}  // namespace epweave
