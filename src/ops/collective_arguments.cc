#include "ops/collective_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Those of torch's functional collectives (torch/csrc/distributed/c10d/Functional.cpp), and the one
// that only its Python side knows.
constexpr std::string_view kReductions[] = {"sum",  "avg", "product", "min",       "max",
                                            "band", "bor", "bxor",    "premul_sum"};

class ArgumentCheck {
 public:
  ArgumentCheck(const Context& context, const Body& body, const Node& node, const ProcessGroup& group)
      : context_(context), body_(body), node_(node), group_(group) {}

  std::vector<std::string> check() {
    for (std::size_t i = 0; i < node_.op->params.size(); ++i) {
      const std::string_view name = node_.op->params[i].name;
      const Arg* arg = find_arg(context_, node_, i, name);
      if (arg == nullptr) continue;
      if (name == "reduce_op") check_reduction(*arg);
      if (name == "src") check_source(*arg);
      if (name == "group_size") check_group_size(*arg);
      if (name == "output_split_sizes" || name == "input_split_sizes") check_entries(*arg, name);
    }
    return std::move(problems_);
  }
  std::vector<std::string> check_split_tables() {
    for (const std::string_view name : {"output_split_sizes", "input_split_sizes"}) {
      const auto param = node_.op->find_param(name);
      const Arg* arg = param ? find_arg(context_, node_, *param, name) : nullptr;
      if (arg != nullptr) check_splits(*arg, name);
    }
    if (node_.op->family == OpFamily::kReduceScatter && !group_.ranks.empty()) check_scattered();
    return std::move(problems_);
  }

 private:
  std::size_t count_members() const { return group_.ranks.size(); }
  std::string describe_group() const {
    return fmt::format("group {} [{}]", context_.text(group_.name), fmt::join(group_.ranks, ", "));
  }
  std::optional<std::int64_t> number_of(Arg arg) const {
    if (arg.is_int()) return arg.as_int();
    return arg.is(ArgKind::kSymbolic) ? context_.exprs.constant(arg.as_expr()) : std::nullopt;
  }

  void check_reduction(Arg arg) {
    if (!arg.is(ArgKind::kText) || is_reduction(context_.text(arg.as_name()))) return;
    problems_.push_back(fmt::format("there is no reduction '{}'; known are {}", context_.text(arg.as_name()),
                                    fmt::join(kReductions, ", ")));
  }

  void check_source(Arg arg) {
    const auto source = number_of(arg);
    if (!source || group_.ranks.empty() || std::ranges::find(group_.ranks, *source) != group_.ranks.end())
      return;
    problems_.push_back(fmt::format("rank {}, the source, is no member of {}", *source, describe_group()));
  }

  void check_group_size(Arg arg) {
    const auto size = number_of(arg);
    if (!size || group_.ranks.empty() || *size == static_cast<std::int64_t>(count_members())) return;
    problems_.push_back(fmt::format("states {} members for {}", *size, describe_group()));
  }

  void check_splits(Arg arg, std::string_view name) {
    if (group_.ranks.empty() || (!arg.is_list() && !arg.is_none())) return;
    const std::size_t entries = arg.is_list() ? context_.args.children(arg).size() : 0;
    if (entries == 0) return check_shares();
    if (entries != count_members())
      problems_.push_back(fmt::format("{} has {} entries for the {} members of {}", name, entries,
                                      count_members(), describe_group()));
    else if (!find_negative(arg) && name == "input_split_sizes")
      check_total(arg);
  }

  void check_entries(Arg arg, std::string_view name) {
    const auto rows = find_negative(arg);
    if (rows) problems_.push_back(fmt::format("{} has {} rows, which is less than none", name, *rows));
  }
  std::optional<std::int64_t> find_negative(Arg arg) const {
    if (!arg.is_list()) return std::nullopt;
    for (Arg entry : context_.args.children(arg)) {
      const auto rows = number_of(entry);
      if (rows && *rows < 0) return rows;
    }
    return std::nullopt;
  }

  // Rows of the operand, where they are a number.
  std::optional<std::int64_t> count_rows() const {
    const Arg* operand = find_operand();
    return operand != nullptr && operand->is_node()
               ? count_rows(tensor_of(context_, body_.nodes[operand->as_node()].type))
               : std::nullopt;
  }
  const Arg* find_operand() const { return find_arg(context_, node_, 0, node_.op->params[0].name); }
  std::optional<std::int64_t> count_rows(const TensorType* tensor) const {
    if (tensor == nullptr || tensor->sizes.empty()) return std::nullopt;
    return context_.exprs.constant(tensor->sizes[0]);
  }

  void check_total(Arg list) {
    std::int64_t total = 0;
    for (Arg entry : context_.args.children(list)) {
      const auto rows = number_of(entry);
      if (!rows) return;
      total += *rows;
    }
    const auto rows = count_rows();
    if (rows && *rows != total)
      problems_.push_back(fmt::format("sends {} rows of an operand of {}", total, *rows));
  }

  // Each operand of a list is scattered by itself.
  void check_scattered() {
    const Arg* operand = find_operand();
    if (operand == nullptr) return;
    for (const TensorType* tensor : tensors_of(context_, body_, *operand)) check_shares(count_rows(tensor));
  }

  void check_shares() { check_shares(count_rows()); }
  void check_shares(std::optional<std::int64_t> rows) {
    if (!rows || *rows % static_cast<std::int64_t>(count_members()) == 0) return;
    std::string problem = fmt::format("{} rows are no equal shares for the {} members of {}", *rows,
                                      count_members(), describe_group());
    if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(std::move(problem));
  }

  const Context& context_;
  const Body& body_;
  const Node& node_;
  const ProcessGroup& group_;
  std::vector<std::string> problems_;
};

}  // namespace

bool is_reduction(std::string_view name) {
  return std::ranges::find(kReductions, name) != std::end(kReductions);
}

bool is_linear_reduction(std::string_view name, DType dtype) {
  return name == "sum" || (name == "avg" && is_inexact(dtype));
}

std::vector<const TensorType*> tensors_of(const Context& context, const Body& body, Arg operand) {
  std::vector<const TensorType*> tensors;
  context.args.for_each_node(operand, [&](NodeId id) {
    const TypeId type = body.nodes[id].type;
    const bool is_list =
        type && (context.types[type].kind == TypeKind::kList || context.types[type].kind == TypeKind::kTuple);
    if (!is_list) return tensors.push_back(tensor_of(context, type));
    for (const TypeId element : context.types[type].elements) tensors.push_back(tensor_of(context, element));
  });
  return tensors;
}

std::vector<std::string> find_argument_problems(const Context& context, const Body& body, const Node& node,
                                                const ProcessGroup& group) {
  return ArgumentCheck(context, body, node, group).check();
}

std::vector<std::string> find_split_problems(const Context& context, const Body& body, const Node& node,
                                             const ProcessGroup& group) {
  return ArgumentCheck(context, body, node, group).check_split_tables();
}

std::optional<std::int64_t> count_equal_shares(Facts& facts, const Graph& graph, const Node& node) {
  Context& context = *graph.context;
  std::optional<std::int64_t> shares;
  for (const std::string_view name : {"output_split_sizes", "input_split_sizes"}) {
    const auto sizes = named_items(context, node, name);
    if (sizes.empty()) continue;
    const ExprId first = number_of(context, graph.step(), sizes.front());
    for (Arg size : sizes) {
      const ExprId number = number_of(context, graph.step(), size);
      if (!first || !number || !facts.equal(first, number)) return std::nullopt;
    }
    const auto count = static_cast<std::int64_t>(sizes.size());
    if (shares.value_or(count) != count) return std::nullopt;
    shares = count;
  }
  if (shares) return shares;
  const Arg name = named_arg(context, node, "group_name");
  const ProcessGroup* group = name.is(ArgKind::kText) ? graph.find_group(name.as_name()) : nullptr;
  return group != nullptr ? std::optional(static_cast<std::int64_t>(group->ranks.size())) : std::nullopt;
}

}  // namespace epweave
