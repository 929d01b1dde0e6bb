#include "compare/rewrite/prefix_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/flex_attention.h"
#include "analysis/verify_report.h"
#include "compare/lineage.h"
#include "compare/rewrite/conditions.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rebind.h"

namespace epweave {
namespace {

constexpr std::int64_t kQuerySequenceDim = 2;
constexpr std::size_t kRank = 4;

NodeId first_operand(const Context& context, const Node& node) {
  const auto args = context.args[node.args];
  return !args.empty() && args[0].is_node() ? args[0].as_node() : NodeId();
}

NodeId operand_of(const Context& context, const Node& node, std::string_view param) {
  const auto position = node.op->find_param(param);
  const Arg arg = position ? arg_of(context, node, *position) : Arg::none();
  return arg.is_node() ? arg.as_node() : NodeId();
}

// The cat that a value is, or is a permute of, if a pass added it and claims nothing of it.
NodeId joined_of(const Context& context, const Body& body, NodeId value) {
  const Node& node = body.nodes[value];
  const NodeId joined = has_family(node, OpFamily::kPermute) ? first_operand(context, node) : value;
  if (!joined || !has_family(body.nodes[joined], OpFamily::kJoin)) return {};
  return find_lineage(node).role == ProvenanceRole::kAdded ? joined : NodeId();
}

bool takes_joined_keys(const Context& context, const Body& body, NodeId call) {
  return std::ranges::any_of(std::array{"key", "value"}, [&](std::string_view param) {
    const NodeId value = operand_of(context, body.nodes[call], param);
    return value && joined_of(context, body, value);
  });
}

// The parts of one call of A.
struct Group {
  NodeId origin;              // the call of A
  std::vector<NodeId> parts;  // of B
};

class PrefixReader {
 public:
  PrefixReader(const Graph& a, const Graph& b, std::vector<Violation>& violations)
      : a_(a), context_(*a.context), facts_a_(a), facts_b_(b), violations_(violations), result_{b, {}, {}} {}

  PrefixCalls run() {
    find_groups();
    std::erase_if(groups_, [&](const auto& entry) { return !takes_prefix(entry.second); });
    written_in_a_ = find_written(a_);
    written_ = find_written(result_.b);
    // The calls of a group are put back when its gradients were followed through them.
    std::vector<std::pair<const Group*, std::vector<Node>>> restored;
    for (const auto& [name, group] : groups_)
      if (auto calls = restore_calls(group)) restored.emplace_back(&group, std::move(*calls));
    for (const auto& [group, calls] : restored) accepted_.insert(group->origin);
    restore_gradients();
    for (const auto& [group, calls] : restored) put_back(*group, calls);
    for (const RestoredGradient& gradient : gradients_) put_back(gradient);
    return std::move(result_);
  }

 private:
  const Body& body() const { return result_.b.step(); }
  const Node& node(NodeId id) const { return body().nodes[id]; }
  const TensorType* tensor(NodeId id) const { return tensor_of(context_, node(id).type); }
  void fail(NodeId id, std::string message) {
    report(result_.b, body(), node(id), "rewrite-attention", std::move(message), violations_);
  }

  // ------------------------------------------------------------------------- which calls

  void find_groups() {
    for (NodeId id : a_.step().order) names_.at(a_.step().nodes[id].name) = id;
    for (NodeId id : body().order) {
      if (!has_family(node(id), OpFamily::kFlexAttention)) continue;
      const Lineage lineage = find_lineage(node(id));
      if (!lineage.is_part() || lineage.origins.empty() || lineage.part >= lineage.parts) continue;
      Group& group = groups_[lineage.origins.front()];
      group.origin = names_[lineage.origins.front()];
      group.parts.resize(std::max<std::size_t>(group.parts.size(), lineage.parts));
      group.parts[lineage.part] = id;
    }
  }

  // Whether a part has keys or values that were joined for it alone.
  bool takes_prefix(const Group& group) const {
    return group.origin && std::ranges::any_of(group.parts, [&](NodeId part) {
             return part && takes_joined_keys(context_, body(), part);
           });
  }
  NodeId operand(NodeId call, std::string_view param) const {
    return operand_of(context_, node(call), param);
  }
  bool is_joined(NodeId value) const { return value && joined_of(context_, body(), value); }
  bool is_permute(NodeId id) const { return has_family(node(id), OpFamily::kPermute); }
  NodeId first_input(NodeId id) const { return first_operand(context_, node(id)); }

  // Storage that something writes. A wait writes what its launch gives, before anything reads it.
  struct Written {
    SideTable<NodeId, NodeId> storage;
    IdSet<NodeId> written;
    bool contains(NodeId value) const { return written.contains(storage[value]); }
  };
  Written find_written(const Graph& graph) const {
    Written found;
    const Body& body = graph.step();
    const Effects effects(graph, body);
    for (NodeId id : body.order) found.storage.at(id) = effects.storage_of(id);
    for (NodeId id : body.order)
      for (const StorageAccess& access : effects.accesses_of(id))
        if (access.writes && !is_wait(body.nodes[id])) found.written.insert(access.storage);
    return found;
  }
  bool is_written(NodeId value) const { return written_.contains(value); }

  // ------------------------------------------------------------------------- keys and values

  // The calls of all parts with keys and values of their own; none where a part takes others than
  // those up to its own.
  std::optional<std::vector<Node>> restore_calls(const Group& group) {
    const auto whole = FlexCall::read(a_, a_.step().nodes[group.origin]);
    if (!whole || !measure(group)) {
      fail(group.parts.back() ? group.parts.back() : body().order.back(),
           "takes keys of other parts, and the parts of its call are not known");
      return std::nullopt;
    }
    std::vector<Node> calls;
    for (std::size_t k = 0; k < group.parts.size(); ++k) {
      Node call = node(group.parts[k]);
      std::string problem = restore_operand(group, k, "key", call);
      if (problem.empty()) problem = restore_operand(group, k, "value", call);
      if (problem.empty()) problem = restore_length(group, k, *whole, call);
      if (!problem.empty()) {
        fail(group.parts[k], std::move(problem));
        return std::nullopt;
      }
      calls.push_back(std::move(call));
    }
    return calls;
  }

  // How many rows of queries each part has.
  bool measure(const Group& group) {
    std::vector<std::int64_t>& rows = rows_[group.origin];
    for (NodeId part : group.parts) {
      const NodeId query = part ? operand(part, "query") : NodeId();
      const auto count = query ? extent(query, kQuerySequenceDim) : std::nullopt;
      if (!count || !FlexCall::read(result_.b, node(part))) return false;
      rows.push_back(*count);
    }
    return true;
  }
  std::optional<std::int64_t> extent(NodeId value, std::int64_t dim) {
    const TensorType* type = tensor(value);
    if (type == nullptr || type->rank() != kRank) return std::nullopt;
    return facts_b_.hint(type->sizes[static_cast<std::size_t>(dim)]);
  }

  std::string restore_operand(const Group& group, std::size_t part, std::string_view param, Node& call) {
    const NodeId taken = operand(group.parts[part], param);
    if (!taken) return fmt::format("has no {}", param);
    // Then it says something when a part was cut, and that is not followed for the parts before its
    // own.
    const NodeId whole = operand_of(context_, a_.step().nodes[group.origin], param);
    if (!whole || !holds(Condition::kKeepsEarlierKeys, !written_in_a_.contains(whole)))
      return fmt::format("something writes the whole {} in place", param_name(param));
    const std::vector<NodeId> items = list_joined(taken);
    if (items.empty() || !holds(Condition::kJoinsEarlierKeys, items.size() == part + 1))
      return fmt::format("its {} are not those of parts 0 to {}: they are {} of these", param_name(param),
                         part, items.size());
    const std::vector<std::int64_t>& rows = rows_[group.origin];
    for (std::size_t j = 0; j < items.size(); ++j) {
      const Lineage lineage = find_lineage(node(items[j])), last = find_lineage(node(items.back()));
      const bool is_share = lineage.is_part() || lineage.role == ProvenanceRole::kSplit ||
                            lineage.role == ProvenanceRole::kPartInput;
      const bool is_part_j = is_share && lineage.part == j && lineage.parts == group.parts.size() &&
                             !lineage.origins.empty() && lineage.origins.front() == last.origins.front() &&
                             extent(items[j], kQuerySequenceDim) == rows[j];
      if (!holds(Condition::kJoinsEarlierKeys, is_part_j))
        return fmt::format("element {} of its {} is %{}, not part {} of them", j, param_name(param),
                           result_.b.text(node(items[j]).name), j);
      if (!holds(Condition::kKeepsEarlierKeys, !is_written(items[j])))
        return fmt::format("something writes part {} of its {} in place", j, param_name(param));
    }
    if (!holds(Condition::kKeepsEarlierKeys, !is_written(taken)))
      return fmt::format("something writes its {} in place", param_name(param));
    rebind(context_, call, {.param = call.op->find_param(param).value(), .value = Arg::node(items.back())});
    return {};
  }
  static std::string_view param_name(std::string_view param) { return param == "key" ? "keys" : "values"; }

  // What is joined along the sequence, or the value by itself. Empty: it is joined in another way.
  std::vector<NodeId> list_joined(NodeId value) const {
    if (!is_joined(value)) return {value};
    std::vector<std::int64_t> back;
    NodeId joined = value;
    if (is_permute(value)) {
      back = order_of(value);
      joined = first_input(value);
      if (back.empty()) return {};
    }
    const auto args = context_.args[node(joined).args];
    if (args.size() != 2 || !node(joined).kwargs.empty() || !args[0].is_list() || !args[1].is_int())
      return {};
    std::vector<NodeId> items;
    for (const Arg& item : context_.args.children(args[0])) {
      if (!item.is_node()) return {};
      items.push_back(back.empty() ? item.as_node() : without_order(item.as_node(), back));
      if (!items.back()) return {};
    }
    const std::int64_t dim =
        back.empty() ? kQuerySequenceDim : back[static_cast<std::size_t>(kQuerySequenceDim)];
    return args[1].as_int() == dim ? items : std::vector<NodeId>();
  }
  // Of a permute of a tensor of four dimensions; empty: another, or none.
  std::vector<std::int64_t> order_of(NodeId id) const {
    const auto args = context_.args[node(id).args];
    if (!is_permute(id) || !node(id).kwargs.empty() || args.size() != 2 || !args[1].is_list()) return {};
    std::vector<std::int64_t> order, sorted = {0, 1, 2, 3};
    for (const Arg& dim : context_.args.children(args[1]))
      order.push_back(dim.is_int() ? dim.as_int() : std::int64_t{-1});
    return std::ranges::is_permutation(order, sorted) ? order : std::vector<std::int64_t>();
  }
  // What is permuted, if that is undone by the order.
  NodeId without_order(NodeId permuted, const std::vector<std::int64_t>& back) const {
    const std::vector<std::int64_t> order = order_of(permuted);
    if (order.empty()) return {};
    for (std::size_t i = 0; i < back.size(); ++i)
      if (order[static_cast<std::size_t>(back[i])] != static_cast<std::int64_t>(i)) return {};
    return first_input(permuted);
  }

  // The number of keys among the mask's lengths. A mask without tables is made for a length of 1,
  // whatever the sequence.
  std::string restore_length(const Group& group, std::size_t part, const FlexCall& whole, Node& call) {
    const FlexCall taken = *FlexCall::read(result_.b, call);
    const auto keys = number(facts_a_, a_.step(), whole.mask[kFlexKeyLength]);
    const auto queries = number(facts_a_, a_.step(), whole.mask[kFlexQueryLength]);
    const auto given = number(facts_b_, body(), taken.mask[kFlexKeyLength]);
    std::int64_t total = 0, end = 0;
    for (std::size_t j = 0; j < group.parts.size(); ++j) {
      total += rows_[group.origin][j];
      if (j <= part) end = total;
    }
    if (!keys || !queries || !given) return "its mask has lengths that are not known";
    if (*keys != total)
      return holds(Condition::kMasksItsKeys, *given == *keys) ? ""
                                                              : "its mask is made for another number of keys";
    if (!holds(Condition::kMasksItsKeys, *given == end))
      return fmt::format("its mask is made for {} keys, parts 0 to {} have {}", *given, part, end);
    if (*queries != total) return "its mask is made for fewer queries than keys";
    std::vector<Arg> mask = taken.mask;
    mask[kFlexKeyLength] = mask[kFlexQueryLength];
    rebind(context_, call,
           {.param = taken.mask_param, .value = context_.args.add_tree(ArgKind::kTuple, mask)});
    return {};
  }
  std::optional<std::int64_t> number(Facts& facts, const Body& of, Arg arg) const {
    if (arg.is_int()) return arg.as_int();
    const TypeId type = arg.is_node() ? of.nodes[arg.as_node()].type : TypeId();
    if (!type) return std::nullopt;
    if (context_.types[type].kind == TypeKind::kScalar) return facts.hint(context_.types[type].expr);
    const Arg value =
        context_.types[type].kind == TypeKind::kValue ? context_.types[type].value : Arg::none();
    return value.is_int() ? std::optional(value.as_int()) : std::nullopt;
  }

  // ------------------------------------------------------------------------- gradients

  // Parts of the gradients of keys and values. What a call gives for its own part claims to be all
  // of it, too, where that is taken for an element of the part's call.
  void restore_gradients() {
    for (NodeId id : std::vector<NodeId>(body().order)) {
      const Lineage lineage = find_lineage(node(id));
      const bool is_claimed = lineage.role == ProvenanceRole::kPartInput || lineage.is_part();
      if (!is_claimed || lineage.origins.empty()) continue;
      const NodeId origin = names_[lineage.origins.front()];
      const Node* element = origin ? &a_.step().nodes[origin] : nullptr;
      if (element == nullptr || !has_family(*element, OpFamily::kElement)) continue;
      const auto args = context_.args[element->args];
      if (args.size() != 2 || !args[0].is_node() || !accepted_.contains(args[0].as_node())) continue;
      const Group& group = groups_.at(a_.step().nodes[args[0].as_node()].name);
      const auto flex = FlexCall::read(a_, a_.step().nodes[group.origin]);
      if (!flex->is_backward || !is_flex_key_gradient(args[1]) || lineage.part >= group.parts.size())
        continue;
      restore_gradient({id, lineage.part}, group, *element);
    }
  }
  struct Gradient {
    NodeId id;
    std::size_t part;
  };
  void restore_gradient(const Gradient& gradient, const Group& group, const Node& element) {
    const Arg index = context_.args[element.args][1];
    std::vector<int> seen(group.parts.size());
    bool is_sum = true;
    for (NodeId summand : list_summands(gradient.id, group.parts.size())) {
      const auto part = part_of_summand(summand, gradient.part, group, index);
      is_sum = is_sum && part && !is_written(summand) && seen[*part]++ == 0;
    }
    for (std::size_t k = 0; k < seen.size(); ++k) is_sum = is_sum && seen[k] == (k >= gradient.part ? 1 : 0);
    if (!holds(Condition::kAddsLaterGradients, is_sum))
      return fail(gradient.id,
                  fmt::format("is not the sum of what the calls of parts {} to {} give for the {} of part "
                              "{}, each once",
                              gradient.part, group.parts.size() - 1,
                              index == Arg::integer(1) ? "keys" : "values", gradient.part));
    gradients_.push_back({gradient.id, group.parts[gradient.part], index, element.target});
    if (gradient.part + 1 < group.parts.size()) result_.sums.push_back(gradient.id);
  }
  // Of sums of two, as many as there are parts; of a copy, what it copies. Empty: something writes
  // a sum on the way.
  std::vector<NodeId> list_summands(NodeId id, std::size_t parts) const {
    static const OpInfo* const add = find_op(kAdd);
    static const OpInfo* const clone = find_op(kClone);
    std::vector<NodeId> open = {node(id).op == clone ? first_input(id) : id}, summands;
    while (!open.empty() && summands.size() <= parts) {
      const NodeId next = open.back();
      open.pop_back();
      if (next && next != id && is_written(next)) return {};
      const auto args = next ? context_.args[node(next).args] : std::span<const Arg>();
      const bool is_sum = next && node(next).op == add && args.size() == 2 && args[0].is_node() &&
                          args[1].is_node() && node(next).kwargs.empty();
      if (!is_sum) {
        summands.push_back(next);
      } else {
        open.insert(open.end(), {args[0].as_node(), args[1].as_node()});
      }
    }
    return open.empty() ? summands : std::vector<NodeId>();
  }
  // The part of the call that gives this summand for the rows of part `of`.
  std::optional<std::size_t> part_of_summand(NodeId summand, std::size_t of, const Group& group, Arg index) {
    static const OpInfo* const split = find_op(kSplit);
    NodeId all = summand;
    std::size_t count = 1;
    if (const auto element = element_of(summand); element && node(element->tuple).op == split) {
      const auto args = context_.args[node(element->tuple).args];
      if (element->index != static_cast<std::int64_t>(of) || args.size() != 3 ||
          args[2] != Arg::integer(kQuerySequenceDim) || !args[0].is_node() || !args[1].is_list())
        return std::nullopt;
      const auto sizes = context_.args.children(args[1]);
      count = sizes.size();
      const std::vector<std::int64_t>& rows = rows_[group.origin];
      for (std::size_t j = 0; j < count; ++j)
        if (j >= rows.size() || number(facts_b_, body(), sizes[j]) != rows[j]) return std::nullopt;
      all = args[0].as_node();
    } else if (of != 0) {
      return std::nullopt;
    }
    const auto element = element_of(all);
    if (!element || Arg::integer(element->index) != index) return std::nullopt;
    const auto call = std::ranges::find(group.parts, element->tuple);
    const auto part = static_cast<std::size_t>(call - group.parts.begin());
    return call != group.parts.end() && part + 1 == count ? std::optional(part) : std::nullopt;
  }
  // Of what a value is an element, and which.
  std::optional<TupleElement> element_of(NodeId id) const {
    return id ? tuple_element(context_, body(), node(id)) : std::nullopt;
  }

  // ------------------------------------------------------------------------- the result

  void put_back(const Group& group, const std::vector<Node>& calls) {
    Body& b = result_.b.step();
    for (std::size_t k = 0; k < calls.size(); ++k) {
      b.nodes[group.parts[k]] = calls[k];
      result_.calls.insert(group.parts[k]);
    }
  }
  struct RestoredGradient {
    NodeId id, call;
    Arg index;
    StringId target;
  };
  void put_back(const RestoredGradient& gradient) {
    Body& b = result_.b.step();
    Node& restored = b.nodes[gradient.id];
    restored.target = gradient.target;
    restored.args = context_.args.add(std::vector{Arg::node(gradient.call), gradient.index});
    restored.kwargs = {};
    resolve_op(context_, restored);
    // From here on it claims to be a part of the whole gradient, which is an element of the whole
    // call.
    Provenance record = restored.provenance.back();
    const Lineage lineage = find_lineage(restored);
    record.role = ProvenanceRole::kBody;
    record.origins = lineage.origins;
    record.part = lineage.part;
    record.parts = lineage.parts;
    replace_last_provenance(context_, restored, record);
    Type results = context_.types[b.nodes[gradient.call].type];
    results.elements.at(static_cast<std::size_t>(gradient.index.as_int())) = restored.type;
    b.nodes[gradient.call].type = context_.types.intern(std::move(results));
  }

  static constexpr std::string_view kAdd = "aten.add.Tensor", kClone = "aten.clone.default",
                                    kSplit = "aten.split_with_sizes.default";

  const Graph& a_;
  Context& context_;
  Facts facts_a_, facts_b_;
  std::vector<Violation>& violations_;
  PrefixCalls result_;
  SideTable<StringId, NodeId> names_;  // of A
  std::map<StringId, Group> groups_;   // by the name of the call of A
  std::map<NodeId, std::vector<std::int64_t>> rows_;
  Written written_in_a_, written_;
  IdSet<NodeId> accepted_;  // calls of A
  std::vector<RestoredGradient> gradients_;
};

}  // namespace

std::optional<PrefixCalls> restore_prefix_calls(const Graph& a, const Graph& b,
                                                std::vector<Violation>& violations) {
  const Body& body = b.step();
  const bool takes_any = std::ranges::any_of(body.order, [&](NodeId id) {
    return has_family(body.nodes[id], OpFamily::kFlexAttention) && takes_joined_keys(*b.context, body, id);
  });
  if (!takes_any) return std::nullopt;
  return PrefixReader(a, b, violations).run();
}

}  // namespace epweave
