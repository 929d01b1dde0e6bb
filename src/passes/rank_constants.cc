#include "passes/rank_constants.h"

#include "analysis/random_draws.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

void collect(const Context& context, Arg list, std::vector<std::int64_t>& elements) {
  if (list.is_int()) elements.push_back(list.as_int());
  if (!list.is_list()) return;
  for (Arg item : context.args.children(list)) collect(context, item, elements);
}

}  // namespace

RankConstants::RankConstants(const Graph& graph, const Body& body)
    : graph_(graph), context_(*graph.context), body_(body) {
  for (const auto [id, node] : walk(context_, body_)) {
    const TensorType* tensor = tensor_of(context_, node.type);
    if (tensor == nullptr || !is_integral(tensor->dtype) || context_.text(tensor->device) != "cpu") continue;
    if (node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kTensor)) source_.at(id) = id;
    if (node.kind == NodeKind::kCall) add_call(id, node);
  }
}

std::optional<std::vector<std::int64_t>> RankConstants::elements(NodeId id) const {
  const TensorType* tensor = tensor_of(context_, body_.nodes[id].type);
  if (!contains(id) || tensor == nullptr || tensor->offset) return std::nullopt;
  std::int64_t count = 1;
  for (std::size_t d = tensor->rank(); d-- > 0;) {
    const auto size = context_.exprs.constant(tensor->sizes[d]);
    if (!size || d >= tensor->strides.size()) return std::nullopt;
    if (*size != 1 && context_.exprs.constant(tensor->strides[d]) != count) return std::nullopt;
    count *= *size;
  }
  std::vector<std::int64_t> elements;
  const auto fields = context_.args.children(body_.nodes[source_[id]].attr);
  if (fields.size() == 3) collect(context_, fields[2], elements);
  if (static_cast<std::int64_t>(elements.size()) != count) return std::nullopt;
  return elements;
}

void RankConstants::add_call(NodeId id, const Node& node) {
  if (node.op == nullptr || node.op->is_effectful || draws_random(graph_, body_, node)) return;
  std::size_t count = 0;
  NodeId input;
  for_each_input(context_, node, [&](NodeId operand) { ++count, input = operand; });
  if (count != 1 || !contains(input)) return;
  // A constant that is written is somebody's state.
  if (node.op->writes && body_.nodes[input].kind == NodeKind::kGetAttr) return;
  const NodeId source = source_[input];  // `at` may move the table
  source_.at(id) = source;
}

}  // namespace epweave
