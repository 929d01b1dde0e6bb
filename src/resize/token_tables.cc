#include "resize/token_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/flex_attention.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "passes/pass.h"
#include "passes/record.h"

namespace epweave {
namespace {

class TokenTables {
 public:
  TokenTables(const Graph& before, Graph& graph, const std::string& reason, std::vector<std::string>& notes)
      : before_(before),
        graph_(graph),
        context_(*graph.context),
        facts_before_(before),
        facts_(graph),
        notes_(notes) {
    pass_ = graph.intern("resize");
    reason_ = graph.intern(reason);
  }

  void run() {
    for (NodeId id : graph_.step().order)
      if (const auto call = FlexCall::read(graph_, graph_.step().nodes[id])) follow(id, *call);
  }

 private:
  struct Length {
    std::int64_t before = 0, after = 0;
    bool changes() const { return before != after; }
  };
  struct Extents {
    Length batch, keys;
  };

  const TensorType* tensor(Arg arg) const {
    return arg.is_node() ? tensor_of(context_, graph_.step().nodes[arg.as_node()].type) : nullptr;
  }

  // An extent of the call's queries (0) or keys (1); none: its number is not known, so it does not
  // follow.
  std::optional<Length> length(NodeId call, std::size_t param, std::size_t dim) const {
    const auto args = context_.args[graph_.step().nodes[call].args];
    if (param >= args.size() || !args[param].is_node()) return std::nullopt;
    const auto number = [&](const Graph& graph, const Facts& facts) -> std::optional<std::int64_t> {
      const TensorType* type = tensor_of(context_, graph.step().nodes[args[param].as_node()].type);
      return type != nullptr && type->rank() == 4 ? facts.hint(type->sizes[dim]) : std::nullopt;
    };
    const auto before = number(before_, facts_before_), after = number(graph_, facts_);
    return before && after ? std::optional(Length{*before, *after}) : std::nullopt;
  }

  static Length blocks(Length length, std::int64_t block) {
    return {(length.before + block - 1) / block, (length.after + block - 1) / block};
  }

  // [batch, heads, tokens, width] of queries and keys.
  void follow(NodeId id, const FlexCall& call) {
    const auto batch = length(id, 0, 0), queries = length(id, 0, 2), keys = length(id, 1, 2);
    if (!batch || !queries || !keys) return;
    const Length rows = blocks(*queries, call.query_block), columns = blocks(*keys, call.key_block);
    for (const FlexTablePair& table : kFlexTables) {
      const Length of_rows = table.by_key ? columns : rows, of_columns = table.by_key ? rows : columns;
      set_table(id, call.mask[table.counts], {of_rows});
      set_table(id, call.mask[table.indices], {of_rows, of_columns});
    }
    for (const FlexFunction& function : call.functions)
      follow_captured(id, call, function, {.batch = *batch, .keys = *keys});
  }

  // The last extents of a table.
  void set_table(NodeId call, Arg table, const std::vector<Length>& extents) {
    const TensorType* type = tensor(table);
    if (type == nullptr || is_done_.contains(table.as_node())) return;
    const Node& node = graph_.step().nodes[table.as_node()];
    TensorType after = *type;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (type->rank() < extents.size()) return;
      ExprId& size = after.sizes[type->rank() - extents.size() + i];
      if (context_.exprs.constant(size) != extents[i].before)
        fail(call, node,
             fmt::format("has an extent {} where the call has {} blocks", context_.exprs.text(size),
                         extents[i].before));
      size = context_.exprs.number(extents[i].after);
    }
    if (after.sizes == type->sizes) return;
    if (node.kind != NodeKind::kPlaceholder)
      fail(call, node, "is computed, and its size does not follow the tokens");
    set_type(table.as_node(), std::move(after));
  }

  [[noreturn]] void fail(NodeId call, const Node& table, std::string_view problem) {
    throw PassError("resize.table", fmt::format("the block table %{} {}", graph_.text(table.name), problem),
                    site_of(graph_, graph_.step().nodes[call]),
                    "resize the graph before its attention is divided");
  }

  // What a function looks up, and the parameter that it is in the function.
  void follow_captured(NodeId id, const FlexCall& call, const FlexFunction& function,
                       const Extents& extents) {
    const bool is_mask = function.kind == FlexFunctionKind::kMask;
    const std::size_t param = is_mask ? call.mask_captured_param : call.score_captured_param;
    const Arg list = arg_of(context_, graph_.step().nodes[id], param);
    if (!list.is_list()) return;
    const auto children = context_.args.children(list);
    const std::vector<Arg> captured(children.begin(), children.end());
    std::vector<Arg> changed = captured;
    const std::vector<NodeId> parameters = parameters_of(*function.body);
    for (std::size_t i = 0; i < captured.size(); ++i) {
      const std::size_t place = flex_captured_position(function.kind) + i;
      if (place >= parameters.size()) continue;
      if (captured[i].is_int())
        changed[i] = follow_number(captured[i], *function.body, parameters[place], extents);
      if (!captured[i].is_node()) continue;
      const NodeId value = captured[i].as_node();
      if (is_mask) follow_lookup(value, call, extents);
      retype_parameter(*function.body, parameters[place], before_.step().nodes[value].type,
                       graph_.step().nodes[value].type);
    }
    if (changed == captured) return;
    set_arg(context_, graph_.step().nodes[id], param, context_.args.add_tree(list.kind(), changed));
    record_specialized(context_, graph_.step().nodes[id], pass_, reason_);
  }

  // A function is given the number of keys, or of sequences, as a plain number.
  Arg follow_number(Arg number, const Body& function, NodeId parameter, const Extents& extents) {
    const bool is_keys = extents.keys.changes() && number.as_int() == extents.keys.before;
    const bool is_batch = !is_keys && extents.batch.changes() && number.as_int() == extents.batch.before;
    if (!is_keys && !is_batch) return number;
    assume(fmt::format("{}, which functions of attention are given, is the number of {}", number.as_int(),
                       is_keys ? "tokens" : "sequences"));
    const Arg after = Arg::integer(is_keys ? extents.keys.after : extents.batch.after);
    const TypeId type = function.nodes[parameter].type;
    if (type && context_.types[type].kind == TypeKind::kValue && context_.types[type].value == number)
      retype_parameter(function, parameter, type,
                       context_.types.intern({.kind = TypeKind::kValue, .value = after}));
    return after;
  }

  // A tensor that a mask function looks up: [keys], [keys and a block], or [batch, the same].
  void follow_lookup(NodeId value, const FlexCall& call, const Extents& extents) {
    const Node& node = graph_.step().nodes[value];
    const TensorType* type = tensor(Arg::node(value));
    if (type == nullptr || type->rank() == 0 || node.kind != NodeKind::kPlaceholder ||
        is_done_.contains(value))
      return;
    TensorType after = *type;
    const bool has_batch =
        after.rank() > 1 && context_.exprs.constant(after.sizes[0]) == extents.batch.before;
    if (has_batch && extents.batch.changes()) {
      after.sizes[0] = context_.exprs.number(extents.batch.after);
      assume(fmt::format("%{}, which a mask function looks up, has a row for each sequence",
                         graph_.text(node.name)));
    }
    ExprId& size = after.sizes[has_batch ? 1 : 0];
    const auto extent = context_.exprs.constant(size);
    const std::int64_t more = extent.value_or(0) - extents.keys.before;
    const bool is_keys = extent && (more == 0 || more == call.query_block || more == call.key_block);
    if (is_keys && extents.keys.changes()) {
      size = context_.exprs.number(extents.keys.after + more);
      assume(fmt::format("%{}, which a mask function looks up, has {}", graph_.text(node.name),
                         more == 0 ? "an element for each token"
                                   : fmt::format("{} elements more than there are tokens", more)));
    }
    if (after.sizes != type->sizes) set_type(value, std::move(after));
  }

  void assume(const std::string& fact) {
    std::string note = "assumption: " + fact;
    if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
  }

  void retype_parameter(const Body& function, NodeId parameter, TypeId before, TypeId after) {
    if (before == after) return;
    for (Body& body : graph_.bodies)
      if (&body == &function && body.nodes[parameter].type == before) body.nodes[parameter].type = after;
  }

  void set_type(NodeId id, TensorType after) {
    Node& node = graph_.step().nodes[id];
    after.strides = contiguous_strides(facts_, after.sizes);
    const TypeId before = node.type, type = context_.types.tensor(std::move(after));
    is_done_.insert(id);
    if (type == before) return;
    node.type = type;
    if (node.extra && node.extra->example_type == before) {
      NodeExtra extra = *node.extra;
      extra.example_type = type;
      node.extra = context_.own(std::move(extra));
    }
    record_specialized(context_, node, pass_, reason_);
  }

  const Graph& before_;
  Graph& graph_;
  Context& context_;
  Facts facts_before_, facts_;
  std::vector<std::string>& notes_;
  StringId pass_, reason_;
  IdSet<NodeId> is_done_;
};

}  // namespace

void set_token_tables(const Graph& before, Graph& after, const std::string& reason,
                      std::vector<std::string>& notes) {
  TokenTables(before, after, reason, notes).run();
}

}  // namespace epweave
