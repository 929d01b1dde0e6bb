#include "passes/generalize/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/mesh_calls.h"

namespace epweave {

void Findings::explain(const ArgumentPlace& place, std::string kind, std::string expression) {
  explained.push_back({std::string(made_.text(made_.bodies[place.body].nodes[place.node].name)),
                       place.argument, std::move(kind), std::move(expression)});
}

void Findings::refuse(const ArgumentPlace& place, const std::vector<Arg>& leaves, std::string why,
                      std::optional<Rank> next) {
  std::vector<std::string> values;
  for (std::size_t g = 0; g < leaves.size(); ++g)
    values.push_back(print_leaf(job_.graphs[g].bodies[place.body], leaves[g]));
  add(place, std::move(values), std::move(why), next);
}

void Findings::refuse(const ArgumentPlace& place, std::vector<std::string> values, std::string why) {
  add(place, std::move(values), std::move(why), {});
}

void Findings::add(const ArgumentPlace& place, std::vector<std::string> values, std::string why,
                   std::optional<Rank> next) {
  if (place.body == 0) refused_.insert(place.node);
  unexplained.push_back({site_of(made_, made_.bodies[place.body].nodes[place.node]), place.argument,
                         std::move(why), std::move(values), next});
}

std::string Findings::print_leaf(const Body& body, Arg leaf) const {
  const Context& context = job_.context();
  if (leaf.is_int()) return std::to_string(leaf.as_int());
  if (leaf.is(ArgKind::kReal)) return fmt::format("{}", leaf.as_real());
  if (leaf.is(ArgKind::kBool)) return leaf.as_bool() ? "True" : "False";
  if (leaf.is_none()) return "None";
  if (leaf.is_node()) return fmt::format("%{}", context.text(body.nodes[leaf.as_node()].name));
  if (const auto mesh = read_mesh(context, leaf)) return fmt::format("mesh of ranks {}", mesh->ranks);
  if (leaf.is(ArgKind::kTensor)) return print_numbers(body, context.args.children(leaf)[2]);
  if (leaf.is_tree()) return fmt::format("{} items", leaf.children().count);
  if (leaf.is(ArgKind::kSymbolic)) return std::string(context.exprs.text(leaf.as_expr()));
  return leaf.kind() >= ArgKind::kText ? std::string(context.text(leaf.as_name())) : "?";
}

// Of a constant tensor, the first of a long list.
std::string Findings::print_numbers(const Body& body, Arg values) const {
  constexpr std::size_t kShown = 8;
  if (!values.is_list()) return print_leaf(body, values);
  std::string text;
  const auto items = job_.context().args.children(values);
  for (std::size_t i = 0; i < std::min<std::size_t>(items.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + print_numbers(body, items[i]);
  return fmt::format("[{}{}]", text, items.size() > kShown ? ", .." : "");
}

}  // namespace epweave
