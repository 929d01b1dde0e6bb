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
  };

  const TensorType* tensor(Arg arg) const {
    return arg.is_node() ? tensor_of(context_, graph_.step().nodes[arg.as_node()].type) : nullptr;
  }

  // The extent of queries, of keys; none: its number is not known, so it is not the tokens'.
  std::optional<Length> length(NodeId call, std::size_t param) const {
    const auto args = context_.args[graph_.step().nodes[call].args];
    if (param >= args.size() || !args[param].is_node()) return std::nullopt;
    const auto number = [&](const Graph& graph, const Facts& facts) -> std::optional<std::int64_t> {
      const TensorType* type = tensor_of(context_, graph.step().nodes[args[param].as_node()].type);
      return type != nullptr && type->rank() == 4 ? facts.hint(type->sizes[2]) : std::nullopt;
    };
    const auto before = number(before_, facts_before_), after = number(graph_, facts_);
    return before && after ? std::optional(Length{*before, *after}) : std::nullopt;
  }

  static Length blocks(Length length, std::int64_t block) {
    return {(length.before + block - 1) / block, (length.after + block - 1) / block};
  }

  void follow(NodeId id, const FlexCall& call) {
    const auto queries = length(id, 0), keys = length(id, 1);
    if (!queries || !keys) return;
    const Length rows = blocks(*queries, call.query_block), columns = blocks(*keys, call.key_block);
    for (const FlexTablePair& table : kFlexTables) {
      const Length of_rows = table.by_key ? columns : rows, of_columns = table.by_key ? rows : columns;
      set_table(id, call.mask[table.counts], {of_rows});
      set_table(id, call.mask[table.indices], {of_rows, of_columns});
    }
    for (const FlexFunction& function : call.functions) follow_captured(id, call, function, *keys);
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
  void follow_captured(NodeId id, const FlexCall& call, const FlexFunction& function, Length keys) {
    const bool is_mask = function.kind == FlexFunctionKind::kMask;
    const Arg list = arg_of(context_, graph_.step().nodes[id],
                            is_mask ? call.mask_captured_param : call.score_captured_param);
    if (!list.is_list()) return;
    const auto captured = context_.args.children(list);
    const std::vector<NodeId> parameters = parameters_of(*function.body);
    for (std::size_t i = 0; i < captured.size(); ++i) {
      const std::size_t place = flex_captured_position(function.kind) + i;
      if (!captured[i].is_node() || place >= parameters.size()) continue;
      const NodeId value = captured[i].as_node();
      if (is_mask) keep_distance(value, call, keys);
      retype_parameter(*function.body, parameters[place], before_.step().nodes[value].type,
                       graph_.step().nodes[value].type);
    }
  }

  void keep_distance(NodeId value, const FlexCall& call, Length keys) {
    const Node& node = graph_.step().nodes[value];
    const TensorType* type = tensor(Arg::node(value));
    if (type == nullptr || type->rank() == 0 || node.kind != NodeKind::kPlaceholder ||
        is_done_.contains(value))
      return;
    const auto extent = context_.exprs.constant(type->sizes[0]);
    if (!extent || keys.before == keys.after) return;
    const std::int64_t more = *extent - keys.before;
    if (more != 0 && more != call.query_block && more != call.key_block) return;
    TensorType after = *type;
    after.sizes[0] = context_.exprs.number(keys.after + more);
    notes_.push_back(
        more == 0
            ? fmt::format("assumption: %{}, which a mask function looks up, has an element for each token",
                          graph_.text(node.name))
            : fmt::format("assumption: %{}, which a mask function looks up, has {} elements more than there "
                          "are tokens",
                          graph_.text(node.name), more));
    set_type(value, std::move(after));
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
