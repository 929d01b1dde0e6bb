#include "analysis/regional_tag.h"

#include <algorithm>

namespace epweave {

const Arg* RegionalTag::find(const Context& context, const Node& node, StringId key) {
  if (!key || node.extra == nullptr) return nullptr;
  const auto entries = context.args[node.extra->custom];  // name, value, name, value, ...
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2)
    if (entries[i].as_name() == key) return &entries[i + 1];
  return nullptr;
}

bool RegionalTag::put(Context& context, Node& node, Arg value) {
  const StringId key = context.strings.intern(kKey);
  const Arg* const before = find(context, node, key);
  if (before != nullptr && context.args.equal(*before, value)) return false;
  NodeExtra extra = node.extra == nullptr ? NodeExtra() : *node.extra;
  const auto old = context.args[extra.custom];
  std::vector<Arg> entries(old.begin(), old.end());
  if (before == nullptr) {
    entries.push_back(Arg::text(key));
    entries.push_back(value);
  } else {
    entries[static_cast<std::size_t>(before - old.data())] = value;
  }
  extra.custom = context.args.add(entries);
  node.extra = context.own(std::move(extra));
  node.has_custom = true;
  return true;
}

std::vector<NodeId> list_functions(const Context& context, const Body& body, const Node& call) {
  std::vector<NodeId> functions;
  for_each_input(context, call, [&](NodeId input) {
    if (names_graph(body.nodes[input]) && std::ranges::find(functions, input) == functions.end())
      functions.push_back(input);
  });
  return functions;
}

void replace_function(Context& context, Node& call, NodeId function, NodeId own) {
  const auto redirect = [&](Arg arg) { return arg == Arg::node(function) ? Arg::node(own) : arg; };
  map_arguments(context, call, redirect);
}

}  // namespace epweave
