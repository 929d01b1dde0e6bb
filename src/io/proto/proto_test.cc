#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <utility>

#include "base/error.h"
#include "io/file.h"
#include "io/proto/proto_codec.h"
#include "io/proto/wire_writer.h"
#include "ir/text/text.h"

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

// A step of one placeholder "x" with fields that `write` adds to its node.
template <class Write>
std::string file_with_fields(const Write& write) {
  WireWriter out;
  out.set_text(1, "epweave");
  const auto version = out.open(2);
  out.set(1, 1);
  out.close(version);
  const auto graph = out.open(10);
  const auto node = out.open(2);
  out.set(1, 1);
  out.set(2, 1);
  out.set(3, 2);
  write(out);
  out.close(node);
  out.close(graph);
  out.set_text(14, "x");
  out.set_text(14, "placeholder");
  return out.take();
}

TEST_CASE("numbers of a list are read packed and one by one") {
  std::string forms[2];
  for (const bool packed : {false, true})
    forms[packed] = encode_binary(decode_proto(file_with_fields([&](WireWriter& out) {
                                                 const auto record = out.open(22);
                                                 const auto list = packed ? out.open(3) : WireWriter::Open{};
                                                 for (const unsigned origin : {1U, 2U})
                                                   packed ? out.add(origin) : out.set(3, origin);
                                                 if (packed) out.close(list);
                                                 out.close(record);
                                               }),
                                               "f", std::make_shared<Context>()));
  CHECK(forms[0] == forms[1]);
  CHECK(forms[0].find("\xb2\x01\x04\x1a\x02\x01\x02") != std::string::npos);  // the record, packed
}

TEST_CASE("what is written in pieces is what is written in one") {
  WireWriter cut, whole;
  for (WireWriter* out : {&cut, &whole}) {
    const auto outer = out->open(10);
    for (int i = 0; i < 40'000; ++i) {
      const auto inner = out->open(2);
      out->set(3, static_cast<std::uint64_t>(i));
      out->close(inner);
      if (out == &cut) out->cut_if_long();
    }
    out->close(outer);
    out->set_text(14, "behind it");
  }
  const std::vector<std::string> pieces = cut.take_pieces();
  CHECK(pieces.size() == 7);
  std::string joined;
  for (const std::string& piece : pieces) joined += piece;
  CHECK(joined == whole.take());
}

TEST_CASE("hints and bindings name a symbol") {
  const auto decode = [](unsigned field) {
    decode_proto(file_with_fields([&](WireWriter& out) {
                   const auto entry = out.open(static_cast<int>(field));
                   if (field == 18) out.set(2, 8);
                   out.close(entry);
                 }),
                 "f", std::make_shared<Context>());
  };
  CHECK_THROWS_WITH(decode(18), "f: a hint names no symbol");
  CHECK_THROWS_WITH(decode(17), "f: a binding names no symbol");
}

TEST_CASE("a value has one kind, and a known field with another wire type is an unknown one") {
  const auto decode_fields = [](const auto& write) {
    return decode_proto(file_with_fields(write), "f", std::make_shared<Context>());
  };
  CHECK_THROWS_WITH(decode_fields([](WireWriter& out) {
                      const auto value = out.open(4);
                      out.set(2, 1);
                      out.set_signed(3, 7);
                      out.close(value);
                    }),
                    "f: a value is of two kinds");
  CHECK_THROWS_WITH(decode_fields([](WireWriter& out) {
                      const auto value = out.open(4);
                      out.set_text(3, "seven");
                      out.close(value);
                    }),
                    "f: epweave.proto.Value has fields of a newer format that a rewrite could not keep");
  CHECK_THROWS_WITH(decode_fields([](WireWriter& out) {
                      const auto value = out.open(4);
                      out.set(2, 1);
                      out.set(100, 1);
                      out.close(value);
                    }),
                    "f: epweave.proto.Value has fields of a newer format that a rewrite could not keep");
  const Graph graph = decode_fields([](WireWriter& out) { out.set_text(12, "seven"); });
  CHECK(graph.step().nodes[NodeId(0U)].extra->unknown_fields == "\x62\x05seven");
  for (const char* broken : {"\x58", "\x59zzzzzzz", "\x5a\x02z", "\x5dzzz", "\x07", "\xa3\x06", "\x64"})
    CHECK_THROWS_WITH(decode_fields([&](WireWriter& out) { out.append(broken); }),
                      "f: not a valid protobuf message");
}

TEST_CASE("fields of a newer format are refused in messages that have no room for them") {
  using Write = std::function<void(WireWriter&)>;
  const auto within = [](int field, const Write& write) {
    return [=](WireWriter& out) {
      const auto message = out.open(field);
      write(out);
      out.close(message);
    };
  };
  const Write newer = [](WireWriter& out) { out.set(100, 1); };
  const Write named_newer = [](WireWriter& out) {
    out.set(1, 1);
    out.set(100, 1);
  };
  const std::vector<std::pair<std::string, Write>> in_node = {
      {"Value", within(4, newer)},  // an argument
      {"Values", within(4, within(9, newer))},
      {"Keyword", within(5, named_newer)},
      {"Keyword", within(21, named_newer)},
      {"Ep", within(14, newer)},
      {"Chunk", within(15, newer)},
      {"Binding", within(17, named_newer)},
      {"Hint", within(18, named_newer)},
      {"Provenance", within(22, newer)},
  };
  const std::vector<std::pair<std::string, Write>> in_file = {
      {"Value", within(3, newer)},
      {"Origin", within(5, newer)},
      {"Keyword", within(8, within(5, named_newer))},  // of an input
      {"Keyword", within(9, within(3, named_newer))},  // of an output
      {"Type", within(13, newer)},
      {"Tensor", within(13, within(1, newer))},
      {"Scalar", within(13, within(2, newer))},
      {"Elements", within(13, within(3, newer))},
      {"Elements", within(13, within(4, newer))},
  };
  const auto refusal = [](const std::string& message) {
    return fmt::format("f: epweave.proto.{} has fields of a newer format that a rewrite could not keep",
                       message);
  };
  for (const auto& [message, write] : in_node)
    CHECK_THROWS_WITH(decode_proto(file_with_fields(write), "f", std::make_shared<Context>()),
                      refusal(message));
  for (const auto& [message, write] : in_file) {
    WireWriter out;
    write(out);
    CHECK_THROWS_WITH(
        decode_proto(file_with_fields([](WireWriter&) {}) + out.take(), "f", std::make_shared<Context>()),
        refusal(message));
  }
}

TEST_CASE("inputs and outputs keep fields of a newer format, their keywords refuse them") {
  const auto file_with = [](bool has_newer_keyword) {
    WireWriter out;
    out.set_text(1, "epweave");
    const auto version = out.open(2);
    out.set(1, 1);
    out.close(version);
    // An input, whose keywords are field 5, and an output, whose keywords are field 3.
    for (const auto& [field, keywords] : {std::pair{8, 5}, std::pair{9, 3}}) {
      const auto role = out.open(field);
      out.set(1, 1);
      out.set_text(60, "new");
      const auto keyword = out.open(keywords);
      out.set(1, 2);
      if (has_newer_keyword) out.set(9, 1);
      out.close(keyword);
      out.set(61, 7);
      out.close(role);
    }
    out.set_text(14, "x");
    out.set_text(14, "key");
    return out.take();
  };
  const Graph graph = decode_proto(file_with(false), "f", std::make_shared<Context>());
  const std::string newer = "\xe2\x03\x03new\xe8\x03\x07";
  const auto key_of = [&](ArgRange more) { return graph.text(graph.context->args[more][0].as_name()); };
  REQUIRE(graph.inputs.size() == 1);
  CHECK(graph.text(graph.inputs[0].name) == "x");
  CHECK(key_of(graph.inputs[0].more) == "key");
  CHECK(graph.inputs[0].unknown_fields == newer);
  REQUIRE(graph.outputs.size() == 1);
  CHECK(graph.text(graph.outputs[0].role) == "x");
  CHECK(key_of(graph.outputs[0].more) == "key");
  CHECK(graph.outputs[0].unknown_fields == newer);
  CHECK_THROWS_WITH(decode_proto(file_with(true), "f", std::make_shared<Context>()),
                    "f: epweave.proto.Keyword has fields of a newer format that a rewrite could not keep");
}

// A step of one node "x", with an unknown field of this many groups within one another.
std::string file_with_groups(int depth, bool in_node) {
  std::string groups;
  for (int i = 0; i < depth; ++i) groups += "\xa3\x06";  // 100, begin
  for (int i = 0; i < depth; ++i) groups += "\xa4\x06";
  WireWriter out;
  out.set_text(1, "epweave");
  const auto version = out.open(2);
  out.set(1, 1);
  out.close(version);
  const auto graph = out.open(10);
  const auto node = out.open(2);
  if (in_node) out.append(groups);  // before the name
  out.set(1, 1);
  out.set(3, 1);
  out.close(node);
  out.close(graph);
  out.set_text(14, "x");
  if (!in_node) out.append(groups);
  return out.take();
}

TEST_CASE("unknown groups are kept in binary and text form as deep as they are read") {
  for (const bool in_node : {false, true}) {
    for (const int depth : {1, 101, 198}) {
      const Graph graph = decode_proto(file_with_groups(depth, in_node), "f", std::make_shared<Context>());
      const std::string bytes = encode_binary(graph);
      const std::size_t size = 4 * static_cast<std::size_t>(depth);
      CHECK((in_node ? graph.step().nodes[NodeId(0U)].extra->unknown_fields : graph.unknown_fields).size() ==
            size);
      CHECK(encode_binary(decode_proto(bytes, "f", std::make_shared<Context>())) == bytes);
      CHECK(encode_binary(parse_text(print_text(graph), "f", std::make_shared<Context>())) == bytes);
    }
    CHECK_THROWS_WITH(decode_proto(file_with_groups(250, in_node), "f", std::make_shared<Context>()),
                      in_node ? "f: a node has no name" : "f: not a valid protobuf message");
  }
}

TEST_CASE("what the text form nests, the binary form holds; JSON holds less and says so") {
  const std::string value = std::string(100, '[') + std::string(100, ']');
  const Graph graph = parse_text(
      "epweave text 1\n\ngraph\n  %x = placeholder : f32[8] role=user meta{m=" + value + "}\n  output(%x)\n",
      "f", std::make_shared<Context>());
  const std::string bytes = encode_binary(graph);
  CHECK(encode_binary(decode_proto(bytes, "f", std::make_shared<Context>())) == bytes);
  CHECK_THROWS_AS(encode(graph, Format::kJson), InputError);
}

// A file whose info is lists within one another, around one `None`.
std::string file_with_lists(int lists) {
  WireWriter out;
  out.set_text(1, "epweave");
  const auto version = out.open(2);
  out.set(1, 1);
  out.close(version);
  std::vector<WireWriter::Open> open{out.open(3)};
  for (int i = 0; i < lists; ++i) {
    open.push_back(out.open(9));
    open.push_back(out.open(1));
  }
  out.set(1, 1);
  for (; !open.empty(); open.pop_back()) out.close(open.back());
  return out.take();
}

TEST_CASE("the binary form nests no deeper than the text form") {
  const Graph graph = decode_proto(file_with_lists(99), "f", std::make_shared<Context>());
  CHECK(encode_binary(parse_text(print_text(graph), "f", std::make_shared<Context>())) ==
        encode_binary(graph));
  CHECK_THROWS_WITH(decode_proto(file_with_lists(100), "f", std::make_shared<Context>()),
                    "f: values are nested more than 100 deep");
}

TEST_CASE("a length beyond 32 bits is not cut to its low bits") {
  WireWriter out;
  out.set_text(1, "epweave");
  const std::string length = "\x81\x80\x80\x80\x10";  // 1 + 2^32
  CHECK_THROWS_WITH(decode_proto(out.take() + "\x72" + length + "x", "f", std::make_shared<Context>()),
                    "f: not a valid protobuf message");
}

TEST_CASE("a small file of empty entries does not fill the memory") {
  const auto file_of = [](char tag, std::size_t count) {
    WireWriter out;
    out.set_text(1, "epweave");
    std::string bytes = out.take();
    for (std::size_t i = 0; i < count; ++i) bytes += {tag, '\0'};
    return bytes;
  };
  CHECK_THROWS_WITH(decode_proto(file_of(4 << 3 | 2, (1u << 17) + 1), "f", std::make_shared<Context>()),
                    "f: more than 131072 passes, which no step has");
  CHECK_THROWS_WITH(decode_proto(file_of(10 << 3 | 2, (1u << 17) + 1), "f", std::make_shared<Context>()),
                    "f: more than 131072 graphs, which no step has");
  CHECK_THROWS_WITH(decode_proto(file_of(9 << 3 | 2, (1u << 20) + 1), "f", std::make_shared<Context>()),
                    "f: more than 1048576 outputs, which no step has");
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
