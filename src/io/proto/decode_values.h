// The strings, expressions, types and values of a file. All else refers to them by their number.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epweave.pb.h"
#include "io/proto/wire_reader.h"
#include "ir/graph.h"

namespace epweave {

class ValueDecoder {
 public:
  // `path`: for errors.
  ValueDecoder(const std::string& path, Context& context) : path_(path), context_(context) {}

  Context& context() const { return context_; }

  // The tables: strings before types.
  void add_strings(std::span<const std::string_view> texts);
  void add_types(const google::protobuf::RepeatedPtrField<proto::Type>& types);

  StringId text(std::uint32_t ref) const {
    if (ref == 0) return StringId();
    if (ref > strings_.size()) fail_text(ref);
    return strings_[ref - 1];
  }
  ExprId expr(std::uint32_t ref);
  TypeId type(std::uint32_t ref) const {
    if (ref == 0) return TypeId();
    if (ref > types_.size())
      fail(fmt::format("type {} is outside the table of {}, or refers forward", ref, types_.size()));
    return types_[ref - 1];
  }

  // An absent message reads as None (File.info, Keyword.value).
  Arg decode_value(std::string_view message);
  Arg decode_value(const proto::Value& value) { return decode_value(value.SerializeAsString()); }
  // A name and a value.
  void add_keyword(std::string_view keyword, std::vector<Arg>& pairs);

  // References to nodes mean those of one body, by name: of several with one name, the first.
  void name_node(StringId name, NodeId id) {
    if (NodeId& known = node_of_name_.at(name); !known) known = id;
  }
  void begin_body() { is_in_body_ = true; }
  void end_body(const Body& body);

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_text(std::uint32_t ref) const;
  [[noreturn]] void fail_parse() const { fail("not a valid protobuf message"); }
  [[noreturn]] void fail_unknown(std::string_view message) const;
  // Messages that have no room for fields of a newer format: better refused than lost.
  template <class Message>
  void refuse_unknown(const Message& message) const {
    if (!message.GetReflection()->GetUnknownFields(message).empty()) fail_unknown(message.GetTypeName());
  }
  // Calls take(reader) for each field of a message.
  template <class Take>
  void for_each_field(std::string_view message, const Take& take) const {
    WireReader in(message);
    while (in.next()) take(in);
    if (in.is_broken()) fail_parse();
  }

 private:
  ExprId extent(std::int64_t value);
  TypeId decode_type(const proto::Type& message);
  TensorType decode_tensor(const proto::Tensor& message);
  Arg named(ArgKind kind, std::uint32_t ref) const;
  // Trees are interned, so that equal types get the same id. Children lie on a stack until all are
  // there.
  Arg decode_tree(ArgKind kind, std::string_view values);
  void check_children(ArgKind kind, std::size_t count) const;
  // The field of the oneof in Value; none: another field.
  std::optional<Arg> decode_kind(const WireReader& in);
  Arg decode_node_ref(std::uint32_t ref) const;

  const std::string& path_;
  Context& context_;
  std::vector<StringId> strings_;
  std::vector<ExprId> exprs_;  // of the strings that are one
  std::vector<TypeId> types_;
  SideTable<StringId, NodeId> node_of_name_;
  bool is_in_body_ = false;
  std::vector<Arg> stack_;  // the children of trees that are decoded
  int trees_ = 0;           // these trees, within one another
};

}  // namespace epweave
