#include "placement/recorded_types.h"

#include <fmt/format.h>

#include "ops/type_rules.h"

namespace epweave {
namespace {

class Comparison {
 public:
  Comparison(const Context& context, TokenExtents& tokens, Facts& facts)
      : context_(context), tokens_(tokens), facts_(facts) {}

  bool may_be_same(TypeId a, TypeId b) {
    if (a == b || !a || !b) return true;
    const Type &x = context_.types[a], &y = context_.types[b];
    if (x.kind == TypeKind::kValue || y.kind == TypeKind::kValue) return true;
    if (is_sequence(x) && is_sequence(y)) return may_be_same(x.elements, y.elements);
    if (x.kind != y.kind) return false;
    if (x.kind == TypeKind::kTensor) return may_be_same(x.tensor, y.tensor);
    return context_.text(x.py_type) == "SymBool" ||
           may_be_same(x.expr, y.expr);  // True: what held when traced
  }

 private:
  static bool is_sequence(const Type& type) {
    return type.kind == TypeKind::kTuple || type.kind == TypeKind::kList;
  }
  bool may_be_same(const std::vector<TypeId>& a, const std::vector<TypeId>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!may_be_same(a[i], b[i])) return false;
    return true;
  }
  bool may_be_same(const TensorType& a, const TensorType& b) {
    if (a.dtype != b.dtype || a.rank() != b.rank()) return false;
    for (std::size_t i = 0; i < a.rank(); ++i)
      if (!may_be_same(a.sizes[i], b.sizes[i])) return false;
    return true;
  }
  bool may_be_same(ExprId a, ExprId b) {
    if (a == b || !a || !b || facts_.equal_as_assumed(a, b)) return true;
    const ExprPool& pool = facts_.pool();
    const auto x = pool.constant(a), y = pool.constant(b);
    const auto m = tokens_.multiple(a), n = tokens_.multiple(b);
    if (x && y) return *x == *y;
    if (m && n) return m->symbol != n->symbol || m->factor == n->factor;
    // A number of tokens that became a plain number when traced has messages of its own.
    if (x && n) return facts_.hint(b) == *x;
    if (y && m) return facts_.hint(a) == *y;
    return true;
  }

  const Context& context_;
  TokenExtents& tokens_;
  Facts& facts_;
};

}  // namespace

std::string find_wrong_record(const Graph& graph, const Node& node, TokenExtents& tokens, TypeMemo& types) {
  if (!node.type || !has_type_rule(node)) return {};
  try {
    const TypeId made = types.infer(graph, graph.step(), node);
    if (Comparison(*graph.context, tokens, types.facts()).may_be_same(made, node.type)) return {};
    return fmt::format("it is recorded as {}, and its arguments give {}",
                       print_type(*graph.context, node.type), print_type(*graph.context, made));
  } catch (const TypeMismatch& mismatch) {
    return fmt::format("its arguments do not fit ({})", mismatch.what());
  }
}

}  // namespace epweave
