#include <fmt/format.h>

#include <algorithm>

#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_cursor.h"
#include "ir/text_fields.h"
#include "ir/text_printer.h"
#include "ir/text_spelling.h"
#include "ir/text_values.h"

namespace epweave::text {
namespace {

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

  void provenance(std::vector<Provenance>& records) {
    if (!takes("from", Repeats::kYes)) return;
    in_.expect('(');
    in_.skip_spaces();
    Provenance& record = records.emplace_back();
    record.pass = v_.read_word(in_);
    in_.skip_spaces();
    record.role = read_role();
    FieldParser inner(v_, in_);
    for (in_.skip_spaces(); !in_.accept(')'); in_.skip_spaces()) inner.read_provenance_item(record);
  }

  void bindings(std::vector<Binding>& bindings) {
    if (!takes("bind", Repeats::kYes)) return;
    in_.expect('(');
    in_.skip_spaces();
    const StringId symbol = v_.read_word(in_);
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
      const StringId symbol = v_.read_word(in_);
      in_.expect('=');
      in_.skip_spaces();
      hints.emplace_back(symbol, in_.read_integer());
    });
  }

 private:
  enum class Repeats { kNo, kYes };

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
  void read_provenance_item(Provenance& record) {
    const std::size_t begin = in_.position();
    const char c = in_.peek();
    if (c == '%') {
      record.origins.push_back(v_.read_node_name(in_));
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

struct Line {
  std::size_t number;
  std::string_view text;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : path_(path), lines_(split(text)) {}

  Graph parse() {
    check_encoding();
    read_magic();
    while (next_ < lines_.size() && !is_body_ahead()) read_header_line();
    while (next_ < lines_.size()) read_body();
    if (!info_.empty()) graph_.info = context_.args.intern_tree(ArgKind::kDict, info_);
    // Roles on lines of their own overrule those on the placeholders' lines.
    if (!has_inputs_) graph_.inputs = std::move(roles_);
    if (!has_outputs_) graph_.outputs.resize(count_outputs(graph_));
    return std::move(graph_);
  }

 private:
  Cursor cursor() { return Cursor(path_, lines_[next_].number, lines_[next_].text); }

  // The lines that say something.
  static std::vector<Line> split(std::string_view text) {
    std::vector<Line> lines;
    for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      const std::size_t first = line.find_first_not_of(" \t");
      if (first != line.npos && line[first] != '#') lines.push_back({number, line});
      begin = end + 1;
    }
    return lines;
  }

  // Every string of a graph is UTF-8.
  void check_encoding() const {
    for (const Line& line : lines_)
      if (const std::size_t valid = count_valid_utf8(line.text); valid < line.text.size())
        Cursor(path_, line.number, line.text).fail_at(valid, "not UTF-8");
  }

  void read_magic() {
    if (lines_.empty()) Cursor(path_, 1, "").fail(fmt::format("expected '{}'", kMagic));
    Cursor in = cursor();
    if (!in.accept(kMagic) || !in.skip_to_end()) in.fail(fmt::format("expected '{}'", kMagic));
    ++next_;
  }

  // ------------------------------------------------------------------------- header

  bool is_body_ahead() {
    Cursor in = cursor();
    in.skip_spaces();
    const std::string_view word = in.scan_name();
    return word.empty() || word == "graph" || (word == "output" && in.peek() == '(');
  }

  void read_header_line() {
    Cursor in = cursor();
    in.skip_spaces();
    const std::size_t begin = in.position();
    const std::string_view keyword = in.scan_name();
    in.skip_spaces();
    FieldParser fields(values_, in);
    if (keyword == "device") {
      device_line(in);
    } else if (keyword == "version") {
      fields.read_all([&] { visit_version(fields, graph_.version); });
      check_version(in);
    } else if (keyword == "info") {
      read_info(in);
    } else if (keyword == "pass") {
      PassRun& run = graph_.passes.emplace_back();
      run.name = values_.read_text(in);
      fields.read_all([&] { visit_pass_run(fields, run); });
    } else if (keyword == "origins") {
      read_origins(in);
    } else if (keyword == "group") {
      ProcessGroup& group = graph_.groups.emplace_back();
      group.name = values_.read_word(in);
      fields.read_all([&] { visit_group(fields, group); });
    } else if (keyword == "symbol") {
      Symbol& symbol = graph_.symbols.emplace_back();
      symbol.name = values_.read_word(in);
      if (!symbol.name) in.fail("a symbol needs a name");
      fields.read_all([&] { visit_symbol(fields, symbol); });
    } else if (keyword == "input") {
      has_inputs_ = true;
      InputRole& input = graph_.inputs.emplace_back();
      input.name = values_.read_word(in);
      fields.read_all([&] { visit_input(fields, input); });
    } else if (keyword == "output") {
      has_outputs_ = true;
      OutputRole& output = graph_.outputs.emplace_back();
      output.role = values_.read_word(in);
      fields.read_all([&] { visit_output(fields, output); });
    } else if (keyword == "no") {
      read_no(in);
    } else if (keyword == "unknown") {
      graph_.unknown_fields += in.read_hex();
    } else {
      in.fail_at(begin, fmt::format("unknown line '{}'", keyword));
    }
    expect_end(in);
    ++next_;
  }

  static void expect_end(Cursor& in) {
    if (!in.skip_to_end()) in.fail("unexpected text");
  }

  void device_line(Cursor& in) { values_.set_default_device(values_.read_word(in)); }

  // As the reader of the binary form has it.
  void check_version(const Cursor& in) const {
    const Version& version = graph_.version;
    if (version.format == 0) in.fail_at(0, "there is no format version 0");
    if (version.min_reader > 1)
      in.fail_at(0, fmt::format("needs a reader of format version {}; this is version 1: use a newer epweave",
                                version.min_reader));
    for (const std::string& feature : version.required_features)
      in.fail_at(0,
                 fmt::format("requires feature '{}', which this version does not know: use a newer epweave",
                             feature));
  }

  // `info key = value`, an entry of a dict, or `info = value`.
  void read_info(Cursor& in) {
    const std::size_t begin = in.position();
    if (has_info_) in.fail_at(begin, "info is given twice");
    if (in.accept('=')) {
      if (!info_.empty()) in.fail_at(begin, "info is given twice");
      graph_.info = values_.read_arg(in);
      has_info_ = true;
      return;
    }
    const StringId key = values_.read_word(in);
    if (!key) in.fail_at(begin, "an entry needs a key");
    in.expect('=');
    info_.push_back(Arg::text(key));
    info_.push_back(values_.read_arg(in));
  }

  void read_origins(Cursor& in) {
    do {
      in.skip_spaces();
      const StringId name = values_.read_node_name(in);
      in.expect('=');
      in.skip_spaces();
      graph_.origins.push_back({name, values_.read_name(in)});
      in.skip_spaces();
    } while (in.accept(','));
  }

  void read_no(Cursor& in) {
    const std::size_t begin = in.position();
    const std::string_view what = in.scan_name();
    if (what == "inputs") {
      has_inputs_ = true;
    } else if (what == "outputs") {
      has_outputs_ = true;
    } else {
      in.fail_at(begin, "expected inputs or outputs");
    }
  }

  // ------------------------------------------------------------------------- bodies

  void read_body() {
    Body body;
    if (Cursor in = cursor(); in.skip_spaces(), in.scan_name() == "graph") {
      in.skip_spaces();
      read_body_header(in, body);
      ++next_;
    }
    const std::size_t begin = next_;
    // Names first: a node may refer to a later one, which is for verify to judge.
    for (; next_ < lines_.size() && is_node_ahead(); ++next_) declare_node(body);
    values_.set_nodes(&nodes_);
    next_ = begin;
    for (NodeId id : body.order) {
      read_node(body.nodes[id]);
      ++next_;
    }
    values_.set_nodes(nullptr);
    for (const Node& node : body.nodes) nodes_.at(node.name) = NodeId();
    graph_.bodies.push_back(std::move(body));
  }

  void read_body_header(Cursor& in, Body& body) {
    Cursor ahead = in;
    const std::string_view word = ahead.scan_word();
    if (!in.skip_to_end() && !(word == "unknown" && ahead.peek() == '=')) body.name = values_.read_word(in);
    FieldParser fields(values_, in);
    fields.read_all([&] { fields.hex("unknown", body.unknown_fields); });
    expect_end(in);
  }

  bool is_node_ahead() {
    Cursor in = cursor();
    in.skip_spaces();
    const std::string_view word = in.scan_name();
    return word != "graph";
  }

  // The name that the line defines: `%name =`, or nothing for the node "output".
  StringId read_defined_name(Cursor& in) {
    in.skip_spaces();
    if (in.peek() != '%') return context_.strings.intern("output");
    const std::size_t begin = in.position();
    const StringId name = values_.read_node_name(in);
    if (!name) in.fail_at(begin, "a node needs a name");
    in.expect('=');
    in.skip_spaces();
    return name;
  }

  void declare_node(Body& body) {
    Cursor in = cursor();
    Node node;
    node.name = read_defined_name(in);
    const NodeId id = body.nodes.push_back(std::move(node));
    body.order.push_back(id);
    // The first of several nodes with one name; verify reports the others.
    if (NodeId& known = nodes_.at(body.nodes[id].name); !known) known = id;
  }

  void read_node(Node& node) {
    Cursor in = cursor();
    const bool is_named = (in.skip_spaces(), in.peek() == '%');
    read_defined_name(in);
    read_kind(in, node);
    if (!is_named && node.kind != NodeKind::kOutput) in.fail("expected '%name =' or output(...)");
    in.skip_spaces();
    if (in.accept(':')) node.type = values_.read_type(in);
    read_clauses(in, node);
    resolve_op(context_, node);
  }

  // A call's target and arguments, or the kind of another node.
  void read_kind(Cursor& in, Node& node) {
    const bool is_quoted = in.peek() == '"';
    const std::size_t begin = in.position();
    node.target = values_.read_name(in);
    if (!node.target) in.fail_at(begin, "a node needs a target");
    const std::string_view word = is_quoted ? std::string_view() : context_.text(node.target);
    if (word == "placeholder") {
      node.kind = NodeKind::kPlaceholder;
    } else if (word == "get_attr") {
      node.kind = NodeKind::kGetAttr;
    } else if (word == "output") {
      node.kind = NodeKind::kOutput;
    } else {
      in.skip_spaces();
      if (in.peek() != '(') in.fail_at(begin, "expected a call: target(...)");
      return values_.read_call_args(in, node);
    }
    if (node.kind != NodeKind::kOutput) node.target = node.name;
    if (in.accept('[')) {
      node.target = values_.read_name(in);
      if (!node.target) in.fail("a node needs a target");
      in.expect(']');
    }
    if (node.kind == NodeKind::kOutput || in.peek() == '(') values_.read_call_args(in, node);
  }

  void read_clauses(Cursor& in, Node& node) {
    NodeExtra extra;
    FieldParser fields(values_, in);
    const bool has_role = node.kind == NodeKind::kPlaceholder && graph_.bodies.empty();
    InputRole role;
    role.name = node.name;
    while (!in.skip_to_end()) {
      if (const std::size_t begin = in.position(); in.accept('@')) {
        if (node.module) in.fail_at(begin, "the module is given twice");
        node.module = values_.read_word(in);
        continue;
      }
      fields.read_one([&] {
        if (has_role) visit_input(fields, role);
        visit_node(fields, node, extra);
      });
    }
    if (has_role) roles_.push_back(role);
    if (implies_custom(node, extra.custom)) node.has_custom = !fields.has_no_custom();
    const bool is_empty = !extra.example_type && !extra.py_type && extra.bindings.empty() &&
                          extra.chunk_hints.empty() && extra.custom.empty() && extra.meta.empty() &&
                          extra.unknown_fields.empty();
    if (!is_empty) node.extra = std::make_shared<const NodeExtra>(std::move(extra));
  }

  const std::string& path_;
  std::vector<Line> lines_;
  std::size_t next_ = 0;
  Graph graph_;
  Context& context_ = *graph_.context;
  ValueParser values_{context_};
  SideTable<StringId, NodeId> nodes_;
  std::vector<InputRole> roles_;  // on the placeholders' lines
  std::vector<Arg> info_;         // entries
  bool has_info_ = false, has_inputs_ = false, has_outputs_ = false;
};

}  // namespace
}  // namespace epweave::text

namespace epweave {

Graph parse_text(std::string_view text, const std::string& path) {
  return text::Parser(text, path).parse();
}

}  // namespace epweave
