#include "passes/bypass_joins.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/aliases.h"
#include "analysis/shown_rows.h"
#include "analysis/users.h"
#include "base/counted.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_memo.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/order_list.h"
#include "passes/record.h"
#include "passes/retype.h"

namespace epweave {
namespace {

// A concatenation along a dimension: where each of its operands begins in it, and where the last
// ends.
struct Join {
  NodeId node;
  std::size_t dim = 0;
  std::vector<NodeId> parts;
  std::vector<ExprId> begins;  // one more than parts
};

class JoinBypass {
 public:
  explicit JoinBypass(Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        facts_(graph),
        types_(facts_),
        effects_(graph, body_),
        later_(effects_),
        users_(list_users(context_, body_)),
        order_(body_.order),
        names_(graph, body_),
        pass_(context_.strings.intern("bypass-joins")) {
    find_held();
  }

  // How many values are taken from parts.
  std::size_t run() {
    for (NodeId id : std::vector<NodeId>(body_.order))
      if (const auto join = find_join(id))
        for (NodeId user : users_[id]) bypass(*join, user);
    if (taken_ == 0) return 0;
    graph_.step().order = order_.list();
    drop_unused();
    retype_users(
        graph_, facts_, [&](const Node& node) { return infer(node); }, sources_);
    return taken_;
  }

 private:
  Node& change(NodeId id) { return graph_.step().nodes[id]; }

  // Values whose memory somebody may look at behind the step, or beside what they show.
  void find_held() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind != NodeKind::kOutput && !addresses_storage(node)) continue;
      for_each_input(context_, node, [&](NodeId input) {
        for (NodeId value = input; value && held_.insert(value);)
          value = shown_operand(context_, body_, value);
      });
    }
  }

  std::optional<Join> find_join(NodeId id) const {
    const Node& node = body_.nodes[id];
    if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->type_rule != rules::cat) return {};
    const TensorType* type = tensor_of(context_, node.type);
    const Arg list = arg_of(context_, node, 0);
    if (type == nullptr || !list.is_list() || later_.any(id)) return {};
    const auto dim = find_dim(context_, node, type->rank());
    if (!dim) return {};
    ExprPool& exprs = context_.exprs;
    Join join{id, *dim, {}, {exprs.number(0)}};
    for (Arg item : context_.args.children(list)) {
      const TensorType* part =
          item.is_node() ? tensor_of(context_, body_.nodes[item.as_node()].type) : nullptr;
      if (part == nullptr || part->rank() != type->rank()) return {};
      join.parts.push_back(item.as_node());
      join.begins.push_back(exprs.add(join.begins.back(), part->sizes[*dim]));
    }
    return join;
  }

  // Whether rows of the part are those of the join, lie as they do there, and stay as they are.
  bool can_show(const Join& join, std::size_t k) {
    const NodeId part = join.parts[k];
    const TensorType &whole = *tensor_of(context_, body_.nodes[join.node].type),
                     &type = *tensor_of(context_, body_.nodes[part].type);
    if (whole.dtype != type.dtype || whole.device != type.device || later_.any(part)) return false;
    if (whole.strides.size() != type.strides.size()) return false;
    for (std::size_t d = 0; d < whole.strides.size(); ++d)
      if (!facts_.equal_strides(whole.strides[d], type.strides[d])) return false;
    return true;
  }

  void bypass(const Join& join, NodeId user) {
    const Node& node = body_.nodes[user];
    if (node.op == nullptr || node.chunk.region || held_.contains(user)) return;
    if (node.op->family == OpFamily::kSlice) return bypass_by_slice(join, user);
    const auto split = find_split_rows(graph_, user);
    if (split && split->of == join.node && split->dim == join.dim) bypass_by_splits(join, user, *split);
  }

  // ---- splits

  // Pieces begin .. end of the split are part k.
  struct Group {
    std::size_t part = 0, begin = 0, end = 0;
  };

  std::vector<Group> group_pieces(const Join& join, const SplitRows& split) {
    ExprPool& exprs = context_.exprs;
    std::vector<ExprId> begins{exprs.number(0)};
    for (ExprId extent : split.extents) begins.push_back(exprs.add(begins.back(), extent));
    begins.back() = join.begins.back();  // of pieces of one size, the last may be smaller
    std::vector<Group> groups;
    std::size_t piece = 0;
    for (std::size_t k = 0; k < join.parts.size(); ++k) {
      const auto find = [&](std::size_t from, ExprId border) {
        while (from < begins.size() && !is_same(begins[from], border)) ++from;
        return from;
      };
      const std::size_t begin = find(piece, join.begins[k]);
      const std::size_t end = begin < begins.size() ? find(begin, join.begins[k + 1]) : begin;
      if (end >= begins.size()) continue;
      groups.push_back({k, begin, end});
      piece = end;
    }
    return groups;
  }

  void bypass_by_splits(const Join& join, NodeId split, const SplitRows& rows) {
    std::vector<NodeId> elements;  // of each piece that something takes
    for (NodeId user : users_[split]) {
      const auto element = tuple_element(context_, body_, body_.nodes[user]);
      if (!element || element->tuple != split || held_.contains(user)) return;
      elements.push_back(user);
    }
    for (const Group& group : group_pieces(join, rows)) {
      if (!can_show(join, group.part)) continue;
      NodeId part_split;
      for (NodeId id : elements) {
        const auto index = static_cast<std::size_t>(tuple_element(context_, body_, body_.nodes[id])->index);
        if (index < group.begin || index >= group.end) continue;
        if (!part_split) part_split = add_split(join, split, group);
        if (!part_split) break;
        take(id, part_split, group);
      }
    }
  }

  // None: the part is not known to be cut so.
  NodeId add_split(const Join& join, NodeId split, const Group& group) {
    Node node = body_.nodes[split];
    set_arg(context_, node, 0, Arg::node(join.parts[group.part]));
    if (const Arg sizes = arg_of(context_, node, 1); sizes.is_list()) {
      const auto all = context_.args.children(sizes);
      const std::vector<Arg> own(all.begin() + static_cast<std::ptrdiff_t>(group.begin),
                                 all.begin() + static_cast<std::ptrdiff_t>(group.end));
      set_arg(context_, node, 1, context_.args.add_tree(ArgKind::kList, own));
    }
    const TypeId type = infer(node);
    if (!type) return {};
    node.type = type;
    const NameList origins = origins_of(node);
    node.name = names_.make(fmt::format("{}_part{}", context_.text(node.name), group.part));
    node.provenance = {};
    append_provenance(context_, node, {.pass = pass_, .role = ProvenanceRole::kAdded, .origins = origins});
    const NodeId id = graph_.step().nodes.push_back(node);
    order_.put_before(split, id);
    return id;
  }

  void take(NodeId element, NodeId split, const Group& group) {
    Node& node = change(element);
    const std::int64_t index = tuple_element(context_, body_, node)->index;
    set_arg(context_, node, 0, Arg::node(split));
    set_arg(context_, node, 1, Arg::integer(index - static_cast<std::int64_t>(group.begin)));
    record(element, split);
  }

  // ---- slices

  void bypass_by_slice(const Join& join, NodeId slice) {
    const auto rows = ShownRowsFinder(graph_).find(facts_, slice);
    if (!rows || rows->of != join.node || rows->dim != join.dim) return;
    const TensorType& type = *tensor_of(context_, body_.nodes[slice].type);
    const ExprId end = context_.exprs.add(rows->start, type.sizes[join.dim]);
    for (std::size_t k = 0; k < join.parts.size(); ++k) {
      // All of a part would be a view that changes nothing, for canonicalize to remove.
      if (is_same(rows->start, join.begins[k]) && is_same(end, join.begins[k + 1])) return;
      const bool is_within = is_behind(rows->start, join.begins[k]) && is_behind(join.begins[k + 1], end);
      if (is_within && can_show(join, k) && point_at(join, k, slice, {rows->start, end}))
        return record(slice, join.parts[k]);
    }
  }

  // Makes it a slice of part k; false: its numbers would have to be computed.
  bool point_at(const Join& join, std::size_t k, NodeId slice, std::pair<ExprId, ExprId> rows) {
    if (k == 0) {
      set_arg(context_, change(slice), 0, Arg::node(join.parts[k]));
      return true;
    }
    const auto start = count_from(join.begins[k], rows.first), end = count_from(join.begins[k], rows.second);
    const bool is_to_end = is_same(rows.second, join.begins[k + 1]);
    if (!start || !(end || is_to_end)) return false;
    std::vector<Arg> args{Arg::node(join.parts[k]), Arg::integer(static_cast<std::int64_t>(join.dim)),
                          Arg::integer(*start)};
    if (!is_to_end) args.push_back(Arg::integer(*end));
    Node& node = change(slice);
    node.args = context_.args.add(args);
    node.kwargs = {};
    return true;
  }

  // ---- numbers

  // `at` - `from`, if that is a number whatever the symbols are, or both are the same.
  std::optional<std::int64_t> count_from(ExprId from, ExprId at) {
    if (is_same(from, at)) return 0;
    return context_.exprs.constant(facts_.normalize(context_.exprs.sub(at, from)));
  }
  bool is_same(ExprId a, ExprId b) {
    return facts_.equal(a, b) || facts_.assumed_value(context_.exprs.sub(a, b)) == 0;
  }
  bool is_behind(ExprId at, ExprId border) {
    return is_same(at, border) || facts_.at_least(at, border) ||
           facts_.assumed_value(context_.exprs.sub(at, border)).value_or(-1) >= 0;
  }

  // ---- behind

  void record(NodeId id, NodeId source) {
    record_specialized(context_, change(id), pass_,
                       context_.strings.intern("its rows lie in one part of the join"));
    sources_.insert(source);
    ++taken_;
  }

  // Joins and splits that nothing takes any more.
  void drop_unused() {
    SideTable<NodeId, std::uint32_t> uses;
    for (NodeId id : body_.order) for_each_input(context_, body_.nodes[id], [&](NodeId x) { ++uses.at(x); });
    IdSet<NodeId> gone;
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      const Node& node = body_.nodes[*id];
      const bool may_go = node.op != nullptr && uses[*id] == 0 &&
                          (node.op->type_rule == rules::cat || node.op->family == OpFamily::kSplit);
      if (!may_go || users_[*id].empty()) continue;  // what nothing took before is not ours to drop
      gone.insert(*id);
      for_each_input(context_, node, [&](NodeId x) { --uses.at(x); });
    }
    std::erase_if(graph_.step().order, [&](NodeId id) { return gone.contains(id); });
  }

  // None: it does not fit.
  TypeId infer(const Node& node) {
    try {
      return types_.infer(graph_, body_, node);
    } catch (const TypeMismatch&) {
      return {};
    }
  }

  Graph& graph_;
  Context& context_;
  const Body& body_;  // to read: asked to be changed, pages of nodes are copied
  Facts facts_;
  TypeMemo types_;
  Effects effects_;
  LaterWrites later_;
  NodeLists users_;
  OrderList order_;
  NodeNames names_;
  StringId pass_;
  IdSet<NodeId> held_;
  IdSet<NodeId> sources_;  // that values are taken from now
  std::size_t taken_ = 0;
};

}  // namespace

PassResult bypass_joins(const Graph& given) {
  PassResult result{given};
  const std::size_t taken = JoinBypass(result.graph).run();
  if (taken > 0)
    result.notes.push_back(fmt::format("{} {} taken from the part in which {} rows lie",
                                       counted(taken, "value"), is_or_are(taken),
                                       taken == 1 ? "its" : "their"));
  return result;
}

}  // namespace epweave
