// Calls of recorded nodes, and mappings as text.
#include <fmt/format.h>
#include <cmath>

#include "ops/bind.h"
#include "ops/mapping.h"

namespace epweave {

using Kind = MappedCall::Kind;

namespace {

bool is_list_of_tensors(const OpParam& param) {
  return param.type.starts_with("Tensor");
}

const TensorType* tensor_of(const Context& context, const Body& body, Arg arg) {
  return arg.is_node() ? tensor_of(context, body.nodes[arg.as_node()].type) : nullptr;
}

// The tensors that an argument is or lists, each with its place in the list.
template <class Visit>
void for_each_tensor(const Context& context, const Body& body, Arg arg, Visit&& visit) {
  const auto take = [&](Arg item, std::uint32_t place) {
    if (tensor_of(context, body, item) != nullptr) visit(item.as_node(), place);
  };
  if (!arg.is_list()) return take(arg, 0);
  for (std::uint32_t place = 0; const Arg item : context.args.children(arg)) take(item, place++);
}

class NodeMapper {
 public:
  NodeMapper(const Graph& graph, const Node& node, Facts& facts)
      : context_(*graph.context), body_(graph.step()), facts_(facts) {
    mapped_.call.op = node.op;
    const BoundArgs bound = bind_args(context_, node);
    for (std::size_t p = 0; p < node.op->params.size(); ++p)
      mapped_.call.arguments.push_back(read(bound.values[p], node.op->params[p]));
    if (node.type) add_results(node.type);
  }
  MappedNode take() { return std::move(mapped_); }

 private:
  MappedCall::Sizes sizes_of(const TensorType& type) {
    MappedCall::Sizes sizes;
    // Different expressions without a number are different extents.
    for (const ExprId extent : type.sizes) {
      const PolyId poly = facts_.normalize(extent);
      sizes.push_back(facts_.hint(poly).value_or(-1 - static_cast<std::int64_t>(poly.index())));
    }
    return sizes;
  }
  void add_tensor(NodeId id, std::uint32_t place) {
    const TensorType& type = *tensor_of(context_, body_.nodes[id].type);
    mapped_.call.tensors.push_back(sizes_of(type));
    mapped_.call.is_mask.push_back(type.dtype == DType::kBool);
    mapped_.call.places.push_back(place);
    mapped_.operands.push_back(id);
  }
  void add_results(TypeId id) {
    const Type& type = context_.types[id];
    if (const TensorType* tensor = tensor_of(context_, id))
      mapped_.call.results.push_back(sizes_of(*tensor));
    else
      for (const TypeId element : type.elements) add_results(element);
  }
  MappedCall::Argument read(Arg arg, const OpParam& param) {
    if (arg.is_none()) return {};
    if (arg.is_list())
      return is_list_of_tensors(param) ? read_tensors(Kind::kTensors, arg) : read_numbers(arg);
    if (tensor_of(context_, body_, arg) != nullptr) return read_tensors(Kind::kTensor, arg);
    if (arg.is_int()) return {Kind::kNumber, arg.as_int(), 0, 0};
    if (arg.is(ArgKind::kBool)) return {Kind::kNumber, arg.as_bool() ? 1 : 0, 0, 0};
    if (arg.is(ArgKind::kReal)) return {Kind::kNumber, std::llround(arg.as_real()), 0, 0};
    return {Kind::kOther, 0, 0, 0};
  }
  MappedCall::Argument read_tensors(Kind kind, Arg arg) {
    const auto begin = static_cast<std::uint32_t>(mapped_.operands.size());
    for_each_tensor(context_, body_, arg, [&](NodeId id, std::uint32_t place) { add_tensor(id, place); });
    return {kind, 0, begin, static_cast<std::uint32_t>(mapped_.operands.size())};
  }
  MappedCall::Argument read_numbers(Arg list) {
    std::vector<std::int64_t>& numbers = mapped_.call.numbers;
    const auto begin = static_cast<std::uint32_t>(numbers.size());
    for (const Arg item : context_.args.children(list)) numbers.push_back(number_of(item));
    return {Kind::kNumbers, 0, begin, static_cast<std::uint32_t>(numbers.size())};
  }
  std::int64_t number_of(Arg item) {
    if (item.is_int()) return item.as_int();
    if (item.is(ArgKind::kBool)) return item.as_bool() ? 1 : 0;
    if (!item.is_node()) return -1;
    const TypeId type = body_.nodes[item.as_node()].type;
    if (!type || context_.types[type].kind != TypeKind::kScalar || !context_.types[type].expr) return -1;
    return facts_.hint(context_.types[type].expr).value_or(-1);
  }

  const Context& context_;
  const Body& body_;
  Facts& facts_;
  MappedNode mapped_;
};

}  // namespace

std::optional<MappedNode> mapped_node(const Graph& graph, const Node& node, Facts& facts) {
  if (node.op == nullptr) return std::nullopt;
  return NodeMapper(graph, node, facts).take();
}

std::vector<NodeId> mapped_operands(const Graph& graph, const Node& node) {
  const Context& context = *graph.context;
  std::vector<NodeId> operands;
  const BoundArgs bound = bind_args(context, node);
  for (std::size_t p = 0; p < node.op->params.size(); ++p)
    if (!bound.values[p].is_list() || is_list_of_tensors(node.op->params[p]))
      for_each_tensor(context, graph.step(), bound.values[p],
                      [&](NodeId id, std::uint32_t) { operands.push_back(id); });
  return operands;
}

std::string print_mapping(const MappedCall& call, const CallMapping& mapping) {
  if (!mapping.is_known()) return "not known";
  const auto print_tensor = [](std::size_t rank, auto&& factors_of) {
    std::string text = "(";
    for (std::size_t d = 0; d < rank; ++d) {
      const auto factors = factors_of(d);
      text += fmt::format("{}{}", d == 0 ? "" : ", ",
                          factors.empty() ? "-" : fmt::format("{}", fmt::join(factors, " ")));
    }
    return text + ")";
  };
  std::string text;
  for (std::size_t p = 0; p < call.arguments.size(); ++p) {
    const MappedCall::Argument& argument = call.arguments[p];
    if (argument.kind != Kind::kTensor && argument.kind != Kind::kTensors) continue;
    for (std::size_t i = argument.begin; i < argument.end; ++i)
      text += fmt::format(
          "{}: {}  ", call.op->params[p].name,
          print_tensor(mapping.operand_rank(i), [&](std::size_t d) { return mapping.operand(i, d); }));
  }
  text += "->";
  for (std::size_t r = 0; r < mapping.result_count(); ++r)
    text += " " + print_tensor(mapping.result_rank(r), [&](std::size_t d) { return mapping.result(r, d); });
  for (Factor f = 0; f < mapping.factor_count(); ++f)
    if (mapping.use(f) != FactorUse::kPassed)
      text += fmt::format("{}{} is {}", text.find(" is ") == text.npos ? "    " : ", ", f,
                          name_of(mapping.use(f)));
  return text;
}

}  // namespace epweave
