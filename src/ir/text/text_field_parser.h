// Reads the fields that text_fields.h describes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text/text_cursor.h"
#include "ir/text/text_values.h"

namespace epweave::text {

// Reads the value of one field: the field of the description whose key is the one just read.
class FieldParser {
 public:
  FieldParser(ValueParser& values, Cursor& in) : v_(values), in_(in) {}

  // Reads `key`, `key=value` and the like to the end of the line. `visit` walks the description.
  template <class Visit>
  void read_all(const Visit& visit) {
    while (!in_.skip_to_end()) read_one(visit);
  }

  template <class Visit>
  void read_one(const Visit& visit) {
    begin_ = in_.position();
    key_ = in_.scan_name();
    is_read_ = false;
    if (key_.empty()) in_.fail("expected a key");
    visit();
    if (!is_read_) in_.fail_at(begin_, fmt::format("unknown key '{}'", key_));
  }

  void operator()(std::string_view key, StringId& value) {
    if (takes_value(key)) value = v_.read_word(in_);
  }
  void operator()(std::string_view key, std::string& value) {
    if (takes_value(key)) value = v_.read_text(in_);
  }
  void operator()(std::string_view key, bool& value) {
    if (takes(key)) value = true;
  }
  void operator()(std::string_view yes, std::string_view no, std::optional<bool>& value) {
    if (takes(yes)) {
      value = true;
    } else if (takes(no)) {
      value = false;
    }
  }
  void operator()(std::string_view key, std::optional<std::int64_t>& value) {
    if (takes_value(key)) value = in_.read_integer();
  }
  void operator()(std::string_view key, std::vector<StringId>& value) {
    if (takes_value(key)) list([&] { value.push_back(v_.read_word(in_)); });
  }
  void operator()(std::string_view key, std::vector<std::string>& value) {
    if (takes_value(key)) list([&] { value.push_back(v_.read_text(in_)); });
  }
  void operator()(std::string_view key, std::vector<std::uint32_t>& value) {
    if (takes_value(key)) list([&] { value.push_back(in_.read_unsigned()); });
  }
  void operator()(std::string_view key, std::vector<ExprId>& value) {
    if (takes_value(key)) value = exprs();
  }
  void operator()(std::string_view key, std::optional<std::vector<ExprId>>& value) {
    if (takes_value(key)) value = exprs();
  }
  void operator()(std::string_view key, std::optional<std::vector<StringId>>& value) {
    if (!takes_value(key)) return;
    value.emplace();
    list([&] { value->push_back(v_.read_word(in_)); });
  }
  void operator()(std::string_view key, std::optional<ExprId>& value) {
    if (takes_value(key)) value = v_.read_expr_word(in_);
  }
  void operator()(std::string_view key, Arg& value) {
    if (takes_value(key)) value = v_.read_arg(in_);
  }
  void operator()(std::string_view key, TypeId& value) {
    if (takes_value(key)) value = v_.read_type(in_);
  }
  void number(std::string_view key, std::uint32_t& value, std::uint32_t) {
    if (takes_value(key)) value = in_.read_unsigned();
  }
  void hex(std::string_view key, std::string& bytes) {
    if (takes_value(key)) bytes = in_.read_hex();
  }
  void pairs(std::string_view key, ArgRange& named) {
    if (takes(key)) named = v_.read_pairs(in_);
  }

  // Data of the file, not of a node: it refers to no nodes.
  void plain_pairs(std::string_view key, ArgRange& named) {
    if (takes(key)) named = v_.read_plain_pairs(in_);
  }

  void range(std::optional<ExprId>& lower, std::optional<ExprId>& upper) {
    (*this)("lower", lower);
    (*this)("upper", upper);
    if (!takes_value("range")) return;
    const std::vector<ExprId> bounds = exprs();
    if (bounds.size() != 2) in_.fail_at(begin_, "a range has two bounds: range=[0, 8]");
    lower = bounds[0];
    upper = bounds[1];
  }

  void custom(Node& node, ArgRange& entries) {
    if (takes("custom")) {
      entries = v_.read_pairs(in_);
      node.has_custom = true;
    }
    if (takes("no_custom")) has_no_custom_ = true;
  }
  bool has_no_custom() const { return has_no_custom_; }

  void chunk(ChunkInfo& chunk) {
    if (!takes("chunk")) return;
    in_.expect('(');
    FieldParser inner(v_, in_);
    for (in_.skip_spaces(); !in_.accept(')'); in_.skip_spaces()) inner.read_chunk_item(chunk);
  }

  void provenance(ProvenanceList& records) {
    if (!takes("from", Repeats::kYes)) return;
    in_.expect('(');
    in_.skip_spaces();
    Provenance record;
    record.pass = v_.read_word(in_);
    in_.skip_spaces();
    record.role = read_role();
    FieldParser inner(v_, in_);
    std::vector<StringId> origins;
    for (in_.skip_spaces(); !in_.accept(')'); in_.skip_spaces()) inner.read_provenance_item(record, origins);
    record.origins = v_.context().own(origins);
    std::vector<Provenance> all(records.begin(), records.end());
    all.push_back(record);
    records = v_.context().own(all);
  }

  void bindings(std::vector<Binding>& bindings) {
    if (!takes("bind", Repeats::kYes)) return;
    in_.expect('(');
    in_.skip_spaces();
    const StringId symbol = read_symbol();
    in_.skip_spaces();
    std::vector<Arg> path;
    if (!in_.accept(')')) {
      in_.expect(',');
      ValueParser::read_list(in_, ')', [&] { path.push_back(v_.read_arg(in_)); });
    }
    bindings.push_back({symbol, v_.context().args.add(path)});
  }

  void hints(std::vector<std::pair<StringId, std::int64_t>>& hints) {
    if (!takes("hints")) return;
    in_.expect('(');
    ValueParser::read_list(in_, ')', [&] {
      const StringId symbol = read_symbol();
      in_.expect('=');
      in_.skip_spaces();
      hints.emplace_back(symbol, in_.read_integer());
    });
  }

 private:
  enum class Repeats { kNo, kYes };

  StringId read_symbol() {
    const StringId symbol = v_.read_word(in_);
    if (!symbol) in_.fail("expected the name of a symbol");
    return symbol;
  }

  // Whether the key just read is this one. A line that gives a key twice is a mistake.
  bool takes(std::string_view key, Repeats repeats = Repeats::kNo) {
    if (is_read_ || key != key_) return false;
    is_read_ = true;
    if (repeats == Repeats::kYes) return true;
    if (std::ranges::find(seen_, key) != seen_.end())
      in_.fail_at(begin_, fmt::format("'{}' is given twice", key));
    seen_.push_back(key);
    return true;
  }
  bool takes_value(std::string_view key) {
    if (!takes(key)) return false;
    in_.expect('=');
    in_.skip_spaces();
    return true;
  }

  template <class Read>
  void list(const Read& read) {
    in_.expect('[');
    ValueParser::read_list(in_, ']', read);
  }
  std::vector<ExprId> exprs() {
    in_.expect('[');
    return v_.read_exprs(in_, ']');
  }

  ProvenanceRole read_role() {
    const std::size_t begin = in_.position();
    const std::string_view word = in_.scan_word();
    for (int i = 0; i <= static_cast<int>(ProvenanceRole::kSpecialized); ++i)
      if (name_of(static_cast<ProvenanceRole>(i)) == word) return static_cast<ProvenanceRole>(i);
    in_.fail_at(begin,
                "expected a role: kept, moved, body, split, part-input, materialize, size, added, merged or "
                "specialized");
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // @REGION ROLE PART bwd|fwd by=PRODUCER of=%ORIGINAL proof=PROOF
  void read_chunk_item(ChunkInfo& chunk) {
    const std::size_t begin = in_.position();
    const char c = in_.peek();
    if (in_.accept('@')) {
      set_once(begin, "the region", chunk.region, v_.read_word(in_));
    } else if (c == '"') {
      set_once(begin, "the role", chunk.role, v_.read_word(in_));
    } else if (is_digit(c)) {
      if (chunk.part) in_.fail("the part is given twice");
      const std::int64_t part = in_.read_integer();
      if (part > INT32_MAX) in_.fail_at(begin, "part numbers go to 2147483647");
      chunk.part = static_cast<std::int32_t>(part);
    } else if (is_role_ahead()) {
      set_once(begin, "the role", chunk.role, v_.read_word(in_));
    } else {
      read_one([&] {
        (*this)("bwd", "fwd", chunk.backward);
        (*this)("by", chunk.producer);
        (*this)("proof", chunk.proof);
        if (takes_value("of")) chunk.original_name = v_.read_node_name(in_);
      });
    }
  }

  // A word that is neither a direction nor a key.
  bool is_role_ahead() const {
    Cursor ahead = in_;
    const std::string_view word = ahead.scan_name();
    return !word.empty() && word != "bwd" && word != "fwd" && ahead.peek() != '=';
  }

  // %ORIGIN PART/PARTS @REGION bwd|fwd "REASON"
  void read_provenance_item(Provenance& record, std::vector<StringId>& origins) {
    const std::size_t begin = in_.position();
    const char c = in_.peek();
    if (c == '%') {
      origins.push_back(v_.read_node_name(in_));
    } else if (is_digit(c)) {
      record.part = in_.read_unsigned();
      in_.expect('/');
      record.parts = in_.read_unsigned();
    } else if (in_.accept('@')) {
      set_once(begin, "the region", record.region, v_.read_word(in_));
    } else if (c == '"') {
      set_once(begin, "the reason", record.reason, v_.read_word(in_));
    } else {
      read_one([&] { (*this)("bwd", "fwd", record.backward); });
    }
  }

  void set_once(std::size_t begin, std::string_view what, StringId& field, StringId value) {
    if (field) in_.fail_at(begin, fmt::format("{} is given twice", what));
    field = value;
  }

  ValueParser& v_;
  Cursor& in_;
  std::string_view key_;
  std::size_t begin_ = 0;
  bool is_read_ = false;
  bool has_no_custom_ = false;
  std::vector<std::string_view> seen_;
};

}  // namespace epweave::text
