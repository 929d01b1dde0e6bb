#include <fmt/format.h>

#include <algorithm>

#include "ir/text/text.h"
#include "ir/text/text_cursor.h"
#include "ir/text/text_field_parser.h"
#include "ir/text/text_fields.h"
#include "ir/text/text_printer.h"
#include "ir/text/text_spelling.h"
#include "ir/text/text_values.h"
#include "ops/op.h"

namespace epweave::text {
namespace {

struct Line {
  std::size_t number;
  std::string_view text;
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& path, std::shared_ptr<Context> context)
      : path_(path), lines_(split(text)), graph_{.context = std::move(context)} {}

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
    if (keyword == "device") {
      values_.set_default_device(values_.read_word(in));
    } else if (keyword == "info") {
      read_info(in);
    } else if (keyword == "origins") {
      read_origins(in);
    } else if (keyword == "no") {
      read_no(in);
    } else if (keyword == "unknown") {
      graph_.unknown_fields += in.read_hex();
    } else if (!read_record(keyword, in)) {
      in.fail_at(begin, fmt::format("unknown line '{}'", keyword));
    }
    expect_end(in);
    ++next_;
  }

  // A line of one word and fields. Whether the keyword is that of one.
  bool read_record(std::string_view keyword, Cursor& in) {
    FieldParser fields(values_, in);
    if (keyword == "version") {
      fields.read_all([&] { visit_version(fields, graph_.version); });
      check_version(in);
    } else if (keyword == "pass") {
      PassRun& run = graph_.passes.emplace_back();
      run.name = values_.read_text(in);
      fields.read_all([&] { visit_pass_run(fields, run); });
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
    } else {
      return false;
    }
    return true;
  }

  static void expect_end(Cursor& in) {
    if (!in.skip_to_end()) in.fail("unexpected text");
  }

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
    if (!is_empty) node.extra = graph_.context->own(std::move(extra));
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

Graph parse_text(std::string_view text, const std::string& path, std::shared_ptr<Context> context) {
  if (!context) context = std::make_shared<Context>();
  return text::Parser(text, path, std::move(context)).parse();
}

}  // namespace epweave
