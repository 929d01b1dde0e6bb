#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "io/file.h"
#include "io/onnx/onnx_codec.h"
#include "ir/text/text.h"

using namespace epweave;

namespace {

constexpr std::string_view kGraph = R"(epweave text 1
version producer="a tracer"
info model = "toy"
symbol u range=[2, 8] hint=4 unbacked
group 35 ranks=[0, 1] description=mesh_ep
output loss
output grad fqn=w
output grad fqn=w

graph
  %x = placeholder[input] : f32[u, 3]@cuda:0 role=user which=x
  %w = placeholder : f32[3, 3]@cuda:0 role=parameter fqn=w more{requires_grad=True}
  %mesh = placeholder : =mesh(["ep"], [2], [0, 1], "cuda") role=user
  %score = get_attr[inner.score] attr=graph(score)
  %again = get_attr attr=graph(score)
  %lifted = get_attr attr=tensor("lifted", type(f32[2]), [0.5, None])
  %mm = aten.mm.default(%x, %w) : f32[u, 3]@cuda:0 @layers.0 seq=3 src="model.py:3 in forward: \"x\"\n"
  %reals = a.tool(1.0, -0.0, 0.1, inf, -inf, nan, nan(0xfff8000000000001), 1e300, 0, True, False, None, "text", ..., "", [], (), (1,), [1], [1, True], [None, 0.5], sym(u + 1), slice(None, 2, 1), complex(0.1, 2.0))
  %torch = a.tool(bf16, dtype("torch.bits8"), c32, @cuda:1, torch.strided, torch.channels_last, pg(35), op(aten.mm.default), {"a": 1}, set(1), graph(score), graph(mask))
  %nested = a.tool([%mm, %mm, None, (%x, 2)], %mm, out=%x, dtype=f32, "odd key"=2, arg0=3, arg1=[%w], pkg.epweave.call=4)
  %split = aten.split.Tensor(%mm, 2) : (f32[2, 3]@cuda:0, f32[u - 2, 3]{3, 1}+6@cpu<requires_grad>)
  %first = operator.getitem(%split, 0) : f32[2, 3]@cuda:0 @layers.0 bwd chunk(@layers.0 body 0 bwd of=%mm) custom{EP="no", n=%mm} meta{k={"x": %mm}} from(chunk body %mm 0/2 @layers.0 "why")
  %size = aten.sym_size.int(%mm, 0) : SymInt(u) no_custom
  output([%first, %mm, %mm]) seq=9

graph score
  %x = placeholder : f32[]@cuda:0
  %inner = get_attr attr=graph(mask)
  output(%x)

graph unused
  %x = placeholder
  output((%x, None, 3))

graph mask
  %mm = aten.neg.default(2)
  output(%mm)
)";

std::string onnx_of(std::string_view text, Format format) {
  return encode(parse_text(text, "t"), format);
}

onnx::ModelProto model_of(std::string_view text) {
  onnx::ModelProto model;
  encode_onnx(parse_text(text, "t"), OnnxIr::k8, model);
  return model;
}

constexpr std::string_view kSmall = R"(epweave text 1

graph
  %x = placeholder : f32[2, 3]@cuda:0
  %sum = aten.sum.dim_IntList(%x, [1], True, dtype=f32) : f32[2, 1]@cuda:0 seq=1
  %mm = aten.mm.default(%sum, %x) : f32[2, 3]@cuda:0
  output([%mm])
)";

// The message that a model changed so is refused with.
std::string refusal(const std::function<void(onnx::ModelProto&)>& change) {
  onnx::ModelProto model = model_of(kSmall);
  change(model);
  std::string bytes;
  model.SerializeToString(&bytes);
  try {
    decode(bytes, Format::kOnnx, "g.onnx");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a graph comes back from ONNX as it was") {
  const std::string binary = encode_binary(parse_text(kGraph, "t"));
  for (const Format format : {Format::kOnnx, Format::kOnnxIr10}) {
    const std::string bytes = onnx_of(kGraph, format);
    const Graph back = decode(bytes, format, "t.onnx");
    CHECK(print_text(back) == print_text(parse_text(kGraph, "t")));
    CHECK(encode_binary(back) == binary);
    CHECK(encode(back, format) == bytes);
  }
}

TEST_CASE("a call's constants are attributes named after the schema") {
  const onnx::ModelProto model = model_of(kSmall);
  const onnx::NodeProto& sum = model.graph().node(0);
  CHECK(sum.domain() == "pkg.torch.ops");
  CHECK(sum.op_type() == "aten.sum.dim_IntList");
  CHECK(sum.name() == "sum");
  REQUIRE(sum.input_size() == 1);
  CHECK(sum.input(0) == "x");
  REQUIRE(sum.attribute_size() >= 3);
  CHECK(sum.attribute(0).name() == "dim");
  CHECK(sum.attribute(0).ints(0) == 1);
  CHECK(sum.attribute(1).name() == "keepdim");
  CHECK(sum.attribute(1).i() == 1);
  CHECK(sum.attribute(2).name() == "dtype");
  CHECK(sum.attribute(2).i() == 1);
  CHECK(sum.metadata_props(0).key() == "pkg.epweave.call");
  CHECK(sum.metadata_props(0).value() == "(%0, @dim, @keepdim:bool, dtype=@dtype:dtype)");
  // Sizes and symbols of values are ONNX's own.
  const onnx::ModelProto symbolic = model_of(kGraph);
  const auto& shape = symbolic.graph().input(0).type().tensor_type().shape();
  CHECK(shape.dim(0).dim_param() == "u");
  CHECK(shape.dim(1).dim_value() == 3);
}

TEST_CASE("viewers are told what a node is and what its inputs are for") {
  const onnx::ModelProto model = model_of(kGraph);
  const auto node_named = [&](std::string_view name) -> const onnx::NodeProto& {
    const auto& nodes = model.graph().node();
    const auto found =
        std::ranges::find(nodes, name, [](const onnx::NodeProto& node) { return node.name(); });
    REQUIRE(found != nodes.end());
    return *found;
  };
  const auto input_names = [&](std::string_view name) -> std::string {
    for (const auto& entry : node_named(name).metadata_props())
      if (entry.key() == "input_names") return entry.value();
    return "";
  };
  CHECK(input_names("mm") == "['self', 'mat2']");
  CHECK(input_names("nested") ==
        "['arg0[0]', 'arg0[1]', 'arg0[3][0]', 'arg1', 'out', 'arg1[0]']");  // the last by keyword
  CHECK(input_names("reals").empty());
  CHECK(node_named("mm").doc_string() == "layers.0 : f32[u, 3]@cuda:0");
  CHECK(node_named("first").doc_string() == "layers.0 backward, part 0 : f32[2, 3]@cuda:0");
  // Viewers show the first domain's operators without their last piece.
  CHECK(node_named("mm").domain() == "pkg.torch.ops");
  CHECK(node_named("first").domain() == "pkg.torch");
}

TEST_CASE("IR 8 repeats the metadata of nodes as attributes, IR 10 does not") {
  auto attributes = [](OnnxIr ir) {
    onnx::ModelProto model;
    encode_onnx(parse_text(kSmall, "t"), ir, model);
    CHECK(model.ir_version() == static_cast<int>(ir));
    CHECK(model.graph().node(0).metadata_props_size() == 4);  // call, type, seq, and input_names for Netron
    return model.graph().node(0).attribute_size();
  };
  CHECK(attributes(OnnxIr::k8) == 6);
  CHECK(attributes(OnnxIr::k10) == 3);
}

TEST_CASE("a model that a tool changed is read, or refused by name") {
  using Catch::Contains;
  using Model = onnx::ModelProto;
  SECTION("notes of others are no facts") {
    CHECK(refusal([](Model& m) {
            m.mutable_graph()->mutable_node(0)->set_doc_string("a note");
            auto& entry = *m.mutable_graph()->mutable_node(0)->add_metadata_props();
            entry.set_key("com.example");
            entry.set_value("a note");
          }) == "");
  }
  SECTION("values renamed throughout") {
    CHECK(refusal([](Model& m) {
            m.mutable_graph()->mutable_node(0)->set_output(0, "renamed");
            m.mutable_graph()->mutable_node(1)->set_input(0, "renamed");
            m.mutable_graph()->mutable_value_info(0)->set_name("renamed");
          }) == "");
  }
  SECTION("not ours") {
    const std::string message = refusal([](Model& m) {
      m.clear_metadata_props();
      m.mutable_graph()->mutable_node(0)->set_domain("");
      m.mutable_graph()->mutable_node(0)->set_op_type("Gemm");
    });
    CHECK_THAT(message, Contains("g.onnx: not a graph that epweave wrote"));
    CHECK_THAT(message, Contains("node 'sum' is Gemm"));
  }
  SECTION("an operator of another domain") {
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(1)->set_domain("com.microsoft"); }),
               Contains("node 'mm': is the operator com.microsoft::aten.mm.default"));
  }
  SECTION("weights") {
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->add_initializer("\x0a\x01w"); }),
               Contains("graph 'step': has initializers"));
  }
  SECTION("functions") {
    CHECK_THAT(refusal([](Model& m) { m.add_functions(""); }), Contains("g.onnx: has functions"));
  }
  SECTION("fields of a newer ONNX") {
    CHECK_THAT(refusal([](Model& m) {
                 Model& model = m;
                 model.GetReflection()->MutableUnknownFields(&model)->AddVarint(77, 1);
               }),
               Contains("ModelProto has field 77"));
  }
  SECTION("metadata dropped, mirrored ones suffice for nodes") {
    CHECK(refusal([](Model& m) { m.mutable_graph()->mutable_node(0)->clear_metadata_props(); }) == "");
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_input(0)->clear_metadata_props(); }),
               Contains("input 'x': has no metadata"));
  }
  SECTION("a mirror changed") {
    CHECK_THAT(
        refusal([](Model& m) { m.mutable_graph()->mutable_node(0)->mutable_attribute(5)->set_s("2"); }),
        Contains("node 'sum': pkg.epweave.seq is there twice, with different values"));
  }
  SECTION("a shape changed") {
    CHECK_THAT(refusal([](Model& m) {
                 auto& type = *m.mutable_graph()->mutable_value_info(0)->mutable_type();
                 type.mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(5);
               }),
               Contains("node 'sum': its ONNX type is not that of pkg.epweave.type"));
  }
  SECTION("an attribute changed") {
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(0)->mutable_attribute(1)->set_i(2); }),
               Contains("attribute 'keepdim' of type INT is no bool"));
    CHECK_THAT(
        refusal([](Model& m) { m.mutable_graph()->mutable_node(0)->add_attribute()->set_name("extra"); }),
        Contains("node 'sum': attribute 'extra' is not part of pkg.epweave.call"));
  }
  SECTION("an input too many, one too few, one that is nowhere") {
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(1)->add_input("x"); }),
               Contains("node 'mm': input 2 is not part of pkg.epweave.call"));
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(1)->mutable_input()->RemoveLast(); }),
               Contains("there is no input %1"));
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(1)->set_input(0, "y"); }),
               Contains("node 'mm': reads 'y', which is no value of its graph"));
  }
  SECTION("a value defined twice") {
    CHECK_THAT(refusal([](Model& m) { m.mutable_graph()->mutable_node(1)->set_output(0, "x"); }),
               Contains("value 'x' is defined twice"));
  }
}

TEST_CASE("external data is refused") {
  onnx::ModelProto model = model_of("epweave text 1\n\ngraph\n  %a = a.tool(0.1)\n  output([%a])\n");
  onnx::TensorProto& tensor = *model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t();
  tensor.add_external_data("\x0a\x08location\x12\x0b../../etc/passwd");
  tensor.set_data_location(1);
  std::string bytes;
  model.SerializeToString(&bytes);
  CHECK_THROWS_WITH(decode(bytes, Format::kOnnx, "g.onnx"), Catch::Contains("has external data"));
}

TEST_CASE("a graph that ONNX has no place for is refused") {
  CHECK_THROWS_WITH(
      onnx_of("epweave text 1\n\ngraph\n  %a = a.tool(%b)\n  %b = a.tool()\n  output([%a])\n", Format::kOnnx),
      Catch::Contains("defined-first"));
}

TEST_CASE("a placeholder that reads another is refused") {
  CHECK_THROWS_WITH(
      onnx_of("epweave text 1\n\ngraph\n  %a = placeholder\n  %b = placeholder(%a)\n  output([%b])\n",
              Format::kOnnx),
      Catch::Contains("cannot hold placeholder 'b'"));
}

TEST_CASE("graphs nested deeper than readers allow stand beside the step") {
  std::string text = "epweave text 1\n\ngraph\n  %g = get_attr attr=graph(n0)\n  output([%g])\n";
  for (int i = 0; i < 60; ++i)
    text += "\ngraph n" + std::to_string(i) + "\n  %g = get_attr attr=graph(n" +
            std::to_string((i + 1) % 60) + ")\n  output(%g)\n";
  const Graph graph = parse_text(text, "t");
  CHECK(encode_binary(decode(encode(graph, Format::kOnnx), Format::kOnnx, "t")) == encode_binary(graph));
}
