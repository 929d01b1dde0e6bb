#include <algorithm>

#include "ir/text/text.h"
#include "ir/text/text_printer.h"
#include "ir/text/text_spelling.h"

namespace epweave {

using text::Printer;

namespace {

// Whether each placeholder of the step has its role, in order: the roles then stand on the
// placeholders' lines.
bool inputs_match_placeholders(const Graph& graph) {
  std::size_t next = 0;
  if (graph.bodies.empty()) return graph.inputs.empty();
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) continue;
    if (next == graph.inputs.size() || graph.inputs[next].name != node.name) return false;
    ++next;
  }
  return next == graph.inputs.size();
}

void print_inputs(Printer& printer, const Graph& graph) {
  if (graph.inputs.empty()) printer.out() += "no inputs\n";
  for (const InputRole& input : graph.inputs) printer.input(input);
}

void print_outputs(Printer& printer, const Graph& graph) {
  auto says_nothing = [](const OutputRole& role) {
    return !role.role && !role.fqn && role.more.empty() && role.unknown_fields.empty();
  };
  const std::size_t implied = text::count_outputs(graph);
  if (graph.outputs.size() == implied && std::ranges::all_of(graph.outputs, says_nothing)) return;
  if (graph.outputs.empty()) printer.out() += "no outputs\n";
  for (const OutputRole& output : graph.outputs) printer.output(output);
}

void print_node(Printer& printer, const Body& body, const Node& node, const InputRole* role) {
  printer.head(body, node);
  if (node.type) {
    printer.out() += " : ";
    printer.type(node.type);
  }
  printer.clauses(body, node, role);
}

void print_body(Printer& printer, const Body& body, const std::vector<InputRole>* roles) {
  printer.out() += '\n';
  printer.body_header(body);
  std::size_t next_role = 0;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const bool has_role = roles != nullptr && node.kind == NodeKind::kPlaceholder;
    printer.out() += "  ";
    print_node(printer, body, node, has_role ? &(*roles)[next_role++] : nullptr);
    printer.out() += '\n';
  }
}

}  // namespace

void text::print_header(Printer& printer, const Graph& graph, InputRoles roles) {
  printer.version(graph.version);
  printer.graph_info(graph.info);
  for (const PassRun& run : graph.passes) printer.pass_run(run);
  printer.origins(graph.origins);
  for (const ProcessGroup& group : graph.groups) printer.group(group);
  for (const Symbol& symbol : graph.symbols) printer.symbol(symbol);
  if (roles == InputRoles::kLines) print_inputs(printer, graph);
  print_outputs(printer, graph);
  printer.unknown(graph.unknown_fields);
}

namespace {

std::string print_full(const Graph& graph) {
  const StringId device = text::find_default_device(graph);
  Printer printer(graph, device);
  std::string& out = printer.out();
  out += text::kMagic;
  out += '\n';
  if (device) {
    out += "device ";
    printer.word(device);
    out += '\n';
  }
  const bool is_inline = inputs_match_placeholders(graph);
  print_header(printer, graph, is_inline ? text::InputRoles::kElsewhere : text::InputRoles::kLines);
  for (const Body& body : graph.bodies)
    print_body(printer, body, is_inline && &body == &graph.bodies.front() ? &graph.inputs : nullptr);
  return printer.take();
}

}  // namespace

StringId text::find_default_device(const Graph& graph) {
  for (const Body& body : graph.bodies)
    for (NodeId id : body.order)
      if (const TensorType* tensor = tensor_of(*graph.context, body.nodes[id].type))
        if (tensor->device) return tensor->device;
  return StringId();
}

std::size_t text::count_outputs(const Graph& graph) {
  if (graph.bodies.empty() || graph.step().order.empty()) return 0;
  const Node& last = graph.step().nodes[graph.step().order.back()];
  if (last.kind != NodeKind::kOutput || last.args.empty()) return 0;
  const Arg result = graph.context->args[last.args].front();
  return result.is_list() ? result.children().count : 1;
}

std::string print_text(const Graph& graph, TextMode mode) {
  return mode == TextMode::kFull ? print_full(graph) : text::print_short(graph);
}

std::string print_node(const Graph& graph, const Body& body, NodeId id, TextMode mode) {
  if (mode == TextMode::kShort) return text::print_short(graph, body, id);
  Printer printer(graph, StringId());
  print_node(printer, body, body.nodes[id], nullptr);
  return printer.take();
}

}  // namespace epweave
