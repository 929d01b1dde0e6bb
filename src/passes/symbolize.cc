#include "passes/symbolize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "analysis/missing_types.h"
#include "analysis/token_inputs.h"
#include "analysis/user_inputs.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/fresh_symbols.h"
#include "passes/record.h"
#include "placement/scaling/scaling.h"

namespace epweave {
namespace {

constexpr std::string_view kPass = "symbolize";

// --------------------------------------------------------------------------- which inputs count
// tokens

class InputFinder {
 public:
  explicit InputFinder(const Graph& graph) : graph_(graph), users_(list_user_inputs(graph)) {}

  struct Found {
    std::vector<TokenInput> inputs;
    std::int64_t micro_batches = 1;  // along the dimensions that count tokens
  };

  Found find(const std::vector<std::string>& names) const {
    if (names.empty()) return {find_known()};
    Found result;
    for (const std::string& name : names) {
      const Named named = parse(name);
      result.inputs.push_back(find_named(named));
      result.micro_batches = std::lcm(result.micro_batches, named.micro_batches);
    }
    return result;
  }

 private:
  static constexpr std::size_t kShownUsers = 8;
  static constexpr std::int64_t kMostMicroBatches = 1 << 20;

  struct Named {
    std::string_view name;
    std::size_t dim = 0;
    std::int64_t micro_batches = 1;
  };

  std::vector<TokenInput> find_known() const {
    std::vector<TokenInput> result;
    for (const UserInput& user : users_)
      for (std::string_view name : kTokenInputs)
        if (user.which == name && user.type->rank() > 0)
          result.push_back({user.node, 0, std::string(user.which)});
    if (result.empty())
      throw PassError(
          "symbolize.no-inputs", "no user input is called tokens, inputs, input_ids, labels or positions", {},
          fmt::format("say which inputs count tokens: symbolize{{inputs=[NAME:DIMENSION]}}, of a preset "
                      "symbolize=[NAME:DIMENSION]; there are {}",
                      print_users()));
    return result;
  }

  // "tokens:0/2"
  static Named parse(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == text.npos) return {text};
    Named named{text.substr(0, colon)};
    const char *at = text.data() + colon + 1, *const end = text.data() + text.size();
    const auto read = [&](auto& number) {
      const auto [stop, error] = std::from_chars(at, end, number);
      at = stop;
      return error == std::errc();
    };
    bool is_right = read(named.dim);
    if (is_right && at != end)
      is_right = *at++ == '/' && read(named.micro_batches) && named.micro_batches > 0 &&
                 named.micro_batches <= kMostMicroBatches;
    if (!is_right || at != end)
      throw PassError("symbolize.input", fmt::format("'{}' is not an input and a dimension", text), {},
                      "write inputs=[tokens:0], or inputs=[tokens:0/2] where the dimension holds two "
                      "micro-batches one behind the other");
    return named;
  }

  TokenInput find_named(const Named& named) const {
    const auto& [name, dim, micro_batches] = named;
    for (const UserInput& user : users_) {
      if (!is_named(user, name)) continue;
      if (dim >= user.type->rank())
        throw PassError(
            "symbolize.input",
            fmt::format("input '{}' has {} dimensions and none numbered {}", name, user.type->rank(), dim),
            site_of(graph_, graph_.step().nodes[user.node]), "count dimensions from 0");
      const auto extent = graph_.context->exprs.constant(user.type->sizes[dim]);
      if (extent && *extent % micro_batches != 0)
        throw PassError(
            "symbolize.input",
            fmt::format("dimension {} of input '{}' is {}, which {} equal micro-batches do not make", dim,
                        name, *extent, micro_batches),
            site_of(graph_, graph_.step().nodes[user.node]),
            "give the number of micro-batches that the step cuts it into");
      return {user.node, dim, std::string(user.which)};
    }
    throw PassError("symbolize.input", fmt::format("there is no user input '{}'", name), {},
                    fmt::format("name one of {}", print_users()));
  }

  bool is_named(const UserInput& user, std::string_view name) const {
    return user.which == name || graph_.text(graph_.step().nodes[user.node].name) == name ||
           user.which.ends_with(fmt::format("['{}']", name)) ||
           user.which.ends_with(fmt::format(".{}", name));
  }

  std::string print_users() const {
    std::vector<std::string_view> names;
    for (const UserInput& user : users_)
      if (names.size() < kShownUsers) names.push_back(user.which);
    if (names.empty()) return "none";
    const std::string more =
        users_.size() > names.size() ? fmt::format(" and {} more", users_.size() - names.size()) : "";
    return fmt::format("{}{}", fmt::join(names, ", "), more);
  }

  const Graph& graph_;
  std::vector<UserInput> users_;
};

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

// --------------------------------------------------------------------------- the new graph

class Symbolizer {
 public:
  Symbolizer(const Graph& graph, const std::vector<TokenInput>& inputs, std::int64_t micro_batches,
             const ScalingFactors& factors)
      : in_(graph),
        inputs_(inputs),
        factors_(factors),
        micro_batches_(micro_batches),
        unit_(std::lcm(tokens_per_row(graph, factors), micro_batches)),
        out_(with_symbol(graph)),
        facts_(out_),
        facts_before_(graph) {
    pass_ = out_.intern(kPass);
    reason_ = out_.intern(fmt::format("{} = {}", out_.text(symbol_), rows()));
    for (const Node& node : in_.step().nodes) used_names_.insert(node.name);
    for (const SizeArgument& argument : factors_.arguments) arguments_[argument.node].push_back(&argument);
  }

  PassResult run() {
    for (NodeId id : in_.step().order) {
      rewrite(id);
      order_.push_back(id);
    }
    auto behind_inputs = std::find_if(order_.begin(), order_.end(), [&](NodeId id) {
      return step().nodes[id].kind != NodeKind::kPlaceholder;
    });
    order_.insert(behind_inputs, size_nodes_.begin(), size_nodes_.end());
    step().order = std::move(order_);
    PassResult result;
    result.notes = print_notes();
    result.graph = std::move(out_);
    return result;
  }

 private:
  Body& step() { return out_.step(); }
  Context& context() { return *out_.context; }
  std::int64_t rows() const { return factors_.tokens / unit_; }

  // First in the table: what others are known to be may mention it.
  Graph with_symbol(const Graph& graph) {
    Graph result = graph;
    result.symbols.insert(result.symbols.begin(), make_row_symbol(graph, rows()));
    symbol_ = result.symbols.front().name;
    Facts facts(result);
    for (const auto& [sum, factor] : factors_.sums) factor_of_sum_.at(sum) = factor;
    for (Symbol& symbol : result.symbols)
      if (symbol.asserts)
        for (ExprId& statement : *symbol.asserts) statement = restate(facts, statement);
    return result;
  }

  // Eq(u4 + u5, 3072) becomes Eq(u4 + u5, 3*s0).
  ExprId restate(Facts& facts, ExprId statement) {
    ExprPool& pool = facts.pool();
    const Poly& poly = pool[pool.poly(statement)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return statement;
    const Atom fact = pool[poly.terms[0].atoms[0]];
    if (fact.kind != AtomKind::kEq || !pool.constant(fact.operands[1])) return statement;
    if (const auto& factor = factor_of_sum_[fact.operands[0]])
      return pool.from_poly(pool.apply(AtomKind::kEq, {fact.operands[0], pool.poly(extent(facts, *factor))}));
    return statement;
  }

  ExprId extent(Facts& facts, Rational factor) {
    const Rational multiple = Rational::of(factor.num * unit_, factor.den);
    return facts.expr(facts.pool().scale(facts.pool().poly_symbol(symbol_), multiple));
  }
  ExprId extent(Rational factor) { return extent(facts_, factor); }

  // ------------------------------------------------------------------------- nodes

  void rewrite(NodeId id) {
    const TypeId before = step().nodes[id].type;
    const bool has_new_sizes = put_sizes(id);
    const TypeId after = new_type(id, has_new_sizes);
    Node& node = step().nodes[id];
    if (step().nodes[id].op != nullptr) retype_captured(id);
    if (!has_new_sizes && after == before) return;
    node.type = after;
    if (node.extra && node.extra->example_type && node.extra->example_type == before) {
      NodeExtra extra = *node.extra;
      extra.example_type = after;
      node.extra = context().own(std::move(extra));
    }
    record_specialized(context(), node, pass_, reason_);
  }

  // Tensors that a mask function captures have a placeholder in it, behind batch, head, query and
  // key position.
  void retype_captured(NodeId id) {
    const OpInfo& op = *step().nodes[id].op;
    const auto mask = op.find_param("block_mask"), buffers = op.find_param("mask_mod_other_buffers");
    if (!mask || !buffers) return;
    const BoundArgs bound = bind_args(context(), step().nodes[id]);
    if (!bound.values[*mask].is_list() || !bound.values[*buffers].is_list()) return;
    const auto parts = context().args.children(bound.values[*mask]);
    const auto captured = context().args.children(bound.values[*buffers]);
    if (parts.empty() || !parts.back().is_node()) return;
    for (std::size_t i = 0; i < captured.size(); ++i)
      if (captured[i].is_node()) retype_placeholder(parts.back().as_node(), 4 + i, captured[i].as_node());
  }
  void retype_placeholder(NodeId function, std::size_t position, NodeId captured) {
    const TypeId before = in_.step().nodes[captured].type, after = step().nodes[captured].type;
    const Arg& graph = step().nodes[function].attr;
    if (before == after || !graph.is(ArgKind::kGraph)) return;
    for (Body& body : out_.bodies) {
      if (body.name != graph.as_name() || position >= body.order.size()) continue;
      Node& placeholder = body.nodes[body.order[position]];
      if (placeholder.kind == NodeKind::kPlaceholder && placeholder.type == before) placeholder.type = after;
    }
  }

  // Numbers among the arguments become nodes.
  bool put_sizes(NodeId id) {
    const auto found = arguments_.find(id);
    if (found == arguments_.end()) return false;
    for (const SizeArgument* argument : found->second) {
      const Arg size = Arg::node(size_node(argument->factor));
      Node& node = step().nodes[id];
      Arg& value = argument_of(node, argument->param);
      value = argument->item ? with_item(value, *argument->item, size) : size;
      store_arguments(node);
    }
    ++calls_with_sizes_;
    return true;
  }

  // A copy of the call's arguments to write into; store_arguments puts them back.
  Arg& argument_of(const Node& node, std::size_t param) {
    const auto args = context().args[node.args], kwargs = context().args[node.kwargs];
    args_.assign(args.begin(), args.end());
    kwargs_.assign(kwargs.begin(), kwargs.end());
    if (param < args_.size()) return args_[param];
    for (std::size_t i = 0; i + 1 < kwargs_.size(); i += 2)
      if (context().text(kwargs_[i].as_name()) == node.op->params[param].name) return kwargs_[i + 1];
    throw CheckError("a size argument is not among the call's arguments");
  }
  void store_arguments(Node& node) {
    node.args = context().args.add(args_);
    node.kwargs = context().args.add(kwargs_);
  }
  Arg with_item(Arg list, std::size_t item, Arg value) {
    const auto children = context().args.children(list);
    std::vector<Arg> items(children.begin(), children.end());
    items[item] = value;
    return context().args.add_tree(list.kind(), items);
  }

  // ------------------------------------------------------------------------- types

  TypeId new_type(NodeId id, bool has_new_sizes) {
    const Node& node = step().nodes[id];
    const ScalingFactors::Dimensions& dimensions = factors_.of[id];
    if (!node.type || node.kind == NodeKind::kOutput) return node.type;
    const bool is_call = node.kind == NodeKind::kCall && has_type_rule(node);
    if (dimensions.tensors.empty() && !(is_call && (has_new_sizes || has_new_input(id)))) return node.type;
    TypeId inferred;
    if (is_call) {
      try {
        inferred = infer_type(facts_, out_, step(), node);
      } catch (const TypeMismatch& error) {
        refuse_untyped_input(id);
        fail_type(id, error.what());
      }
    }
    const Type& recorded = context().types[node.type];
    const bool is_tuple = recorded.kind == TypeKind::kTuple || recorded.kind == TypeKind::kList;
    if (!is_tuple) return merge(id, 0, node.type, inferred);
    Type result = recorded;
    const std::vector<TypeId> found = inferred ? context().types[inferred].elements : std::vector<TypeId>();
    for (std::size_t e = 0; e < result.elements.size(); ++e)
      if (result.elements[e])
        result.elements[e] = merge(id, e, result.elements[e], e < found.size() ? found[e] : TypeId());
    return result == recorded ? node.type : context().types.intern(std::move(result));
  }

  // Of a call that the op table does not have, and whose type the graph does not record.
  void refuse_untyped_input(NodeId id) {
    for_each_input(context(), step().nodes[id], [&](NodeId input) {
      const Node& call = step().nodes[input];
      if (call.kind != NodeKind::kCall || call.type) return;
      throw PassError("symbolize.no-type",
                      fmt::format("it has no recorded type, which the type of '{}' follows from",
                                  out_.text(step().nodes[id].name)),
                      site_of(out_, call),
                      "export the graph with types: a custom op has them where torch.library.register_fake "
                      "says its results");
    });
  }

  bool has_new_input(NodeId id) {
    bool any = false;
    for_each_input(context(), step().nodes[id], [&](NodeId input) {
      any |= !in_.step().nodes.contains(input) || step().nodes[input].type != in_.step().nodes[input].type;
    });
    return any;
  }

  // The recorded type with the extents that scale, laid out as the arguments say.
  TypeId merge(NodeId id, std::size_t element, TypeId recorded, TypeId inferred) {
    const TensorType* before = tensor_of(context(), recorded);
    if (before == nullptr) {
      // A size: `max_q` of attention, or one that is read of an input and was a number.
      const bool is_size = inferred && context().types[inferred].kind == TypeKind::kScalar;
      if (!is_size) return recorded;
      const bool is_known = !has_symbols(recorded) ||
                            is_traced_number(context().types[recorded].expr, context().types[inferred].expr);
      return is_known ? inferred : recorded;
    }
    const TensorType* found = tensor_of(context(), inferred);
    TensorType after = *before;
    bool is_as_inferred = found != nullptr && found->rank() == before->rank();
    const auto& tensors = factors_.of[id].tensors;
    for (std::size_t dim = 0; dim < after.rank(); ++dim) {
      if (element < tensors.size() && tensors[element][dim] && !mentions_symbols(before->sizes[dim]))
        after.sizes[dim] = extent(*tensors[element][dim]);
      if (found == nullptr || found->rank() != before->rank()) continue;
      if (facts_.equal(found->sizes[dim], after.sizes[dim])) continue;
      if (is_traced_number(before->sizes[dim], found->sizes[dim])) {
        after.sizes[dim] = found->sizes[dim];
        continue;
      }
      // Two multiples and sums of the symbol that differ are equal for the traced number only.
      const bool both_scale = mentions_symbols(found->sizes[dim]) && mentions_symbols(after.sizes[dim]);
      if (both_scale || facts_.hint(found->sizes[dim]) != facts_.hint(after.sizes[dim]))
        fail_type(
            id, fmt::format("extent {} is {}, the arguments give {}", dim,
                            context().exprs.text(after.sizes[dim]), context().exprs.text(found->sizes[dim])));
      if (after.sizes[dim] == before->sizes[dim] && is_multiple(found->sizes[dim])) {
        after.sizes[dim] = found->sizes[dim];
      } else {
        is_as_inferred = false;
        ++borders_;
      }
    }
    if (after.sizes == before->sizes && !(is_as_inferred && has_token(found->strides))) return recorded;
    if (is_as_inferred) {
      after.strides = found->strides;
      after.offset = found->offset;
    } else {
      after.strides = laid_out(id, *before, after.sizes);
    }
    return after == *before ? recorded : context().types.tensor(std::move(after));
  }

  // Whether the extent, which was recorded with symbols, is this number by what was known of them.
  // torch writes what -1 stands for in view(rows : [u0 + u1, 16], [32, 2, -1]) as (u0 + u1)//4, and
  // u0 + u1 was 64: the 16 of the rows, not a share of the tokens.
  bool is_traced_number(ExprId recorded, ExprId inferred) {
    const auto number = context().exprs.constant(inferred);
    return number && mentions_symbols(recorded) &&
           context().exprs.constant(facts_before_.normalize(recorded)) == number;
  }

  // Whether it is a multiple of the symbol. The last of some literal pieces, s0 - 896, is not: it
  // stays the number that it is.
  bool is_multiple(ExprId extent) {
    const Poly& poly = context().exprs[facts_.normalize(extent)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return false;
    const Atom& atom = context().exprs[poly.terms[0].atoms[0]];
    return atom.kind == AtomKind::kSymbol && atom.name == symbol_;
  }

  bool has_symbols(TypeId type) {
    return context().types[type].kind == TypeKind::kScalar && mentions_symbols(context().types[type].expr);
  }
  bool mentions_symbols(ExprId extent) { return !context().exprs.symbols(extent).empty(); }
  bool has_token(std::span<const ExprId> extents) {
    return std::any_of(extents.begin(), extents.end(), [&](ExprId e) {
      const auto& symbols = context().exprs.symbols(e);
      return std::find(symbols.begin(), symbols.end(), symbol_) != symbols.end();
    });
  }

  // Strides in the same order as before, dense as before.
  Dims laid_out(NodeId id, const TensorType& before, std::span<const ExprId> sizes) {
    if (is_contiguous(facts_, layout_of(before))) return contiguous_strides(facts_, sizes);
    if (!is_dense(facts_, layout_of(before)))
      fail_type(id, "its layout has gaps, and how they scale is not known");
    return filled_strides(facts_, sizes, fill_order(facts_, before.strides, Ties::kFirstInside));
  }

  [[noreturn]] void fail_type(NodeId id, std::string_view problem) {
    throw PassError("symbolize.type",
                    fmt::format("with a symbol for the token count this does not type-check: {}", problem),
                    site_of(out_, step().nodes[id]),
                    has_open_size(step().nodes[id])
                        ? "write the size that the model gives as -1"
                        : "trace the model with symbolic sizes, or name other inputs "
                          "(symbolize{inputs=[...]})");
  }

  // view(x, [32, -1])
  bool has_open_size(const Node& node) {
    for (Arg arg : context().args[node.args])
      if (arg.is_list())
        for (Arg item : context().args.children(arg))
          if (item.is_int() && item.as_int() == -1) return true;
    return false;
  }

  // ------------------------------------------------------------------------- sizes

  // The node of factor * tokens, behind the inputs, one for the whole graph.
  NodeId size_node(Rational factor) {
    const auto key = std::pair(factor.num, factor.den);
    if (const auto found = sizes_.find(key); found != sizes_.end()) return found->second;
    NodeId result;
    if (factor == Rational{1, 1}) {
      result =
          add_size("sym_size_int", "aten.sym_size.int",
                   {Arg::node(inputs_[0].node), Arg::integer(static_cast<std::int64_t>(inputs_[0].dim))});
    } else if (factor.num == 1) {
      result = add_size("floordiv", "operator.floordiv",
                        {Arg::node(size_node(Rational{1, 1})), Arg::integer(factor.den)});
    } else {
      result = add_size("mul", "operator.mul",
                        {Arg::node(size_node(Rational{1, factor.den})), Arg::integer(factor.num)});
    }
    sizes_.emplace(key, result);
    return result;
  }

  NodeId add_size(std::string_view name, std::string_view target, const std::vector<Arg>& args) {
    Node node;
    node.name = fresh_name(name);
    node.target = out_.intern(target);
    node.args = context().args.add(args);
    resolve_op(context(), node);
    append_provenance(context(), node,
                      {.pass = pass_,
                       .role = ProvenanceRole::kSize,
                       .origins = origins_of(in_.step().nodes[inputs_[0].node]),
                       .reason = reason_});
    node.type = infer_type(facts_, out_, step(), node);
    size_nodes_.push_back(step().nodes.push_back(std::move(node)));
    return size_nodes_.back();
  }

  StringId fresh_name(std::string_view base) {
    StringId name = out_.intern(base);
    for (int i = 1; !used_names_.insert(name); ++i) name = out_.intern(fmt::format("{}_{}", base, i));
    return name;
  }

  std::vector<std::string> print_notes() {
    std::vector<std::string> inputs;
    for (const TokenInput& input : inputs_) inputs.push_back(fmt::format("{}:{}", input.name, input.dim));
    std::size_t extents = 0;
    for (NodeId id : in_.step().order)
      for (const auto& tensor : factors_.of[id].tensors)
        extents +=
            static_cast<std::size_t>(std::count_if(tensor.begin(), tensor.end(), [](auto& f) { return f; }));
    std::vector<std::string> notes = {
        fmt::format("assumption: {} = {}", out_.text(symbol_), rows()),
        fmt::format("{} counts {}: {} extents scale with it, {} calls take sizes from it", out_.text(symbol_),
                    fmt::join(inputs, ", "), extents, calls_with_sizes_)};
    if (micro_batches_ > 1)
      notes.push_back(fmt::format("the inputs hold {} micro-batches: {} counts tokens of one", micro_batches_,
                                  out_.text(symbol_)));
    if (unit_ > micro_batches_)
      notes.push_back(fmt::format("ranks share the tokens: {} of {} is what the smallest share has",
                                  out_.text(symbol_), context().exprs.text(extent(Rational{1, 1}))));
    if (borders_ > 0)
      notes.push_back(
          fmt::format("{} extents are numbers on one side of an operation and scale on the other: equal by "
                      "the assumption",
                      borders_));
    return notes;
  }

  const Graph& in_;
  const std::vector<TokenInput>& inputs_;
  const ScalingFactors& factors_;
  std::int64_t micro_batches_;
  std::int64_t unit_;  // tokens for each row that the symbol counts
  StringId symbol_;
  SideTable<PolyId, std::optional<Rational>> factor_of_sum_;
  Graph out_;
  Facts facts_, facts_before_;
  StringId pass_, reason_;
  IdSet<StringId> used_names_;
  std::map<NodeId, std::vector<const SizeArgument*>> arguments_;
  std::map<std::pair<std::int64_t, std::int64_t>, NodeId> sizes_;  // by factor
  std::vector<NodeId> size_nodes_, order_;
  std::vector<Arg> args_, kwargs_;
  std::size_t calls_with_sizes_ = 0, borders_ = 0;
};

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
  const auto [inputs, micro_batches] = InputFinder(graph).find(options.inputs);
  if (const auto symbols = find_token_symbols(graph, inputs); !symbols.empty())
    return {untyped, {describe_symbols(graph, options.inputs, inputs, symbols)}};
  Facts facts(graph);
  const ScalingFactors factors = infer_scaling(graph, facts, inputs, {.micro_batches = micro_batches});
  if (factors.tokens == 1) return {untyped, {describe_one_row(graph, inputs)}};
  return Symbolizer(graph, inputs, micro_batches, factors).run();
}

}  // namespace epweave
