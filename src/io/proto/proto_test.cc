#include <catch2/catch.hpp>

#include "io/proto/proto_codec.h"
#include "io/proto/wire_writer.h"

namespace epweave {
namespace {

// A step of one placeholder "x", whose node holds these fields beside its kind and target.
std::string file_with_node(bool name_last, bool second_name) {
  WireWriter out;
  out.set_text(1, "epweave");
  const auto version = out.open(2);
  out.set(1, 1);
  out.close(version);
  const auto graph = out.open(10);
  const auto node = out.open(2);
  if (!name_last) out.set(1, 1);
  out.set(2, 1);
  out.set(3, 2);
  if (name_last) out.set(1, 1);
  if (second_name) out.set(1, 2);
  out.close(node);
  out.close(graph);
  out.set_text(14, "x");
  out.set_text(14, "placeholder");
  return out.take();
}

TEST_CASE("a node's fields come in any order, its name once") {
  for (const bool name_last : {false, true}) {
    const Graph graph = decode_proto(file_with_node(name_last, false), "f", std::make_shared<Context>());
    REQUIRE(graph.step().order.size() == 1);
    CHECK(graph.text(graph.step().nodes[NodeId(0U)].name) == "x");
    CHECK_THROWS_WITH(decode_proto(file_with_node(name_last, true), "f", std::make_shared<Context>()),
                      "f: node 'x' has two names");
  }
}

TEST_CASE("a length of more than one byte moves what lies behind it") {
  WireWriter out;
  const auto outer = out.open(1);
  out.set_text(2, std::string(200, 'a'));
  out.close(outer);
  CHECK(out.take() == "\x0a\xcb\x01\x12\xc8\x01" + std::string(200, 'a'));
}

}  // namespace
}  // namespace epweave
