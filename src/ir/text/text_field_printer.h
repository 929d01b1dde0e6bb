// Writes the fields that text_fields.h describes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text/text_printer.h"
#include "ir/text/text_spelling.h"

namespace epweave::text {

// Writes ` key=value` for every field that says something.
class FieldPrinter {
 public:
  FieldPrinter(Printer& printer, const Body* body) : p_(printer), out_(printer.out()), body_(body) {}

  void operator()(std::string_view key, StringId value) {
    if (value) start(key), p_.word(value);
  }
  void operator()(std::string_view key, const std::string& value) {
    if (!value.empty()) start(key), p_.word(value);
  }
  void operator()(std::string_view key, const bool& value) {
    if (value) begin(key);
  }
  void operator()(std::string_view yes, std::string_view no, const std::optional<bool>& value) {
    if (value) begin(*value ? yes : no);
  }
  void operator()(std::string_view key, const std::optional<std::int64_t>& value) {
    if (value) start(key), p_.integer(*value);
  }
  void operator()(std::string_view key, const std::vector<StringId>& value) {
    list(key, value, [&](StringId item) { p_.word(item); });
  }
  void operator()(std::string_view key, const std::vector<std::string>& value) {
    if (!value.empty()) list(key, value, [&](const std::string& item) { p_.word(item); });
  }
  void operator()(std::string_view key, const std::vector<std::uint32_t>& value) {
    if (!value.empty()) list(key, value, [&](std::uint32_t item) { p_.integer(item); });
  }
  void operator()(std::string_view key, const std::vector<ExprId>& value) {
    if (!value.empty()) exprs(key, value);
  }
  void operator()(std::string_view key, const std::optional<std::vector<ExprId>>& value) {
    if (value) exprs(key, *value);
  }
  void operator()(std::string_view key, const std::optional<std::vector<StringId>>& value) {
    if (value) (*this)(key, *value);
  }
  void operator()(std::string_view key, const std::optional<ExprId>& value) {
    if (value) start(key), p_.expr_word(*value);
  }
  void operator()(std::string_view key, Arg value) {
    if (!value.is_none()) start(key), p_.arg(body_, value);
  }
  void operator()(std::string_view key, TypeId value) {
    if (value) start(key), p_.type(value);
  }
  void number(std::string_view key, std::uint32_t value, std::uint32_t fallback) {
    if (value != fallback) start(key), p_.integer(value);
  }
  void hex(std::string_view key, std::string_view bytes) {
    if (!bytes.empty()) start(key), p_.hex(bytes);
  }
  void pairs(std::string_view key, ArgRange named) {
    if (!named.empty()) begin(key), p_.pairs(body_, named, '{', "=", '}');
  }

  void plain_pairs(std::string_view key, ArgRange named) { pairs(key, named); }

  void range(const std::optional<ExprId>& lower, const std::optional<ExprId>& upper) {
    if (lower && upper) return exprs("range", {*lower, *upper});
    (*this)("lower", lower);
    (*this)("upper", upper);
  }

  void custom(const Node& node, ArgRange entries) {
    const bool is_implied = implies_custom(node, entries);
    if (!node.has_custom && is_implied) begin("no_custom");
    if (!entries.empty() || (node.has_custom && !is_implied))
      begin("custom"), p_.pairs(body_, entries, '{', "=", '}');
  }

  // chunk(@layers.1.moe body 0 fwd by=graph of=%mm proof=...)
  void chunk(const ChunkInfo& chunk) {
    if (chunk == ChunkInfo()) return;
    open("chunk");
    if (chunk.region) begin("@"), p_.word(chunk.region);
    if (chunk.role) begin(""), bare_word(chunk.role);
    if (chunk.part) begin(""), p_.integer(*chunk.part);
    (*this)("bwd", "fwd", chunk.backward);
    (*this)("by", chunk.producer);
    if (chunk.original_name) start("of"), p_.node_name(chunk.original_name);
    (*this)("proof", chunk.proof);
    close();
  }

  // from(chunk body %mm 0/2 @layers.1.moe bwd "why")
  void provenance(const ProvenanceList& records) {
    for (const Provenance& record : records) {
      open("from");
      begin(""), p_.word(record.pass);
      begin(name_of(record.role));
      for (StringId origin : record.origins) begin(""), p_.node_name(origin);
      if (record.part != 0 || record.parts != 0) {
        begin(""), p_.integer(record.part);
        out_ += '/';
        p_.integer(record.parts);
      }
      if (record.region) begin("@"), p_.word(record.region);
      (*this)("bwd", "fwd", record.backward);
      if (record.reason) begin(""), p_.quoted(p_.context().text(record.reason));
      close();
    }
  }

  // bind(u4, {"kind": ...})
  void bindings(const std::vector<Binding>& bindings) {
    for (const Binding& binding : bindings) {
      begin("bind("), p_.word(binding.symbol);
      for (std::uint32_t i = 0; i < binding.path.count; ++i) {
        out_ += ", ";
        p_.arg(body_, p_.context().args[binding.path][i]);
      }
      out_ += ')';
    }
  }

  // hints(u0=512, u1=256)
  void hints(const std::vector<std::pair<StringId, std::int64_t>>& hints) {
    if (hints.empty()) return;
    begin("hints(");
    p_.joined(hints, [&](const auto& hint) {
      p_.word(hint.first);
      out_ += '=';
      p_.integer(hint.second);
    });
    out_ += ')';
  }

 private:
  void begin(std::string_view key) {
    if (out_.empty() || out_.back() != '(') out_ += ' ';
    out_ += key;
  }
  void start(std::string_view key) { begin(key), out_ += '='; }
  void open(std::string_view key) { begin(key), out_ += '('; }
  void close() { out_ += ')'; }

  // A word that must not look like the other things that stand beside it without a key.
  void bare_word(StringId id) {
    const std::string_view text = p_.context().text(id);
    if (is_key(text) && text != "bwd" && text != "fwd") {
      out_ += text;
    } else {
      p_.quoted(text);
    }
  }

  template <class Range, class Print>
  void list(std::string_view key, const Range& items, const Print& print) {
    start(key);
    out_ += '[';
    p_.joined(items, print);
    out_ += ']';
  }
  void exprs(std::string_view key, const std::vector<ExprId>& items) {
    list(key, items, [&](ExprId item) { p_.expr(item); });
  }

  Printer& p_;
  std::string& out_;
  const Body* body_;
};

}  // namespace epweave::text
