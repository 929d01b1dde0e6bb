// The short mode: what a person reads, in columns.
//
//   %mm_3    aten.mm(%t_4, %reshape_2)    bf16[u0, 256]    layers.1.moe.router.gate  bwd  part 0
#include <fmt/format.h>

#include <algorithm>

#include "ir/text/text_printer.h"

namespace epweave::text {
namespace {

// A column is as wide as what is in it, up to a limit; what is longer pushes its own line out.
constexpr std::size_t kMaxName = 32, kMaxCall = 72, kMaxType = 40;
constexpr std::size_t kMaxArgs = 100;  // longer argument lists are cut

struct Row {
  std::string name, call, type, place;
};

// Characters as a terminal counts them.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

void pad(std::string& line, std::string_view text, std::size_t width) {
  line += text;
  line.append(std::max(width, width_of(text)) - width_of(text) + 2, ' ');
}

class ShortPrinter {
 public:
  explicit ShortPrinter(const Graph& graph) : graph_(graph), printer_(graph, find_default_device(graph)) {}

  Row row(const Body& body, const Node& node) {
    return {print([&](Printer& p) { p.node_name(node.name); }), call(body, node), print([&](Printer& p) {
              if (node.type) p.type(node.type);
            }),
            place(node)};
  }

  std::string line(const Row& row, std::size_t name, std::size_t call, std::size_t type) const {
    std::string line = "  ";
    pad(line, row.name, name);
    pad(line, row.call, call);
    pad(line, row.type, type);
    line += row.place;
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  std::string symbol(const Symbol& symbol) const {
    const ExprPool& exprs = graph_.context->exprs;
    std::string text = fmt::format("symbol {}", graph_.text(symbol.name));
    if (symbol.lower && symbol.upper)
      text += fmt::format(" in [{}, {}]", exprs.text(*symbol.lower), exprs.text(*symbol.upper));
    if (symbol.hint) text += fmt::format(", was {}", *symbol.hint);
    if (symbol.replaced_by) text += fmt::format(", is {}", exprs.text(*symbol.replaced_by));
    if (symbol.part_of) text += fmt::format(", part of {}", graph_.text(symbol.part_of));
    return text;
  }

 private:
  template <class Print>
  std::string print(const Print& print) {
    print(printer_);
    return printer_.take();
  }

  std::string call(const Body& body, const Node& node) {
    if (node.kind == NodeKind::kPlaceholder) return "placeholder";
    std::string_view target = graph_.text(node.target);
    if (target.ends_with(".default")) target.remove_suffix(8);
    std::string args = print([&](Printer& p) {
      if (node.kind == NodeKind::kGetAttr) return p.arg(&body, node.attr);
      p.call_args(&body, node);
    });
    if (args.size() > kMaxArgs) args = fmt::format("{}...)", args.substr(0, args.rfind(", ", kMaxArgs) + 2));
    return node.kind == NodeKind::kGetAttr ? fmt::format("get_attr {}", args)
                                           : fmt::format("{}{}", target, args);
  }

  std::string place(const Node& node) const {
    std::string text;
    auto add = [&](std::string_view part) {
      if (!text.empty()) text += "  ";
      text += part;
    };
    if (node.module) add(graph_.text(node.module));
    if (node.is_backward()) add("bwd");
    if (node.chunk.role && !node.chunk.part) add(graph_.text(node.chunk.role));
    if (node.chunk.part) add(fmt::format("part {}", *node.chunk.part));
    return text;
  }

  const Graph& graph_;
  Printer printer_;
};

void print_body(std::string& out, const Graph& graph, const Body& body, ShortPrinter& printer) {
  std::vector<Row> rows;
  std::size_t name = 0, call = 0, type = 0;
  for (NodeId id : body.order) {
    Row& row = rows.emplace_back(printer.row(body, body.nodes[id]));
    name = std::max(name, std::min(width_of(row.name), kMaxName));
    call = std::max(call, std::min(width_of(row.call), kMaxCall));
    type = std::max(type, std::min(width_of(row.type), kMaxType));
  }
  out += body.name ? fmt::format("\ngraph {}\n", graph.text(body.name)) : std::string("\n");
  for (const Row& row : rows) out += printer.line(row, name, call, type) + '\n';
}

}  // namespace

std::string print_short(const Graph& graph) {
  std::string out = fmt::format("{} nodes", graph.bodies.empty() ? 0 : graph.step().order.size());
  if (graph.bodies.size() > 1) out += fmt::format(", {} nested graphs", graph.bodies.size() - 1);
  out += '\n';
  ShortPrinter printer(graph);
  for (const Symbol& symbol : graph.symbols) out += printer.symbol(symbol) + '\n';
  for (const Body& body : graph.bodies) print_body(out, graph, body, printer);
  return out;
}

std::string print_short(const Graph& graph, const Body& body, NodeId node) {
  ShortPrinter printer(graph);
  return printer.line(printer.row(body, body.nodes[node]), 0, 0, 0).substr(2);
}

}  // namespace epweave::text
