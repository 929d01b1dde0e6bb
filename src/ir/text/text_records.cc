// Prints records: header lines and nodes.
#include "ir/text/text_field_printer.h"
#include "ir/text/text_fields.h"
#include "ir/text/text_printer.h"
#include "ir/text/text_spelling.h"

namespace epweave::text {

// --------------------------------------------------------------------------- records

void Printer::version(const Version& version) {
  const std::size_t begin = out_.size();
  FieldPrinter fields(*this, nullptr);
  visit_version(fields, version);
  if (out_.size() > begin) out_.insert(begin, "version"), out_ += '\n';
}

// One line for each entry where it is a dict of named entries, as producers write it.
void Printer::graph_info(Arg info) {
  if (info.is_none()) return;
  const auto entries = info.is(ArgKind::kDict) ? context_.args.children(info) : std::span<const Arg>();
  bool is_named = !entries.empty();
  for (std::size_t i = 0; i < entries.size(); i += 2) is_named = is_named && entries[i].is(ArgKind::kText);
  for (std::size_t i = 0; is_named && i + 1 < entries.size(); i += 2) {
    out_ += "info ";
    word(entries[i].as_name());
    out_ += " = ";
    arg(nullptr, entries[i + 1]);
    out_ += '\n';
  }
  if (is_named) return;
  out_ += "info = ";
  arg(nullptr, info);
  out_ += '\n';
}

void Printer::pass_run(const PassRun& run) {
  out_ += "pass ";
  word(run.name);
  FieldPrinter fields(*this, nullptr);
  visit_pass_run(fields, run);
  out_ += '\n';
}

void Printer::origins(const std::vector<Origin>& origins) {
  constexpr std::size_t kWidth = 100;
  std::size_t line = 0;
  for (std::size_t i = 0; i < origins.size(); ++i) {
    if (i == 0 || out_.size() - line > kWidth) {
      if (i > 0) out_ += '\n';
      line = out_.size();
      out_ += "origins ";
    } else {
      out_ += ", ";
    }
    node_name(origins[i].name);
    out_ += " = ";
    name(origins[i].target);
  }
  if (!origins.empty()) out_ += '\n';
}

void Printer::group(const ProcessGroup& group) {
  out_ += "group ";
  word(group.name);
  FieldPrinter fields(*this, nullptr);
  visit_group(fields, group);
  out_ += '\n';
}

void Printer::symbol(const Symbol& symbol) {
  out_ += "symbol ";
  word(symbol.name);
  FieldPrinter fields(*this, nullptr);
  visit_symbol(fields, symbol);
  out_ += '\n';
}

void Printer::input(const InputRole& input) {
  out_ += "input ";
  word(input.name);
  FieldPrinter fields(*this, nullptr);
  visit_input(fields, input);
  out_ += '\n';
}

void Printer::output(const OutputRole& output) {
  out_ += "output ";
  word(output.role);
  FieldPrinter fields(*this, nullptr);
  visit_output(fields, output);
  out_ += '\n';
}

void Printer::unknown(std::string_view bytes) {
  if (bytes.empty()) return;
  out_ += "unknown ";
  hex(bytes);
  out_ += '\n';
}

void Printer::body_header(const Body& body) {
  out_ += "graph";
  if (body.name) out_ += ' ', word(body.name);
  FieldPrinter(*this, nullptr).hex("unknown", body.unknown_fields);
  out_ += '\n';
}

// --------------------------------------------------------------------------- nodes

void Printer::head(const Body& body, const Node& node) {
  const std::string_view node_text = context_.text(node.name), target = context_.text(node.target);
  if (node.kind == NodeKind::kOutput && node_text == "output" && target == "output") {
    out_ += "output";
    return call_args(&body, node);
  }
  node_name(node.name);
  out_ += " = ";
  if (node.kind == NodeKind::kCall) {
    // A target called like one of the other kinds is told from it by its quotes.
    const bool is_keyword = target == "placeholder" || target == "get_attr" || target == "output";
    is_keyword ? quoted(target) : name(node.target);
    return call_args(&body, node);
  }
  const bool is_output = node.kind == NodeKind::kOutput;
  out_ += is_output ? "output" : node.kind == NodeKind::kPlaceholder ? "placeholder" : "get_attr";
  if (!node.target || target != (is_output ? "output" : node_text)) {
    out_ += '[';
    name(node.target);
    out_ += ']';
  }
  if (is_output || !node.args.empty() || !node.kwargs.empty()) call_args(&body, node);
}

void Printer::clauses(const Body& body, const Node& node, const InputRole* role) {
  FieldPrinter fields(*this, &body);
  if (role != nullptr) visit_input(fields, *role);
  if (node.module) out_ += " @", word(node.module);
  visit_node(fields, node, extra_of(node));
}

}  // namespace epweave::text
