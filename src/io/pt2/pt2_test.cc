#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "analysis/verify.h"
#include "io/file.h"
#include "io/pt2/pt2_codec.h"
#include "io/pt2/pt2_metadata.h"
#include "io/pt2/srepr.h"
#include "ir/text/text.h"

using namespace epweave;

namespace {

const std::string kFolder = EPWEAVE_SOURCE_DIR "/testdata/pt2/";

// A program with these nodes, inputs x and y of one float each, which returns x.
std::string program(const std::string& nodes, const std::string& version = R"({"major": 8, "minor": 20})") {
  const std::string meta = R"({"dtype": 7, "sizes": [{"as_int": 2}], "requires_grad": false,
      "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0},
      "layout": 7})";
  return R"({"schema_version": )" + version + R"(, "range_constraints": {}, "graph_module": {"graph": {
      "inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "x"}}],
      "nodes": [)" +
         nodes + R"(], "tensor_values": {"x": )" + meta + R"(, "y": )" + meta + R"(},
      "sym_int_values": {}, "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {}},
    "signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                  "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "x"}}}}]}}})";
}

std::string node(const std::string& inputs) {
  return R"({"target": "torch.ops.aten.neg.default", "inputs": [)" + inputs +
         R"(], "outputs": [{"as_tensor": {"name": "y"}}], "metadata": {}})";
}

Graph read(const std::string& text) {
  return decode_pt2(text, "m.pt2", std::make_shared<Context>());
}

}  // namespace

TEST_CASE("an archive of torch.export is the graph that was exported") {
  const Graph graph = read_graph(kFolder + "small.pt2");
  std::ifstream file(kFolder + "small.txt");
  std::stringstream expected;
  expected << file.rdbuf();
  CHECK(print_text(graph) == expected.str());
  CHECK(verify_graph(graph).empty());
}

TEST_CASE("srepr becomes the expression that sympy prints") {
  CHECK(expression_of_srepr("Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))") ==
        "2*s0 + 1");
  CHECK(expression_of_srepr("Add(Symbol('a'), Mul(Integer(-1), Integer(3), Symbol('b')))") == "a - 3*b");
  CHECK(expression_of_srepr("Mul(Integer(-1), Add(Symbol('a'), Integer(-2)))") == "-(a - 2)");
  CHECK(expression_of_srepr("Mul(Integer(8), FloorDiv(Add(Symbol('a'), Integer(7)), Integer(8)))") ==
        "8*((a + 7)//8)");
  CHECK(expression_of_srepr("Mod(Symbol('a'), Integer(8))") == "Mod(a, 8)");
  CHECK(expression_of_srepr("Pow(Add(Symbol('a'), Integer(1)), Integer(2))") == "(a + 1)**2");
  CHECK(expression_of_srepr("Mul(Rational(1, 2), Symbol('a'))") == "1/2*a");
  CHECK(expression_of_srepr("Max(Integer(1), Symbol('a'))") == "Max(1, a)");
  CHECK(expression_of_srepr("Equality(Mod(Symbol('a'), Integer(2)), Integer(0))") == "Eq(Mod(a, 2), 0)");
  CHECK(expression_of_srepr("And(LessThan(Symbol('a'), Integer(3)), Unequality(Symbol('a'), Integer(1)))") ==
        "a <= 3 & Ne(a, 1)");
  for (const char* text : {"", "Add(", "Add(Integer(1)", "Integer(x)", "Integer(1) + 1", "Symbol(a)",
                           "Add(Integer(1),)", "Symbol('a', positive)", "Integer(1))"})
    CHECK_THROWS_AS(expression_of_srepr(text), InputError);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Add(";
  CHECK_THROWS_WITH(expression_of_srepr(deep), Catch::Contains("nests too deeply"));
}

TEST_CASE("the source of a node is the last frame outside torch") {
  CHECK(last_user_frame("File \"model.py\", line 3, in forward\n    x @ w\n  File "
                        "\"/usr/lib/python3/site-packages/torch/nn/modules/linear.py\", line 5, in forward\n "
                        "   return y") == "model.py:3 in forward: x @ w");
  CHECK(last_user_frame("no frame") == "no frame");
}

TEST_CASE("a program that is not as torch writes it is refused by name") {
  using Catch::Contains;
  CHECK_NOTHROW(read(program(node(R"({"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1})"))));
  CHECK_THROWS_WITH(read("{"), Contains("m.pt2: the program is not JSON"));
  CHECK_THROWS_WITH(read("[]"), Contains("m.pt2: an object with 'schema_version' is expected"));
  CHECK_THROWS_WITH(read(program("", R"({"major": 7, "minor": 0})")),
                    Contains("schema version 7.0 of torch.export"));
  CHECK_THROWS_WITH(
      read(program(node(R"({"name": "self", "arg": {"as_tensor": {"name": "z"}}, "kind": 1})"))),
      Contains("m.pt2: node 'y': 'z' is used before it is defined"));
  CHECK_THROWS_WITH(
      read(program(node(R"({"name": "self", "arg": {"as_custom_obj": {"name": "z"}}, "kind": 1})"))),
      Contains("node 'y': an argument of kind 'as_custom_obj' cannot be read"));
  CHECK_THROWS_WITH(read(program(node(R"({"name": "self", "arg": {"as_scalar_type": 99}, "kind": 1})"))),
                    Contains("node 'y': 99 is not a number of torch's"));
  CHECK_THROWS_WITH(read(program(node("") + ", " + node(""))), Contains("two nodes are named 'y'"));
  CHECK_THROWS_WITH(read(std::string(200, '[') + std::string(200, ']')), Contains("nests deeper than 100"));
}
