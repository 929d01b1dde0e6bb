#include "testing/call_changes.h"

#include <algorithm>
#include <array>

namespace epweave {
namespace {

std::int64_t change_integer(std::int64_t n, std::size_t rule, std::uint32_t parts) {
  switch (rule) {
    case 0:
      return n + 1;
    case 1:
      return n - 1;
    case 2:
      return 0;
    case 3:
      return -n;
    case 4:
      return n * parts;
    default:
      return n % parts == 0 ? n / parts : n + 2;
  }
}

double change_real(double x, std::size_t rule, std::uint32_t parts) {
  switch (rule) {
    case 0:
      return x + 1;
    case 1:
      return x * 2;
    case 2:
      return 0;
    case 3:
      return -x;
    case 4:
      return x * parts;
    default:
      return x / parts;
  }
}

constexpr std::size_t kRules = 6;
constexpr std::array<std::string_view, 5> kDTypes = {"torch.float32", "torch.bfloat16", "torch.float64",
                                                     "torch.int64", "torch.bool"};

bool is_literal(Arg arg) {
  return arg.is_int() || arg.is(ArgKind::kReal) || arg.is(ArgKind::kBool) || arg.is(ArgKind::kDType) ||
         arg.is(ArgKind::kText);
}

// The i-th leaf for which `is_wanted` holds, by position among all.
template <class IsWanted>
std::vector<std::size_t> find_leaves(const std::vector<Arg>& leaves, const IsWanted& is_wanted) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (is_wanted(leaves[i])) found.push_back(i);
  return found;
}

}  // namespace

std::optional<Arg> draw_literal(const Graph& graph, Dice& dice, const OpParam& param) {
  static constexpr std::array<std::int64_t, 8> kIntegers = {0, 1, -1, 2, 3, 4, 8, -2};
  static constexpr std::array<double, 6> kReals = {0, 1, 2, -1, 0.5, 6};
  Context& context = *graph.context;
  const auto integer = [&] {
    return Arg::integer(kIntegers[dice.below(dice.one_in(2) ? 4 : kIntegers.size())]);
  };
  std::string_view type = param.type;
  if (type.ends_with('?')) type.remove_suffix(1);
  if (type == "int" || type == "SymInt") return integer();
  if (type == "float") return Arg::real(kReals[dice.below(kReals.size())]);
  if (type == "Scalar") return dice.one_in(2) ? integer() : Arg::real(kReals[dice.below(kReals.size())]);
  if (type == "bool") return Arg::boolean(dice.one_in(2));
  if (type == "ScalarType")
    return Arg::named(ArgKind::kDType, graph.intern(dice.pick(std::span<const std::string_view>(kDTypes))));
  if (type == "MemoryFormat")
    return Arg::named(ArgKind::kMemoryFormat,
                      graph.intern(dice.one_in(2) ? "torch.contiguous_format" : "torch.preserve_format"));
  if (type.find('[') != type.npos && (type.starts_with("int") || type.starts_with("SymInt"))) {
    std::vector<Arg> items;
    for (std::size_t n = dice.below(4); items.size() < n;) items.push_back(integer());
    return context.args.add_tree(ArgKind::kList, items);
  }
  return std::nullopt;
}

std::optional<CallChange> CallChanges::draw(NodeId call) {
  switch (dice_.below(11)) {
    case 0:
    case 1:
    case 2:
      return change_literal(call);
    case 3:
    case 4:
      return replace_operand(call);
    case 5:
      return exchange_operands(call);
    case 6:
      return change_list(call);
    case 7:
      return change_keyword(call);
    case 8:
    case 9:
      return change_target(call);
    default:
      return leave_out(call);
  }
}

// Names of groups and of reduce ops have others of their kind.
Arg CallChanges::another_text(Arg text) {
  static constexpr std::array<std::string_view, 4> kReductions = {"sum", "avg", "max", "min"};
  const auto is_group = [&](const ProcessGroup& group) { return group.name == text.as_name(); };
  if (std::ranges::any_of(graph_.groups, is_group))
    return Arg::text(graph_.groups[dice_.below(graph_.groups.size())].name);
  if (std::ranges::find(kReductions, graph_.text(text.as_name())) == kReductions.end()) return text;
  return Arg::text(graph_.intern(dice_.pick(std::span<const std::string_view>(kReductions))));
}

std::optional<CallChange> CallChanges::change_literal(NodeId call) {
  const std::vector<Arg> leaves = list_leaves(context_, graph_.step().nodes[call]);
  const std::vector<std::size_t> places = find_leaves(leaves, is_literal);
  if (places.empty()) return std::nullopt;
  const std::size_t place = dice_.pick(places), rule = dice_.below(kRules);
  const Arg dtype =
      Arg::named(ArgKind::kDType, graph_.intern(dice_.pick(std::span<const std::string_view>(kDTypes))));
  const Arg text = leaves[place].is(ArgKind::kText) ? another_text(leaves[place]) : Arg();
  return CallChange{"literal", [=](const CallSite& site) {
                      bool is_changed = false;
                      change_leaf(site.editor.context(), site.editor.node(site.call), place, [&](Arg leaf) {
                        Arg changed = leaf;
                        if (leaf.is_int())
                          changed = Arg::integer(change_integer(leaf.as_int(), rule, site.parts));
                        if (leaf.is(ArgKind::kReal))
                          changed = Arg::real(change_real(leaf.as_real(), rule, site.parts));
                        if (leaf.is(ArgKind::kBool)) changed = Arg::boolean(!leaf.as_bool());
                        if (leaf.is(ArgKind::kDType)) changed = dtype;
                        if (leaf.is(ArgKind::kText)) changed = text;
                        is_changed = changed != leaf;
                        return changed;
                      });
                      return is_changed;
                    }};
}

// Another value of the same type from before the call.
NodeId CallChanges::draw_value_like(NodeId value, NodeId user) {
  const Body& step = graph_.step();
  std::vector<NodeId> found;
  for (NodeId id : step.order) {
    if (id == user) break;
    if (id != value && step.nodes[id].type == step.nodes[value].type) found.push_back(id);
  }
  return found.empty() ? NodeId() : dice_.pick(found);
}

std::optional<CallChange> CallChanges::replace_operand(NodeId call) {
  const std::vector<Arg> leaves = list_leaves(context_, graph_.step().nodes[call]);
  const std::vector<std::size_t> places = find_leaves(leaves, [](Arg leaf) { return leaf.is_node(); });
  if (places.empty()) return std::nullopt;
  const std::size_t place = dice_.pick(places);
  const NodeId other = draw_value_like(leaves[place].as_node(), call);
  if (!other) return std::nullopt;
  return CallChange{"operand", [=](const CallSite& site) {
                      const NodeId here = site.find(other);
                      if (!here || site.editor.position(here) >= site.editor.position(site.call))
                        return false;
                      change_leaf(site.editor.context(), site.editor.node(site.call), place,
                                  [&](Arg leaf) { return leaf.is_node() ? Arg::node(here) : leaf; });
                      return true;
                    }};
}

std::optional<CallChange> CallChanges::exchange_operands(NodeId call) {
  const auto args = context_.args[graph_.step().nodes[call].args];
  if (args.size() < 2) return std::nullopt;
  const std::size_t i = dice_.below(args.size()), j = dice_.below(args.size());
  if (args[i] == args[j] || args[i].is_node() != args[j].is_node()) return std::nullopt;
  return CallChange{"operands exchanged", [=](const CallSite& site) {
                      const auto old = site.editor.context().args[site.editor.node(site.call).args];
                      std::vector<Arg> changed(old.begin(), old.end());
                      if (std::max(i, j) >= changed.size()) return false;
                      std::swap(changed[i], changed[j]);
                      site.editor.node(site.call).args = site.editor.context().args.add(changed);
                      return true;
                    }};
}

std::optional<CallChange> CallChanges::change_list(NodeId call) {
  const auto args = context_.args[graph_.step().nodes[call].args];
  std::vector<std::size_t> lists;
  for (std::size_t i = 0; i < args.size(); ++i)
    if (args[i].is_list() && !context_.args.children(args[i]).empty()) lists.push_back(i);
  if (lists.empty()) return std::nullopt;
  const std::size_t place = dice_.pick(lists), rule = dice_.below(5), item = dice_.below(8);
  return CallChange{"list", [=](const CallSite& site) {
                      ArgPool& pool = site.editor.context().args;
                      const auto old = pool[site.editor.node(site.call).args];
                      std::vector<Arg> changed(old.begin(), old.end());
                      if (place >= changed.size() || !changed[place].is_list()) return false;
                      const auto children = pool.children(changed[place]);
                      std::vector<Arg> items(children.begin(), children.end());
                      if (items.empty()) return false;
                      const auto at = static_cast<std::ptrdiff_t>(item % items.size());
                      switch (rule) {
                        case 0:
                          std::ranges::reverse(items);
                          break;
                        case 1:
                          std::ranges::rotate(items, items.begin() + at);
                          break;
                        case 2:
                          items.erase(items.begin() + at);
                          break;
                        case 3:
                          items.insert(items.begin() + at, items[static_cast<std::size_t>(at)]);
                          break;
                        default:
                          items.back() = items.front();
                      }
                      changed[place] = pool.add_tree(changed[place].kind(), items);
                      site.editor.node(site.call).args = pool.add(changed);
                      return true;
                    }};
}

// A keyword dropped, or one given that was not, or a positional argument left to its default.
std::optional<CallChange> CallChanges::change_keyword(NodeId call) {
  const Node& node = graph_.step().nodes[call];
  if (node.op == nullptr || node.op->params.empty()) return std::nullopt;
  const std::size_t param = dice_.below(node.op->params.size());
  const OpParam& row = node.op->params[param];
  if (!row.has_default) return std::nullopt;
  const StringId name = graph_.intern(row.name);
  const std::optional<Arg> value = draw_literal(graph_, dice_, row);
  return CallChange{"keyword", [=](const CallSite& site) {
                      ArgPool& pool = site.editor.context().args;
                      Node& changed = site.editor.node(site.call);
                      if (param < changed.args.count) {
                        if (param + 1 != changed.args.count) return false;
                        return --changed.args.count, true;
                      }
                      const auto old = pool[changed.kwargs];
                      std::vector<Arg> kwargs(old.begin(), old.end());
                      const auto at = std::ranges::find(kwargs, Arg::text(name));
                      if (at != kwargs.end()) {
                        kwargs.erase(at, at + 2);
                      } else if (value) {
                        kwargs.insert(kwargs.end(), {Arg::text(name), *value});
                      } else {
                        return false;
                      }
                      return changed.kwargs = pool.add(kwargs), true;
                    }};
}

// The same op in place or not, or any other that gives a value of the same type for these
// arguments.
std::optional<CallChange> CallChanges::change_target(NodeId call) {
  const Node& node = graph_.step().nodes[call];
  if (node.op == nullptr || node.op->cost == CostClass::kWait) return std::nullopt;
  std::string twin(graph_.text(node.target));
  const std::size_t dot = twin.rfind('.');
  if (dot == twin.npos || dot == 0) return std::nullopt;
  twin[dot - 1] == '_' ? twin.erase(dot - 1, 1) : twin.insert(dot, "_");
  std::vector<const OpInfo*> fitting;
  if (const OpInfo* op = find_op(twin); op != nullptr && dice_.one_in(2)) fitting = {op};
  for (std::size_t tries = 0; fitting.empty() && tries < 60; ++tries) {
    const OpInfo& op = ops()[dice_.below(ops().size())];
    const bool is_like = &op != node.op && op.type_rule != nullptr &&
                         op.params.size() == node.op->params.size() && op.cost != CostClass::kWait &&
                         op.returns.size() == node.op->returns.size() &&
                         std::ranges::equal(op.params, node.op->params, {}, &OpParam::type, &OpParam::type);
    if (is_like) fitting.push_back(&op);
  }
  if (fitting.empty()) return std::nullopt;
  const StringId target = graph_.intern(fitting.front()->target);
  return CallChange{"target", [=](const CallSite& site) {
                      Node& changed = site.editor.node(site.call);
                      changed.target = target;
                      resolve_op(site.editor.context(), changed);
                      const TypeId type = site.editor.infer(changed);
                      return static_cast<bool>(type);
                    }};
}

// Users take an operand of the same type instead.
std::optional<CallChange> CallChanges::leave_out(NodeId call) {
  const Node& node = graph_.step().nodes[call];
  const std::vector<Arg> leaves = list_leaves(context_, node);
  const std::vector<std::size_t> places = find_leaves(leaves, [&](Arg leaf) {
    return leaf.is_node() && graph_.step().nodes[leaf.as_node()].type == node.type;
  });
  if (places.empty()) return std::nullopt;
  const std::size_t place = dice_.pick(places);
  return CallChange{"left out", [=](const CallSite& site) {
                      const std::vector<Arg> here =
                          list_leaves(site.editor.context(), site.editor.node(site.call));
                      if (place >= here.size() || !here[place].is_node()) return false;
                      site.editor.replace_uses(site.call, here[place].as_node(), site.call);
                      std::erase(site.editor.step().order, site.call);
                      return true;
                    }};
}

}  // namespace epweave
