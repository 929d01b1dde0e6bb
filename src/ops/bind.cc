#include "ops/bind.h"

#include <fmt/format.h>

namespace epweave {
namespace {

// Visits (parameter or none, value) of every argument: positional ones first.
template <class Visit>
void for_each_binding(const Context& context, const Node& node, const Visit& visit) {
  const auto& params = node.op->params;
  const auto args = context.args[node.args];
  for (std::size_t i = 0; i < args.size(); ++i)
    visit(i < params.size() ? std::optional(i) : std::nullopt, args[i], std::string_view());
  const auto kwargs = context.args[node.kwargs];
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) {
    const std::string_view name = context.text(kwargs[i].as_name());
    visit(node.op->find_param(name), kwargs[i + 1], name);
  }
}

}  // namespace

BoundArgs bind_args(const Context& context, const Node& node) {
  BoundArgs bound;
  for_each_binding(context, node, [&](std::optional<std::size_t> param, Arg value, std::string_view) {
    if (!param) return;
    bound.values[*param] = value;
    bound.given |= std::uint32_t{1} << *param;
  });
  return bound;
}

Arg arg_of(const Context& context, const Node& node, std::size_t param) {
  const auto args = context.args[node.args];
  if (param < args.size()) return args[param];
  if (node.op == nullptr || param >= node.op->params.size()) return Arg::none();
  const Arg* arg = find_kwarg(context, node, node.op->params[param].name);
  return arg == nullptr ? Arg::none() : *arg;
}

void set_arg(Context& context, Node& node, std::size_t param, Arg value) {
  const auto args = context.args[node.args];
  if (param < args.size()) {
    std::vector<Arg> values(args.begin(), args.end());
    values[param] = value;
    node.args = context.args.add(values);
    return;
  }
  EPWEAVE_CHECK(node.op != nullptr && param < node.op->params.size());
  const auto kwargs = context.args[node.kwargs];
  std::vector<Arg> named(kwargs.begin(), kwargs.end());
  bool is_set = false;
  for (std::size_t i = 0; i + 1 < named.size(); i += 2) {
    if (context.text(named[i].as_name()) != node.op->params[param].name) continue;
    named[i + 1] = value;
    is_set = true;
  }
  EPWEAVE_CHECK(is_set);
  node.kwargs = context.args.add(named);
}

std::size_t leaf_of(const Context& context, const Node& node, std::size_t param) {
  std::size_t leaves = 0;
  const auto count = [&](Arg arg) { context.args.for_each_node(arg, [&](NodeId) { ++leaves; }); };
  const auto args = context.args[node.args];
  for (std::size_t i = 0; i < args.size() && i < param; ++i) count(args[i]);
  if (param < args.size() || node.op == nullptr || param >= node.op->params.size()) return leaves;
  const auto kwargs = context.args[node.kwargs];
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) {
    if (context.text(kwargs[i].as_name()) == node.op->params[param].name) break;
    count(kwargs[i + 1]);
  }
  return leaves;
}

std::optional<TupleElement> tuple_element(const Context& context, const Body& body, const Node& node) {
  if (!has_family(node, OpFamily::kElement)) return {};
  const Arg tuple = arg_of(context, node, 0), index = arg_of(context, node, 1);
  if (!tuple.is_node() || !index.is_int()) return {};
  if (index.as_int() >= 0) return TupleElement{tuple.as_node(), index.as_int()};
  const Node& made = body.nodes[tuple.as_node()];
  std::size_t count = made.type ? context.types[made.type].elements.size() : 0;
  if (count == 0 && made.op != nullptr) count = made.op->returns.size();
  const std::int64_t place = index.as_int() + static_cast<std::int64_t>(count);
  return place < 0 ? std::nullopt : std::optional(TupleElement{tuple.as_node(), place});
}

ExprId number_of(Context& context, const Body& body, Arg arg) {
  if (arg.is_int()) return context.exprs.number(arg.as_int());
  if (arg.is(ArgKind::kSymbolic)) return arg.as_expr();
  const TypeId id = arg.is_node() ? body.nodes[arg.as_node()].type : TypeId();
  if (!id) return {};
  const Type& type = context.types[id];
  if (type.kind == TypeKind::kScalar) return type.expr;
  return type.kind == TypeKind::kValue && type.value.is_int() ? context.exprs.number(type.value.as_int())
                                                              : ExprId();
}

std::string find_schema_problem(const Context& context, const Node& node) {
  const auto& params = node.op->params;
  std::string problem;
  std::uint32_t given = 0;
  for_each_binding(context, node, [&](std::optional<std::size_t> param, Arg, std::string_view name) {
    if (!problem.empty()) return;
    if (!param) {
      problem = name.empty() ? fmt::format("{} positional arguments, the schema has {} parameters",
                                           node.args.count, params.size())
                             : fmt::format("the schema has no parameter '{}'", name);
    } else if (name.empty() && params[*param].kwarg_only) {
      problem = fmt::format("'{}' is given by position, the schema wants a keyword", params[*param].name);
    } else if ((given >> *param & 1) != 0) {
      problem = fmt::format("'{}' is given twice", params[*param].name);
    } else {
      given |= std::uint32_t{1} << *param;
    }
  });
  for (std::size_t i = 0; i < params.size() && problem.empty(); ++i)
    if (!params[i].has_default && (given >> i & 1) == 0)
      problem = fmt::format("'{}' is missing", params[i].name);
  return problem;
}

}  // namespace epweave
