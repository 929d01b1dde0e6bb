#include "io/pt2/pt2_symbols.h"

#include <unordered_set>

namespace epweave {
namespace {

class Pt2Binder {
 public:
  explicit Pt2Binder(Context& context) : context_(context) {}

  void bind_all(Body& body) {
    for (const NodeId id : body.order) {
      Node& node = body.nodes[id];
      std::vector<Binding> bindings;
      std::vector<Arg> path;
      if (node.type) find_bindings(node.type, path, bindings);
      if (bindings.empty()) continue;
      NodeExtra extra = node.extra ? *node.extra : NodeExtra();
      extra.bindings = std::move(bindings);
      node.extra = context_.own(std::move(extra));
    }
  }

 private:
  void find_bindings(TypeId id, std::vector<Arg>& path, std::vector<Binding>& out) {
    const Type& type = context_.types[id];
    if (type.kind == TypeKind::kScalar) {
      bind(type.expr, path, out);
    } else if (type.kind == TypeKind::kTensor) {
      path.push_back(step("CallMethodKey", "name", text("size")));
      for (std::size_t i = 0; i < type.tensor.sizes.size(); ++i) {
        path.push_back(step("SequenceKey", "idx", Arg::integer(static_cast<std::int64_t>(i))));
        bind(type.tensor.sizes[i], path, out);
        path.pop_back();
      }
      path.pop_back();
    } else {
      for (std::size_t i = 0; i < type.elements.size(); ++i) {
        if (!type.elements[i]) continue;
        path.push_back(step("SequenceKey", "idx", Arg::integer(static_cast<std::int64_t>(i))));
        find_bindings(type.elements[i], path, out);
        path.pop_back();
      }
    }
  }

  Arg text(std::string_view text) { return Arg::text(context_.strings.intern(text)); }
  Arg step(std::string_view kind, std::string_view field, Arg value) {
    return context_.args.intern_tree(ArgKind::kDict,
                                     std::vector<Arg>{text("kind"), text(kind), text(field), value});
  }

  void bind(ExprId expr, const std::vector<Arg>& path, std::vector<Binding>& out) {
    const std::string_view name = context_.exprs.text(expr);
    for (const StringId symbol : context_.exprs.symbols(expr))
      if (context_.text(symbol) == name && name.starts_with('u') && bound_.insert(symbol).second)
        out.push_back({symbol, context_.args.add(path)});
  }

  Context& context_;
  std::unordered_set<StringId> bound_;
};

}  // namespace

void bind_unbacked_symbols(Graph& graph) {
  Pt2Binder binder(*graph.context);
  for (Body& body : graph.bodies) binder.bind_all(body);
}

}  // namespace epweave
