#include "passes/symbolize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/missing_types.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/fresh_symbols.h"
#include "passes/node_names.h"
#include "passes/record.h"
#include "passes/symbol_types.h"
#include "passes/token_dimensions.h"
#include "placement/scaling/scaling.h"

namespace epweave {
namespace {

constexpr std::string_view kPass = "symbolize";

// Symbols that the inputs' extents have already, in whichever dimension: a graph traced with a
// symbolic sequence is one to divide along the sequence.
std::vector<std::string> find_token_symbols(const Graph& graph, const std::vector<TokenInput>& inputs) {
  std::vector<std::string> names;
  for (const TokenInput& input : inputs) {
    const TensorType& type = *tensor_of(*graph.context, graph.step().nodes[input.node].type);
    for (ExprId size : type.sizes)
      for (StringId symbol : graph.context->exprs.symbols(size))
        if (const std::string name(graph.text(symbol));
            std::find(names.begin(), names.end(), name) == names.end())
          names.push_back(name);
  }
  return names;
}

// --------------------------------------------------------------------------- the symbol

Symbol make_row_symbol(const Graph& graph, std::int64_t rows) {
  ExprPool& pool = graph.context->exprs;
  Symbol symbol;
  symbol.name = FreshSymbols(graph).next("s");  // as torch calls those of input extents
  symbol.lower = symbol.upper = pool.number(rows);
  symbol.hint = rows;
  symbol.unbacked = false;
  symbol.assumptions = {pool.parse(fmt::format("Eq({}, {})", graph.text(symbol.name), rows))};
  return symbol;
}

// How many tokens the symbol stands for: as few as make every extent of what is gathered from
// ranks, or scattered among them, a whole multiple of it. Two where the ranks of a tensor-parallel
// group of two have half of the tokens each.
std::int64_t tokens_per_row(const Graph& graph, const ScalingFactors& factors) {
  const Body& step = graph.step();
  std::int64_t unit = 1;
  const auto add = [&](NodeId id) {
    for (const auto& tensor : factors.of[id].tensors)
      for (const auto& factor : tensor)
        if (factor) unit = std::lcm(unit, factor->den);
  };
  for (NodeId id : step.order) {
    const OpInfo* op = step.nodes[id].op;
    if (op == nullptr || (op->family != OpFamily::kAllGather && op->family != OpFamily::kReduceScatter))
      continue;
    add(id);
    for_each_input(*graph.context, step.nodes[id], add);
  }
  return unit;
}

using FactorOfSum = std::map<PolyId, Rational>;

// Eq(u4 + u5, 3072) becomes Eq(u4 + u5, 3*s0).
ExprId restate(Facts& facts, ExprId statement, const FactorOfSum& factor_of, TokenSymbol symbol) {
  ExprPool& pool = facts.pool();
  const Poly& poly = pool[pool.poly(statement)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return statement;
  const Atom fact = pool[poly.terms[0].atoms[0]];
  if (fact.kind != AtomKind::kEq || !pool.constant(fact.operands[1])) return statement;
  const auto factor = factor_of.find(fact.operands[0]);
  if (factor == factor_of.end()) return statement;
  return pool.from_poly(
      pool.apply(AtomKind::kEq, {fact.operands[0], pool.poly(symbol.extent(facts, factor->second))}));
}

// First in the table: what others are known to be may mention it.
TokenSymbol add_symbol(Graph& graph, const ScalingFactors& factors, std::int64_t micro_batches) {
  TokenSymbol symbol{.tokens = std::lcm(tokens_per_row(graph, factors), micro_batches)};
  graph.symbols.insert(graph.symbols.begin(), make_row_symbol(graph, factors.tokens / symbol.tokens));
  symbol.name = graph.symbols.front().name;
  Facts facts(graph);
  FactorOfSum factor_of;
  for (const auto& [sum, factor] : factors.sums) factor_of.insert_or_assign(sum, factor);
  for (Symbol& other : graph.symbols)
    if (other.asserts)
      for (ExprId& statement : *other.asserts) statement = restate(facts, statement, factor_of, symbol);
  return symbol;
}

// What records of changed and added nodes say.
struct Record {
  StringId pass, reason;
};

// --------------------------------------------------------------------------- sizes

// Nodes that compute multiples of the token count, behind the inputs, one each for the whole graph.
class SizeNodes {
 public:
  SizeNodes(Graph& graph, const TokenInput& input, SymbolTypes& types, Record record)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        input_(input),
        types_(types),
        record_(record),
        names_(graph, body_),
        origins_(origins_of(body_.nodes[input.node])) {}

  const std::vector<NodeId>& made() const { return made_; }

  NodeId find(Rational factor) {
    const auto key = std::pair(factor.num, factor.den);
    if (const auto found = nodes_.find(key); found != nodes_.end()) return found->second;
    const NodeId node = make(factor);
    nodes_.emplace(key, node);
    return node;
  }

 private:
  NodeId make(Rational factor) {
    if (factor == Rational{1, 1})
      return add("sym_size_int", "aten.sym_size.int",
                 {Arg::node(input_.node), Arg::integer(static_cast<std::int64_t>(input_.dim))});
    if (factor.num == 1)
      return add("floordiv", "operator.floordiv",
                 {Arg::node(find(Rational{1, 1})), Arg::integer(factor.den)});
    return add("mul", "operator.mul", {Arg::node(find(Rational{1, factor.den})), Arg::integer(factor.num)});
  }

  NodeId add(std::string_view name, std::string_view target, const std::vector<Arg>& args) {
    Node node;
    node.name = names_.make(name);
    node.target = graph_.intern(target);
    node.args = context_.args.add(args);
    resolve_op(context_, node);
    append_provenance(
        context_, node,
        {.pass = record_.pass, .role = ProvenanceRole::kSize, .origins = origins_, .reason = record_.reason});
    node.type = types_.infer(node);
    made_.push_back(body_.nodes.push_back(std::move(node)));
    return made_.back();
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const TokenInput& input_;
  SymbolTypes& types_;
  Record record_;
  NodeNames names_;
  NameList origins_;
  std::map<std::pair<std::int64_t, std::int64_t>, NodeId> nodes_;  // by factor
  std::vector<NodeId> made_;
};

// --------------------------------------------------------------------------- the new graph

class Symbolizer {
 public:
  // `graph` is `before` with the symbol in its table.
  Symbolizer(const Graph& before, Graph& graph, const TokenInput& input, const ScalingFactors& factors,
             TokenSymbol symbol)
      : before_(before),
        graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        record_{graph.intern(kPass), graph.intern(fmt::format("{} = {}", graph.text(symbol.name),
                                                              factors.tokens / symbol.tokens))},
        types_(before, graph, factors, symbol),
        sizes_(graph, input, types_, record_) {
    for (const SizeArgument& argument : factors.arguments) arguments_[argument.node].push_back(&argument);
  }

  void run() {
    for (NodeId id : body_.order) rewrite(id);
    const auto behind_inputs = std::ranges::find_if(
        body_.order, [&](NodeId id) { return body_.nodes[id].kind != NodeKind::kPlaceholder; });
    body_.order.insert(behind_inputs, sizes_.made().begin(), sizes_.made().end());
  }

  SymbolTypes& types() { return types_; }
  std::size_t calls_with_sizes() const { return calls_with_sizes_; }

 private:
  void rewrite(NodeId id) {
    const TypeId before = body_.nodes[id].type;
    const bool has_new_sizes = put_sizes(id);
    const TypeId after = types_.find(id, has_new_sizes);
    Node& node = body_.nodes[id];
    if (node.op != nullptr) retype_captured(node);
    if (!has_new_sizes && after == before) return;
    node.type = after;
    if (node.extra && node.extra->example_type && node.extra->example_type == before) {
      NodeExtra extra = *node.extra;
      extra.example_type = after;
      node.extra = context_.own(std::move(extra));
    }
    record_specialized(context_, node, record_.pass, record_.reason);
  }

  // Tensors that a mask function captures have a placeholder in it, behind batch, head, query and
  // key position.
  void retype_captured(const Node& node) {
    const auto mask = node.op->find_param("block_mask"),
               buffers = node.op->find_param("mask_mod_other_buffers");
    if (!mask || !buffers) return;
    const BoundArgs bound = bind_args(context_, node);
    if (!bound.values[*mask].is_list() || !bound.values[*buffers].is_list()) return;
    const auto parts = context_.args.children(bound.values[*mask]);
    const auto captured = context_.args.children(bound.values[*buffers]);
    if (parts.empty() || !parts.back().is_node()) return;
    for (std::size_t i = 0; i < captured.size(); ++i)
      if (captured[i].is_node()) retype_placeholder(parts.back().as_node(), 4 + i, captured[i].as_node());
  }
  void retype_placeholder(NodeId function, std::size_t position, NodeId captured) {
    const TypeId before = before_.step().nodes[captured].type, after = body_.nodes[captured].type;
    const Arg& nested = body_.nodes[function].attr;
    if (before == after || !nested.is(ArgKind::kGraph)) return;
    for (Body& body : graph_.bodies) {
      if (body.name != nested.as_name() || position >= body.order.size()) continue;
      Node& placeholder = body.nodes[body.order[position]];
      if (placeholder.kind == NodeKind::kPlaceholder && placeholder.type == before) placeholder.type = after;
    }
  }

  // Numbers among the arguments become nodes.
  bool put_sizes(NodeId id) {
    const auto found = arguments_.find(id);
    if (found == arguments_.end()) return false;
    for (const SizeArgument* argument : found->second) {
      const Arg size = Arg::node(sizes_.find(argument->factor));
      Node& node = body_.nodes[id];
      Arg& value = argument_of(node, argument->param);
      value = argument->item ? with_item(value, *argument->item, size) : size;
      store_arguments(node);
    }
    ++calls_with_sizes_;
    return true;
  }

  // A copy of the call's arguments to write into; store_arguments puts them back.
  Arg& argument_of(const Node& node, std::size_t param) {
    const auto args = context_.args[node.args], kwargs = context_.args[node.kwargs];
    args_.assign(args.begin(), args.end());
    kwargs_.assign(kwargs.begin(), kwargs.end());
    if (param < args_.size()) return args_[param];
    for (std::size_t i = 0; i + 1 < kwargs_.size(); i += 2)
      if (context_.text(kwargs_[i].as_name()) == node.op->params[param].name) return kwargs_[i + 1];
    throw CheckError("a size argument is not among the call's arguments");
  }
  void store_arguments(Node& node) {
    node.args = context_.args.add(args_);
    node.kwargs = context_.args.add(kwargs_);
  }
  Arg with_item(Arg list, std::size_t item, Arg value) {
    const auto children = context_.args.children(list);
    std::vector<Arg> items(children.begin(), children.end());
    items[item] = value;
    return context_.args.add_tree(list.kind(), items);
  }

  const Graph& before_;
  Graph& graph_;
  Context& context_;
  Body& body_;
  Record record_;
  SymbolTypes types_;
  SizeNodes sizes_;
  std::map<NodeId, std::vector<const SizeArgument*>> arguments_;
  std::vector<Arg> args_, kwargs_;
  std::size_t calls_with_sizes_ = 0;
};

// --------------------------------------------------------------------------- notes

std::size_t count_scaling_extents(const Graph& graph, const ScalingFactors& factors) {
  std::size_t extents = 0;
  for (NodeId id : graph.step().order)
    for (const auto& tensor : factors.of[id].tensors)
      extents += static_cast<std::size_t>(
          std::ranges::count_if(tensor, [](const auto& f) { return f.has_value(); }));
  return extents;
}

std::vector<std::string> print_notes(const Graph& graph, const TokenDimensions& dimensions,
                                     const ScalingFactors& factors, TokenSymbol symbol,
                                     Symbolizer& symbolizer) {
  const std::string_view name = graph.text(symbol.name);
  std::vector<std::string> inputs;
  for (const TokenInput& input : dimensions.inputs)
    inputs.push_back(fmt::format("{}:{}", input.name, input.dim));
  std::vector<std::string> notes = {
      fmt::format("assumption: {} = {}", name, factors.tokens / symbol.tokens),
      fmt::format("{} counts {}: {} extents scale with it, {} calls take sizes from it", name,
                  fmt::join(inputs, ", "), count_scaling_extents(graph, factors),
                  symbolizer.calls_with_sizes())};
  if (dimensions.micro_batches > 1)
    notes.push_back(fmt::format("the inputs hold {} micro-batches: {} counts tokens of one",
                                dimensions.micro_batches, name));
  if (symbol.tokens > dimensions.micro_batches)
    notes.push_back(fmt::format("ranks share the tokens: {} of {} is what the smallest share has", name,
                                graph.context->exprs.text(symbolizer.types().extent(Rational{1, 1}))));
  if (const std::size_t borders = symbolizer.types().borders(); borders > 0)
    notes.push_back(
        fmt::format("{} extents are numbers on one side of an operation and scale on the other: equal by "
                    "the assumption",
                    borders));
  return notes;
}

// As options name it: positions, not extra_kwargs['positions'].
std::string_view option_name(std::string_view name) {
  const auto key = name.rfind("['");
  return key == name.npos || !name.ends_with("']") ? name : name.substr(key + 2, name.size() - key - 4);
}

// Of one row there are no parts.
std::string describe_one_row(const Graph& graph, const std::vector<TokenInput>& inputs) {
  std::vector<std::string> given, next;
  for (const TokenInput& input : inputs) {
    given.push_back(fmt::format("{}:{}", input.name, input.dim));
    const TensorType& type = *tensor_of(*graph.context, graph.step().nodes[input.node].type);
    if (input.dim + 1 < type.rank())
      next.push_back(fmt::format("{}:{}", option_name(input.name), input.dim + 1));
  }
  std::string text =
      fmt::format("unused: the extent of {} is 1, and one row has no parts", fmt::join(given, ", "));
  if (next.size() == inputs.size())
    text += fmt::format(
        "; to divide along the sequence: symbolize{{inputs=[{0}]}},chunk{{dim=seq}}, of a preset "
        "symbolize=[{0}],dim=seq",
        fmt::join(next, ","));
  return text;
}

// What was asked for by name and is not done is said aloud.
std::string describe_symbols(const Graph& graph, const std::vector<std::string>& asked,
                             const std::vector<TokenInput>& inputs, const std::vector<std::string>& symbols) {
  std::vector<std::string> numbers;
  for (const TokenInput& input : inputs)
    if (const ExprId size = tensor_of(*graph.context, graph.step().nodes[input.node].type)->sizes[input.dim];
        graph.context->exprs.symbols(size).empty())
      numbers.push_back(fmt::format("{}:{}", option_name(input.name), input.dim));
  const std::string known = fmt::format("the tokens have a symbol: {}", fmt::join(symbols, ", "));
  if (asked.empty() || numbers.empty()) return known;
  return fmt::format("unused: {}; {} stay{} a number", known, fmt::join(numbers, ", "),
                     numbers.size() == 1 ? "s" : "");
}

}  // namespace

PassResult symbolize(const Graph& untyped, const SymbolizeOptions& options) {
  // Extents scale through a call of known type, recorded or not.
  const std::optional<Graph> typed = write_missing_types(untyped);
  const Graph& graph = typed ? *typed : untyped;
  const TokenDimensions dimensions = find_token_dimensions(graph, options.inputs);
  const std::vector<TokenInput>& inputs = dimensions.inputs;
  if (const auto symbols = find_token_symbols(graph, inputs); !symbols.empty())
    return {untyped, {describe_symbols(graph, options.inputs, inputs, symbols)}};
  Facts facts(graph);
  const ScalingFactors factors =
      infer_scaling(graph, facts, inputs, {.micro_batches = dimensions.micro_batches});
  if (factors.tokens == 1) return {untyped, {describe_one_row(graph, inputs)}};
  PassResult result{graph};
  const TokenSymbol symbol = add_symbol(result.graph, factors, dimensions.micro_batches);
  Symbolizer symbolizer(graph, result.graph, inputs[0], factors, symbol);
  symbolizer.run();
  result.notes = print_notes(graph, dimensions, factors, symbol, symbolizer);
  return result;
}

}  // namespace epweave
