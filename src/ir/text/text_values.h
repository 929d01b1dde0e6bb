// Parses names, expressions, types and arguments of the text form.
#pragma once

#include "ir/graph.h"
#include "ir/text/text_cursor.h"

namespace epweave::text {

class ValueParser {
 public:
  explicit ValueParser(Context& context) : context_(context) {}

  Context& context() { return context_; }
  void set_default_device(StringId device) { default_device_ = device; }
  // Node references are looked up here; none outside of bodies.
  void set_nodes(const SideTable<StringId, NodeId>* nodes) { nodes_ = nodes; }

  StringId read_word(Cursor& in);       // quoted or plain; '_' is none
  std::string read_text(Cursor& in);    // as read_word, where there is no "none"
  StringId read_name(Cursor& in);       // of a target or graph
  StringId read_node_name(Cursor& in);  // with '%'
  ExprId read_expr(Cursor& in);         // among brackets
  ExprId read_expr_word(Cursor& in);    // behind '=' or '+'
  std::vector<ExprId> read_exprs(Cursor& in, char close);
  Arg read_arg(Cursor& in);
  bool read_key(Cursor& in, StringId& key);     // "dtype=", if that follows
  void read_call_args(Cursor& in, Node& node);  // "(%x, 2, dtype=bf16)"
  ArgRange read_pairs(Cursor& in);              // "{a=1, b=2}"
  ArgRange read_plain_pairs(Cursor& in);        // without references to nodes
  TypeId read_type(Cursor& in);

  // Calls read() for each item up to `close`, which it takes too. A comma may end the list.
  template <class Read>
  static void read_list(Cursor& in, char close, const Read& read) {
    for (in.skip_spaces(); !in.accept(close); in.skip_spaces()) {
      read();
      in.skip_spaces();
      if (in.accept(close)) return;
      if (!in.accept(',')) in.fail(std::string("expected ',' or '") + close + "'");
    }
  }

 private:
  struct Depth;
  struct NoNodes;
  ExprId intern_expr(Cursor& in, std::size_t begin, std::string_view text);
  ExprId canonical_extent(ExprId extent);
  std::vector<ExprId> read_extents(Cursor& in, char close);
  Arg read_number(Cursor& in);
  Arg read_node(Cursor& in);
  Arg read_quoted_arg(Cursor& in);
  Arg read_parenthesised(Cursor& in);
  Arg read_dict(Cursor& in);
  Arg read_named(Cursor& in);
  Arg read_nan(Cursor& in);
  Arg read_call(Cursor& in, std::size_t begin, std::string_view keyword);
  Arg read_tree(Cursor& in, std::size_t begin, ArgKind kind);
  TypeId read_elements(Cursor& in, TypeKind kind, char close);
  TypeId read_scalar(Cursor& in, std::string_view keyword);
  TypeId read_tensor(Cursor& in, std::size_t begin, DType dtype);
  void read_strides(Cursor& in, std::size_t begin, TensorType& tensor);
  void read_attributes(Cursor& in, TensorType& tensor);

  Context& context_;
  StringId default_device_;
  const SideTable<StringId, NodeId>* nodes_ = nullptr;
  int depth_ = 0;
};

}  // namespace epweave::text
