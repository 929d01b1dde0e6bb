#include "passes/canonicalize.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/collectives.h"
#include "ir/facts.h"
#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/record.h"

namespace epweave {
namespace {

enum class Form : std::uint8_t { kOther, kDetach, kReshape, kView, kTranspose, kSlice, kWait };

// What all bodies of a graph share.
class Vocabulary {
 public:
  explicit Vocabulary(const Graph& graph)
      : facts(graph), reshape(graph.intern("aten.reshape.default")), pass(graph.intern("canonicalize")) {
    for (auto [target, form] : {
             std::pair{"aten.detach.default", Form::kDetach},
             std::pair{"aten.reshape.default", Form::kReshape},
             std::pair{"aten.view.default", Form::kView},
             std::pair{"aten._unsafe_view.default", Form::kView},
             std::pair{"aten.t.default", Form::kTranspose},
             std::pair{"aten.slice.Tensor", Form::kSlice},
         })
      forms_.at(graph.intern(target)) = form;
  }

  Form form_of(const Node& node) const {
    if (is_wait(node)) return Form::kWait;
    return node.kind == NodeKind::kCall ? forms_[node.target] : Form::kOther;
  }

  Facts facts;
  const StringId reshape, pass;

 private:
  SideTable<StringId, Form> forms_{Form::kOther};  // of each target that the pass looks at
};

class Canonicalizer {
 public:
  Canonicalizer(Context& context, Vocabulary& words, Body& body)
      : context_(context),
        words_(words),
        body_(body),
        same_(body.nodes.size(), NodeId()),
        uses_(body.nodes.size(), 0),
        waited_(body.nodes.size(), NodeId()) {}

  void run() {
    for (NodeId id : body_.order) {
      redirect_arguments(id);
      same_.at(id) = find_same(id);
      if (!same_[id] && words_.form_of(node(id)) == Form::kView) retarget_to_reshape(body_.nodes[id]);
    }
    drop_collapsed_transposes();
    std::erase_if(body_.order, [&](NodeId id) {
      if (same_[id] && is_step()) record_merged(context_, body_, words_.pass, {same_[id], id});
      return same_[id] || dead_.contains(id);
    });
  }

 private:
  bool is_step() const { return !body_.name; }

  // To read: asked to be changed, pages of nodes are copied.
  const Node& node(NodeId id) const { return std::as_const(body_.nodes)[id]; }

  void redirect_arguments(NodeId id) {
    const auto redirect = [&](Arg arg) {
      return arg.is_node() && same_[arg.as_node()] ? Arg::node(same_[arg.as_node()]) : arg;
    };
    map_arguments(context_, body_, id, redirect);
  }

  // The value that the node is an alias of, whole and in the same shape; none if there is none.
  NodeId find_same(NodeId id) {
    const Form form = words_.form_of(node(id));
    if (form == Form::kOther) return {};
    const Arg self = arg_of(context_, node(id), 0);
    if (!self.is_node()) return {};
    const NodeId input = self.as_node();
    switch (form) {
      case Form::kDetach:
        return input;
      case Form::kReshape:
      case Form::kView:
        return has_same_shape(node(id), node(input)) ? input : NodeId();
      case Form::kTranspose:
        return find_transposed(node(input));
      case Form::kSlice:
        return is_full_range(node(id), node(input)) ? input : NodeId();
      case Form::kWait:
        return find_waited(id, input);
      case Form::kOther:
        break;
    }
    return {};
  }

  bool has_same_shape(const Node& a, const Node& b) {
    const TensorType* of_a = tensor_of(context_, a.type);
    const TensorType* of_b = tensor_of(context_, b.type);
    if (!of_a || !of_b) return false;
    return std::equal(of_a->sizes.begin(), of_a->sizes.end(), of_b->sizes.begin(), of_b->sizes.end(),
                      [&](ExprId x, ExprId y) { return words_.facts.equal(x, y); });
  }

  // x where the node is t(x).
  NodeId find_transposed(const Node& node) const {
    if (words_.form_of(node) != Form::kTranspose) return {};
    const Arg* self = find_arg(context_, node, 0, "self");
    return self && self->is_node() ? self->as_node() : NodeId();
  }

  // The wait in front of this one for the same value.
  NodeId find_waited(NodeId id, NodeId input) {
    if (waited_[input]) return waited_[input];
    waited_.at(input) = id;
    return {};
  }

  bool is_full_range(const Node& slice, const Node& input) const {
    const TensorType* type = tensor_of(context_, input.type);
    if (!type) return false;
    const auto dim = read_number(slice, 1, "dim", 0);
    const auto start = read_number(slice, 2, "start", 0);
    const auto end = read_number(slice, 3, "end", std::numeric_limits<std::int64_t>::max());
    const auto step = read_number(slice, 4, "step", 1);
    if (!dim || start != 0 || !end || step != 1) return false;
    const auto at = find_dimension(*dim, type->rank());
    if (!at) return false;
    if (*end == std::numeric_limits<std::int64_t>::max()) return true;
    const auto size = context_.exprs.constant(type->sizes[*at]);
    return size && *end >= *size;
  }

  // A literal argument; `fallback` where it is left out or None; none where it is a value of the
  // graph.
  std::optional<std::int64_t> read_number(const Node& node, std::size_t position, std::string_view name,
                                          std::int64_t fallback) const {
    const Arg* arg = find_arg(context_, node, position, name);
    if (!arg || arg->is_none()) return fallback;
    return arg->is_int() ? std::optional(arg->as_int()) : std::nullopt;
  }

  void retarget_to_reshape(Node& node) {
    if (is_step())
      record_specialized(context_, node, words_.pass, context_.strings.intern("reshape means the same"));
    node.target = words_.reshape;
    resolve_op(context_, node);
    rename_keyword(node, "size", "shape");
  }

  // view calls its sizes `size`, reshape calls them `shape`.
  void rename_keyword(Node& node, std::string_view from, std::string_view to) {
    const auto kwargs = context_.args[node.kwargs];
    std::vector<Arg> renamed(kwargs.begin(), kwargs.end());
    bool changed = false;
    for (std::size_t i = 0; i < renamed.size(); i += 2)
      if (context_.text(renamed[i].as_name()) == from) {
        renamed[i] = Arg::text(context_.strings.intern(to));
        changed = true;
      }
    if (changed) node.kwargs = context_.args.add(renamed);
  }

  // Transposes that only served transposes which are gone.
  void drop_collapsed_transposes() {
    IdSet<NodeId> collapsed(body_.nodes.size());
    for (NodeId id : body_.order)
      if (same_[id]) {
        if (words_.form_of(node(id)) == Form::kTranspose) collapsed.insert(input_of(id));
      } else {
        for_each_input(context_, node(id), [&](NodeId input) { ++uses_.at(input); });
      }
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id)
      if (collapsed.contains(*id) && uses_[*id] == 0) {
        dead_.insert(*id);
        --uses_.at(input_of(*id));
      }
  }

  NodeId input_of(NodeId id) const { return find_arg(context_, node(id), 0, "self")->as_node(); }

  Context& context_;
  Vocabulary& words_;
  Body& body_;
  SideTable<NodeId, NodeId> same_;         // what a node is an alias of
  SideTable<NodeId, std::uint32_t> uses_;  // of nodes that stay
  SideTable<NodeId, NodeId> waited_;       // the first wait for a value
  IdSet<NodeId> dead_;
};

}  // namespace

Graph canonicalize(const Graph& graph) {
  Graph result = graph;
  Vocabulary words(result);
  for (Body& body : result.bodies) Canonicalizer(*result.context, words, body).run();
  return result;
}

}  // namespace epweave
