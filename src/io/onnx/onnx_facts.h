// Facts about nodes and values as ONNX metadata: one entry for each field that
// ir/text/text_fields.h describes, its value spelled as in the text form. Strings stand there as
// they are, without quotes.
//
//   pkg.epweave.seq = "12"     pkg.epweave.direction = "bwd"     pkg.epweave.chunk = "chunk(@layers.1.moe body 0)"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/text/text_field_parser.h"
#include "ir/text/text_field_printer.h"
#include "onnx_model.pb.h"

namespace epweave::onnx_form {

// Domains: of calls of `namespace.op.overload`, of other calls (`operator.getitem`: viewers take
// the last piece of the first domain's operators for an overload and leave it out), and of what
// stands for nodes that are not calls.
inline constexpr std::string_view kTorchDomain = "pkg.torch.ops";
inline constexpr std::string_view kPythonDomain = "pkg.torch";
inline constexpr std::string_view kOwnDomain = "pkg.epweave";
inline constexpr std::string_view kGetAttr = "get_attr";
inline constexpr std::string_view kNestedGraph = "nested_graph";  // holds a graph that no node refers to
inline constexpr std::string_view kPrefix = "pkg.epweave.";       // of metadata keys
inline constexpr std::string_view kInputNames = "input_names";    // metadata that Netron reads and we skip
inline constexpr std::string_view kFormatVersion = "1";
// More than any node has: both are searched one by one.
inline constexpr std::size_t kMaxFacts = 64;
inline constexpr int kMaxAttributes = 4096;

using Metadata = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

inline void add_entry(Metadata& metadata, std::string_view key, std::string value) {
  onnx::StringStringEntryProto& entry = *metadata.Add();
  entry.mutable_key()->assign(kPrefix).append(key);
  entry.set_value(std::move(value));
}

// Writes the entries of one record. `fields(key, value)` as in ir/text/text_fields.h.
class FactWriter {
 public:
  FactWriter(text::Printer& printer, const Body* body, Metadata& out, std::string_view prefix = "")
      : printer_(printer), fields_(printer, body), out_(out), prefix_(prefix) {}

  void operator()(std::string_view key, StringId value) {
    if (value) add(key, std::string(printer_.context().text(value)));
  }
  // A node's `attr` is written as an argument.
  void operator()(std::string_view, Arg) {}
  template <class Value>
  void operator()(std::string_view key, const Value& value) {
    fields_(key, value);
    store(key);
  }
  void operator()(std::string_view yes, std::string_view no, const std::optional<bool>& value) {
    fields_(yes, no, value);
    store("direction");
  }
  void hex(std::string_view key, std::string_view bytes) { fields_.hex(key, bytes), store(key); }
  void pairs(std::string_view key, ArgRange named) { fields_.pairs(key, named), store(key); }
  void plain_pairs(std::string_view key, ArgRange named) { fields_.plain_pairs(key, named), store(key); }
  void custom(const Node& node, ArgRange entries) { fields_.custom(node, entries), store("custom"); }
  void chunk(const ChunkInfo& chunk) { fields_.chunk(chunk), store("chunk"); }
  void provenance(const ProvenanceList& records) { fields_.provenance(records), store("provenance"); }
  void bindings(const std::vector<Binding>& bindings) { fields_.bindings(bindings), store("bind"); }
  void hints(const std::vector<std::pair<StringId, std::int64_t>>& hints) {
    fields_.hints(hints), store("hints");
  }

  void add(std::string_view key, std::string value) {
    add_entry(out_, std::string(prefix_).append(key), std::move(value));
  }

 private:
  // What was just printed, ` key=value` or a form of its own.
  void store(std::string_view key) {
    std::string printed = printer_.take();
    if (printed.empty()) return;
    const bool has_key = printed.size() > key.size() + 1 && printed.compare(1, key.size(), key) == 0 &&
                         printed[key.size() + 1] == '=';
    add(key, printed.substr(has_key ? key.size() + 2 : 1));
  }

  text::Printer& printer_;
  text::FieldPrinter fields_;
  Metadata& out_;
  std::string_view prefix_;
};

// The entries of one record, each to be taken once.
class NamedFacts {
 public:
  struct Fact {
    std::string_view key;  // without the prefix
    std::string_view value;
    bool is_taken = false;
  };

  // Keys that are not ours are notes of other programs. False where a key is there already with
  // another value.
  bool add(std::string_view key, std::string_view value) {
    if (!key.starts_with(kPrefix)) return true;
    key.remove_prefix(kPrefix.size());
    for (const Fact& fact : facts_)
      if (fact.key == key) return fact.value == value;
    facts_.push_back({key, value});
    return true;
  }

  std::size_t size() const { return facts_.size(); }

  std::optional<std::string_view> take(std::string_view key) {
    for (Fact& fact : facts_) {
      if (fact.key != key) continue;
      fact.is_taken = true;
      return fact.value;
    }
    return std::nullopt;
  }

  // A key that nothing took, or none.
  std::optional<std::string_view> find_left() const {
    for (const Fact& fact : facts_)
      if (!fact.is_taken) return fact.key;
    return std::nullopt;
  }

 private:
  std::vector<Fact> facts_;
};

// Reads what FactWriter wrote. `place` begins messages: "g.onnx: node mm".
class FactReader {
 public:
  FactReader(text::ValueParser& values, NamedFacts& facts, const std::string& place,
             std::string_view prefix = "")
      : values_(values), facts_(facts), place_(place), prefix_(prefix) {}

  void operator()(std::string_view key, StringId& value) {
    if (const auto fact = take(key)) value = values_.context().strings.intern(*fact);
  }
  void operator()(std::string_view, Arg&) {}
  template <class Value>
  void operator()(std::string_view key, Value& value) {
    read(key, Form::kValue, [&](text::FieldParser& fields) { fields(key, value); });
  }
  void operator()(std::string_view yes, std::string_view no, std::optional<bool>& value) {
    read("direction", Form::kOwn, [&](text::FieldParser& fields) { fields(yes, no, value); });
  }
  void hex(std::string_view key, std::string& bytes) {
    read(key, Form::kValue, [&](text::FieldParser& fields) { fields.hex(key, bytes); });
  }
  void pairs(std::string_view key, ArgRange& named) {
    read(key, Form::kOwn, [&](text::FieldParser& fields) { fields.pairs(key, named); });
  }
  void plain_pairs(std::string_view key, ArgRange& named) {
    read(key, Form::kOwn, [&](text::FieldParser& fields) { fields.plain_pairs(key, named); });
  }
  void custom(Node& node, ArgRange& entries) {
    const bool has_no_custom =
        read("custom", Form::kOwn, [&](text::FieldParser& fields) { fields.custom(node, entries); });
    if (text::implies_custom(node, entries)) node.has_custom = !has_no_custom;
  }
  void chunk(ChunkInfo& chunk) {
    read("chunk", Form::kOwn, [&](text::FieldParser& fields) { fields.chunk(chunk); });
  }
  void provenance(ProvenanceList& records) {
    read("provenance", Form::kOwn, [&](text::FieldParser& fields) { fields.provenance(records); });
  }
  void bindings(std::vector<Binding>& bindings) {
    read("bind", Form::kOwn, [&](text::FieldParser& fields) { fields.bindings(bindings); });
  }
  void hints(std::vector<std::pair<StringId, std::int64_t>>& hints) {
    read("hints", Form::kOwn, [&](text::FieldParser& fields) { fields.hints(hints); });
  }

  std::optional<std::string_view> take(std::string_view key) {
    return facts_.take(std::string(prefix_).append(key));
  }

  // Calls read(Cursor&) for the entry's text, which it must take whole. Whether there is an entry.
  template <class Read>
  bool read_text(std::string_view key, const Read& read) {
    const auto fact = take(key);
    if (!fact) return false;
    const std::string place = place_ + ": " + std::string(kPrefix) + std::string(prefix_) + std::string(key);
    text::Cursor in(place, 1, *fact);
    read(in);
    if (!in.skip_to_end()) in.fail("unexpected text");
    return true;
  }

 private:
  enum class Form { kValue, kOwn };

  // Whether the field said that there is no meta "custom".
  template <class Visit>
  bool read(std::string_view key, Form form, const Visit& visit) {
    const auto fact = take(key);
    if (!fact) return false;
    const std::string place = place_ + ": " + std::string(kPrefix) + std::string(prefix_) + std::string(key);
    const std::string line =
        form == Form::kValue ? std::string(key) + "=" + std::string(*fact) : std::string(*fact);
    text::Cursor in(place, 1, line);
    text::FieldParser fields(values_, in);
    fields.read_all([&] { visit(fields); });
    return fields.has_no_custom();
  }

  text::ValueParser& values_;
  NamedFacts& facts_;
  const std::string& place_;
  std::string_view prefix_;
};

}  // namespace epweave::onnx_form
