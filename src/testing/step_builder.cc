#include "testing/step_builder.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

constexpr std::string_view kDevice = "cuda:0";

Arg dict(Graph& graph, const std::vector<std::pair<std::string_view, Arg>>& entries) {
  std::vector<Arg> items;
  for (const auto& [key, value] : entries) {
    items.push_back(Arg::text(graph.intern(key)));
    items.push_back(value);
  }
  return graph.context->args.intern_tree(ArgKind::kDict, items);
}

ProcessGroup make_group(Graph& graph, std::string_view name, std::string_view axis, std::uint32_t world) {
  ProcessGroup group;
  group.name = graph.intern(name);
  for (std::uint32_t rank = 0; rank < world; ++rank) group.ranks.push_back(rank);
  group.description = graph.intern(fmt::format("mesh_{}", axis));
  group.axes = {graph.intern(axis)};
  return group;
}

}  // namespace

StepBuilder::StepBuilder(std::uint32_t world) {
  graph_.bodies.emplace_back();
  graph_.version.producer = "epweave testing";
  graph_.info = dict(graph_, {{"world_size", Arg::integer(world)}, {"rank", Arg::integer(0)}});
  graph_.groups = {make_group(graph_, "0", "dp", world), make_group(graph_, "1", "ep", world)};
}

void StepBuilder::symbol(const SymbolSpec& spec) {
  EPWEAVE_CHECK(!facts_);
  ExprPool& pool = graph_.context->exprs;
  Symbol symbol;
  symbol.name = graph_.intern(spec.name);
  symbol.lower = pool.number(0);
  symbol.upper = pool.number(1 << 20);
  symbol.hint = spec.hint;
  symbol.unbacked = true;
  std::vector<ExprId> asserts;
  if (spec.divisor > 1)
    asserts.push_back(pool.parse(fmt::format("Eq(Mod({}, {}), 0)", spec.name, spec.divisor)));
  for (const std::string& text : spec.asserts) asserts.push_back(pool.parse(text));
  if (!asserts.empty()) symbol.asserts = std::move(asserts);
  graph_.symbols.push_back(std::move(symbol));
}

Facts& StepBuilder::facts() {
  if (!facts_) facts_.emplace(graph_);
  return *facts_;
}

NodeId StepBuilder::input(std::string_view name, TypeId type, const Role& role, std::string_view bound) {
  Node node;
  node.kind = NodeKind::kPlaceholder;
  node.name = graph_.intern(name);
  node.target = node.name;
  node.type = type;
  if (!bound.empty()) {
    NodeExtra extra;
    const Arg size = dict(graph_, {{"kind", text("CallMethodKey")}, {"name", text("size")}});
    const Arg first = dict(graph_, {{"kind", text("SequenceKey")}, {"idx", Arg::integer(role.bound_dim)}});
    extra.bindings.push_back({graph_.intern(bound), graph_.context->args.add(std::vector{size, first})});
    node.extra = graph_.context->own(std::move(extra));
  }
  auto word = [&](std::string_view t) { return t.empty() ? StringId() : graph_.intern(t); };
  InputRole row;
  row.name = node.name;
  row.role = word(role.role);
  row.fqn = word(role.fqn);
  row.which = word(role.which);
  graph_.inputs.push_back(std::move(row));
  return add(node);
}

void StepBuilder::in_module(std::string_view module) {
  module_ = module.empty() ? StringId() : graph_.intern(module);
}

Node StepBuilder::make(std::string_view target, const std::vector<Arg>& args, const Keywords& keywords) {
  Node node;
  node.target = graph_.intern(target);
  resolve_op(*graph_.context, node);
  EPWEAVE_CHECK(node.op != nullptr);
  node.args = graph_.context->args.add(args);
  std::vector<Arg> pairs;
  for (const auto& [name, value] : keywords) {
    pairs.push_back(text(name));
    pairs.push_back(value);
  }
  node.kwargs = graph_.context->args.add(pairs);
  node.module = module_;
  if (backward_) node.backward = true;
  return node;
}

NodeId StepBuilder::add(Node node) {
  if (!node.name) {
    std::string_view base = graph_.text(node.target);
    base.remove_prefix(base.find('.') + 1);
    node.name = graph_.intern(fmt::format("{}_{}", base.substr(0, base.find('.')), made_++));
  }
  const NodeId id = body().nodes.push_back(node);
  body().order.push_back(id);
  return id;
}

NodeId StepBuilder::call(std::string_view target, const std::vector<Arg>& args, const Keywords& keywords) {
  Node node = make(target, args, keywords);
  node.type = infer_type(facts(), graph_, body(), node);
  return add(node);
}

NodeId StepBuilder::call_binding(std::string_view target, const std::vector<Arg>& args,
                                 std::string_view symbol) {
  Node node = make(target, args, {});
  NodeExtra extra;
  extra.bindings.push_back({graph_.intern(symbol), {}});
  node.extra = graph_.context->own(std::move(extra));
  node.type = infer_type(facts(), graph_, body(), node);
  return add(node);
}

void StepBuilder::start_body(std::string_view name) {
  EPWEAVE_CHECK(body_ == 0);
  body_ = graph_.bodies.size();
  graph_.bodies.emplace_back();
  body().name = graph_.intern(name);
}

NodeId StepBuilder::parameter(std::string_view dtype, const std::vector<std::string>& sizes) {
  EPWEAVE_CHECK(body_ != 0);
  Node node;
  node.kind = NodeKind::kPlaceholder;
  node.name = node.target = graph_.intern(fmt::format("p{}", body().order.size()));
  node.type = tensor(dtype, sizes);
  return add(node);
}

NodeId StepBuilder::end_function(Arg result) {
  EPWEAVE_CHECK(body_ != 0);
  Node output;
  output.kind = NodeKind::kOutput;
  output.name = output.target = graph_.intern("output");
  output.args = graph_.context->args.add(std::vector{result});
  add(output);
  Node function;
  function.kind = NodeKind::kGetAttr;
  function.name = function.target = body().name;
  function.attr = Arg::named(ArgKind::kGraph, body().name);
  function.module = module_;
  if (backward_) function.backward = true;
  body_ = 0;
  return add(function);
}

Graph StepBuilder::finish(const std::vector<Result>& results) {
  std::vector<Arg> values;
  for (const Result& result : results) {
    values.push_back(arg(result.value));
    OutputRole role;
    role.role = graph_.intern(result.role);
    if (!result.fqn.empty()) role.fqn = graph_.intern(result.fqn);
    graph_.outputs.push_back(std::move(role));
  }
  Node output;
  output.kind = NodeKind::kOutput;
  output.name = output.target = graph_.intern("output");
  const Arg tuple = graph_.context->args.add_tree(ArgKind::kTuple, values);
  output.args = graph_.context->args.add(std::vector{tuple});
  add(output);
  facts_.reset();
  return std::move(graph_);
}

TypeId StepBuilder::tensor(std::string_view dtype, const std::vector<std::string>& sizes) {
  ExprPool& pool = graph_.context->exprs;
  TensorType type;
  type.dtype = find_dtype(dtype).value();
  type.device = graph_.intern(kDevice);
  for (const std::string& size : sizes) type.sizes.push_back(pool.parse(size));
  ExprId stride = pool.number(1);
  type.strides.assign(type.sizes.size(), stride);
  for (std::size_t i = type.sizes.size(); i-- > 0;) {
    type.strides[i] = stride;
    stride = pool.mul(stride, type.sizes[i]);
  }
  return graph_.context->types.tensor(std::move(type));
}

const TensorType& StepBuilder::type_of(NodeId id) const {
  const TensorType* type = tensor_of(*graph_.context, body().nodes[id].type);
  EPWEAVE_CHECK(type != nullptr);
  return *type;
}

std::string StepBuilder::extent(NodeId id, std::size_t dim) const {
  return std::string(graph_.context->exprs.text(type_of(id).sizes[dim]));
}

std::optional<std::int64_t> StepBuilder::number(NodeId id, std::size_t dim) const {
  return graph_.context->exprs.constant(type_of(id).sizes[dim]);
}

}  // namespace epweave
