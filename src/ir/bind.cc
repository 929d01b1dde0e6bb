#include "ir/bind.h"

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
