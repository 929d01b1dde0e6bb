#include "compare/rewrite/schema_order.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_dimension(const OpParam& param) {
  static constexpr std::string_view kNames[] = {"dim", "dims", "dim0", "dim1", "dim2"};
  return param.type.starts_with("int") && std::ranges::find(kNames, param.name) != std::end(kNames);
}

bool gives_tensor(const OpInfo& op) {
  return std::ranges::any_of(op.returns,
                             [](const OpReturn& result) { return result.type.starts_with("Tensor"); });
}

class CallWriter {
 public:
  explicit CallWriter(const Graph& graph) : graph_(graph), context_(*graph.context) {}

  std::optional<Graph> run() {
    for (std::size_t body = 0; body < graph_.bodies.size(); ++body)
      for (NodeId id : graph_.bodies[body].order) write(body, id);
    return std::move(result_);
  }

 private:
  void write(std::size_t body, NodeId id) {
    const Node& node = graph_.bodies[body].nodes[id];
    if (node.kind != NodeKind::kCall || node.op == nullptr || !gives_tensor(*node.op) ||
        !find_schema_problem(context_, node).empty())
      return;
    const bool counts_in_first = traits_of(node.op->family).dims == DimNumbers::kOfFirst;
    rank_ = counts_in_first ? find_rank(graph_.bodies[body], node) : 0;
    if (!order(node) ||
        (is_same(context_.args[node.args], args_) && is_same(context_.args[node.kwargs], kwargs_)))
      return;
    if (!result_) result_ = graph_;
    Node& written = result_->bodies[body].nodes[id];
    written.args = context_.args.add(args_);
    written.kwargs = context_.args.add(kwargs_);
  }

  // False: a default that it needs cannot be said.
  bool order(const Node& node) {
    args_.clear();
    kwargs_.clear();
    const BoundArgs bound = bind_args(context_, node);
    const std::vector<OpParam>& params = node.op->params;
    std::size_t left_out = 0;  // positional parameters in a row that are defaults
    for (std::size_t i = 0; i < params.size(); ++i) {
      const std::optional<Arg> unsaid = default_of(params[i]);
      const Arg value = bound.is_given(i) ? count_from_front(params[i], bound.values[i]) : Arg();
      if (!bound.is_given(i) || (unsaid && is_equal(value, *unsaid))) {
        if (params[i].kwarg_only) continue;
        ++left_out;
        args_.push_back(unsaid ? *unsaid : Arg::ellipsis());
      } else if (params[i].kwarg_only) {
        kwargs_.push_back(Arg::text(context_.strings.intern(params[i].name)));
        kwargs_.push_back(value);
      } else {
        left_out = 0;
        args_.push_back(value);
      }
    }
    args_.resize(args_.size() - left_out);
    return std::ranges::none_of(args_, [](Arg arg) { return arg.is(ArgKind::kEllipsis); });
  }

  // What a call passes that leaves the parameter out.
  std::optional<Arg> default_of(const OpParam& param) {
    if (!param.has_default) return {};
    const std::string text(param.default_value);
    if (text == "None") return Arg::none();
    if (text == "True" || text == "False") return Arg::boolean(text == "True");
    if (text == "[]" || text == "()") return context_.args.add_tree(ArgKind::kList, {});
    char* end = nullptr;
    const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
    if (is_whole && !param.type.starts_with("float")) {
      const std::int64_t number = std::strtoll(text.c_str(), &end, 10);
      return count_from_front(param, Arg::integer(number));
    }
    const double number = std::strtod(text.c_str(), &end);
    return *end == '\0' ? std::optional(Arg::real(number)) : std::nullopt;
  }

  Arg count_from_front(const OpParam& param, Arg arg) {
    if (rank_ == 0 || !is_dimension(param)) return arg;
    return context_.args.map(arg, [&](Arg leaf) {
      const bool is_from_end = leaf.is_int() && leaf.as_int() < 0 && leaf.as_int() >= -rank_;
      return is_from_end ? Arg::integer(leaf.as_int() + rank_) : leaf;
    });
  }

  // Of the first operand; of a list, in which an empty tensor may have another, of what is made of
  // it. 0: not known.
  std::int64_t find_rank(const Body& body, const Node& node) const {
    const Arg first = arg_of(context_, node, 0);
    if (!first.is_node() && !first.is_list()) return 0;
    const TensorType* type =
        tensor_of(context_, first.is_node() ? body.nodes[first.as_node()].type : node.type);
    return type == nullptr ? 0 : static_cast<std::int64_t>(type->sizes.size());
  }

  bool is_equal(Arg x, Arg y) const {
    const bool are_empty = x.is_list() && y.is_list() && x.children().count == 0 && y.children().count == 0;
    return are_empty || context_.args.equal(x, y);
  }

  bool is_same(std::span<const Arg> x, std::span<const Arg> y) const {
    return std::ranges::equal(x, y, [&](Arg a, Arg b) { return is_equal(a, b); });
  }

  const Graph& graph_;
  Context& context_;
  std::optional<Graph> result_;
  std::int64_t rank_ = 0;
  std::vector<Arg> args_, kwargs_;
};

}  // namespace

std::optional<Graph> write_in_schema_order(const Graph& graph) {
  return CallWriter(graph).run();
}

}  // namespace epweave
