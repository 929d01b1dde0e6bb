// Prints the pieces of the text form; print_text (text_print.cc) and the short mode (text_short.cc)
// put them together.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ir/graph.h"

namespace epweave::text {

class Printer {
 public:
  // Types leave out `default_device`.
  Printer(const Graph& graph, StringId default_device)
      : graph_(graph), context_(*graph.context), default_device_(default_device) {}

  // Everything printed since the last call.
  std::string take() { return std::exchange(out_, {}); }
  std::string& out() { return out_; }

  const Context& context() const { return context_; }

  // Calls print(item) for each, with commas between.
  template <class Range, class Print>
  void joined(const Range& items, const Print& print) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ", ";
      first = false;
      print(item);
    }
  }
  void integer(std::int64_t value);
  void hex(std::string_view bytes);
  void quoted(std::string_view text);
  void word(std::string_view text);  // quoted where needed
  void word(StringId id);            // '_' where absent
  void name(StringId id);            // of a target or graph
  void node_name(StringId id);       // with '%'
  void expr(ExprId id);              // among brackets
  void expr_word(ExprId id);         // behind '=' or '+'
  void arg(const Body* body, Arg value);
  void call_args(const Body* body, const Node& node);  // "(%x, 2, dtype=bf16)"
  void pairs(const Body* body, ArgRange named, char open, std::string_view between, char close);
  void type(TypeId id);

  void head(const Body& body, const Node& node);                            // "%mm = aten.mm.default(%x, %w)"
  void clauses(const Body& body, const Node& node, const InputRole* role);  // what follows the type

  void version(const Version& version);
  void graph_info(Arg info);
  void pass_run(const PassRun& run);
  void origins(const std::vector<Origin>& origins);
  void group(const ProcessGroup& group);
  void symbol(const Symbol& symbol);
  void input(const InputRole& input);
  void output(const OutputRole& output);
  void unknown(std::string_view bytes);
  void body_header(const Body& body);

 private:
  void real(double value);
  void tree(const Body* body, Arg value);
  bool overload(std::span<const Arg> parts);
  void dict(const Body* body, ArgRange items);
  void sequence(const Body* body, ArgRange items, char open, char close);
  void torch_constant(Arg value);
  void print_type(const Type& type);
  void print_tensor(const TensorType& tensor);
  void print_attributes(const TensorType& tensor);
  void elements(const Type& type, char open, char close);

  const Graph& graph_;
  Context& context_;
  StringId default_device_;
  std::string out_;
  SideTable<TypeId, std::string> types_;  // printed before; most are used many times
  int type_depth_ = 0;
};

// The lines before the first graph, but magic and device. Input roles stand on lines of their own
// where they do not stand with the placeholders.
enum class InputRoles { kLines, kElsewhere };
void print_header(Printer& printer, const Graph& graph, InputRoles roles);

// The short mode: the whole graph in columns, and one node.
std::string print_short(const Graph& graph);
std::string print_short(const Graph& graph, const Body& body, NodeId node);

// The first device among the recorded types: named once in the header, left out of types after it.
StringId find_default_device(const Graph& graph);

// How many values the step returns: how many output roles, saying nothing, a file without any
// stands for.
std::size_t count_outputs(const Graph& graph);

// The node's rare facts, or a record without any.
const NodeExtra& extra_of(const Node& node);

// Whether a node's module, EP labels or custom entries say already that it has meta "custom".
bool implies_custom(const Node& node, ArgRange custom);

}  // namespace epweave::text
