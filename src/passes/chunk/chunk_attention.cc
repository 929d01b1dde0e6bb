#include "passes/chunk/chunk_attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/element_call.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rebind.h"
#include "placement/attention_cut.h"

namespace epweave {
namespace {

constexpr std::size_t kQueryDim = 2;
constexpr std::string_view kSum = "aten.add.Tensor", kCopy = "aten.clone.default";
constexpr std::string_view kLeaveOut = "select roots without attention, such as layers.*.moe";

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

const TensorType* argument_type(const Graph& graph, const Node& node, std::string_view param) {
  const auto position = node.op->find_param(param);
  const Arg arg = position ? arg_of(*graph.context, node, *position) : Arg::none();
  if (!arg.is_node()) return nullptr;
  return tensor_of(*graph.context, graph.step().nodes[arg.as_node()].type);
}

// Checks one call whose queries are divided along the sequence, and finds where its parts begin.
class BorderCheck {
 public:
  BorderCheck(const Graph& graph, TokenExtents& tokens, Facts& facts, ChunkPlan& plan)
      : graph_(graph), tokens_(tokens), facts_(facts), plan_(plan) {}

  void check(NodeId id, const AttentionCut& cut) {
    node_ = &graph_.step().nodes[id];
    const auto flex = FlexCall::read(graph_, *node_);
    const bool is_sequence = cut.dim == static_cast<int>(kQueryDim);
    const bool counts_rows = cut.score || cut.mask || cut.causal;
    if (cut.keys || cut.prefix || cut.causal) require_as_many_keys();
    if (cut.prefix) require_unwritten_keys(id);
    if (!counts_rows && !(flex && is_sequence)) return;
    const ExprId queries = argument_type(graph_, *node_, "query")->sizes[static_cast<std::size_t>(cut.dim)];
    const auto multiple = tokens_.multiple(queries);
    const TokenExtents::Source source = multiple ? tokens_.source(multiple->symbol) : TokenExtents::Source();
    if (!source.node || source.factor != 1)
      decline("chunk.attention",
              "the extent along which it is divided is no multiple of a token count that an input has");
    if (!is_sequence) return;
    if (!flex) return;
    const auto tokens = facts_.hint(multiple->symbol);
    if (!tokens)
      throw PassError("chunk.unknown-extent",
                      fmt::format("its block tables fit one token count, and {} has no hint",
                                  graph_.text(multiple->symbol)),
                      site_of(graph_, *node_), "export the graph with a hint for it");
    rows_per_token_ = multiple->factor;
    std::vector<std::int64_t>& borders = plan_.attention_borders[id];
    const Division& division = plan_.division(plan_.placements.region[id]);
    for (std::size_t k = 0; k <= division.count(); ++k)
      borders.push_back(multiple->factor *
                        facts_.hint(division.first_row(facts_.pool(), multiple->symbol, k)).value());
    bool is_fixed = require_blocks(*flex, borders, {.by_key = false, .block = flex->query_block});
    if (cut.keys || cut.prefix)
      is_fixed |= require_blocks(*flex, borders, {.by_key = true, .block = flex->key_block});
    if (is_fixed) assume(multiple->symbol, *tokens);
  }

 private:
  void require_as_many_keys() {
    const ExprId queries = argument_type(graph_, *node_, "query")->sizes[kQueryDim];
    const ExprId keys = argument_type(graph_, *node_, "key")->sizes[kQueryDim];
    if (!facts_.equal(queries, keys))
      decline("chunk.attention", "its queries and keys are not as many, so parts of them do not meet");
  }
  // A part's keys are joined with those of parts before it once, for all calls.
  void require_unwritten_keys(NodeId id) const {
    const Effects& effects = *plan_.placements.effects;
    for (const std::string_view param : {"key", "value"}) {
      const Arg operand = arg_of(*graph_.context, *node_, node_->op->find_param(param).value());
      for (const StorageAccess& access : effects.accesses_of(id))
        if (access.storage == effects.storage_of(operand.as_node()))
          decline("chunk.attention",
                  fmt::format("'{}' is written in place, and parts of it are joined for later ones",
                              graph_.text(graph_.step().nodes[operand.as_node()].name)));
    }
  }
  struct Blocks {
    bool by_key;  // blocks of keys, else of queries
    std::int64_t block;
  };
  // Whether there is more than one block. Then there must be as many as the rows need, and no
  // border may lie inside one.
  bool require_blocks(const FlexCall& flex, const std::vector<std::int64_t>& borders, const Blocks& blocks) {
    const std::int64_t needed = ceil_div(borders.back(), blocks.block);
    bool any = false;
    for (const FlexTablePair& pair : kFlexTables) {
      if (flex.mask[pair.counts].is_none()) continue;
      const std::size_t at = pair.by_key == blocks.by_key ? pair.counts : pair.indices;
      const NodeId table = flex.mask[at].as_node();
      const TensorType& type = *tensor_of(*graph_.context, graph_.step().nodes[table].type);
      const std::int64_t count = facts_.pool().constant(type.sizes.back()).value();
      const std::int64_t rows = facts_.pool().constant(type.sizes[kQueryDim]).value();
      const std::int64_t found = at == pair.counts ? rows : count;
      if (found == 1) continue;
      any = true;
      if (found != needed)
        decline("chunk.block-mask",
                fmt::format("block table '{}' is made for {} blocks of {}, {} rows have {}",
                            graph_.text(graph_.step().nodes[table].name), found, blocks.block, borders.back(),
                            needed));
    }
    if (!any) return false;
    for (std::size_t k = 1; k + 1 < borders.size(); ++k)
      if (borders[k] % blocks.block != 0)
        throw PassError(
            "chunk.block-border",
            fmt::format("part {} would begin at row {} of {}, inside a block of {} {} of its mask", k,
                        borders[k], borders.back(), blocks.block, blocks.by_key ? "keys" : "queries"),
            site_of(graph_, *node_),
            fmt::format("choose parts that begin at multiples of {}{}, make the block mask with smaller "
                        "blocks, or {}",
                        blocks.block, suggest_sizes(borders, blocks.block), kLeaveOut));
    return true;
  }
  // The sizes of parts that begin at the nearest blocks, where each part has one.
  std::string suggest_sizes(const std::vector<std::int64_t>& borders, std::int64_t block) const {
    if (rows_per_token_ != 1) return "";
    std::vector<std::int64_t> sizes;
    std::int64_t begin = 0;
    for (std::size_t k = 1; k < borders.size(); ++k) {
      const bool is_last = k + 1 == borders.size();
      const std::int64_t end = is_last ? borders[k] : (borders[k] + block / 2) / block * block;
      sizes.push_back(end - begin);
      if (sizes.back() <= 0) return "";
      begin = end;
    }
    return fmt::format(" (sizes=[{}])", fmt::join(sizes, ","));
  }

  void assume(StringId symbol, std::int64_t tokens) {
    if (facts_.assumed_value(symbol) == tokens) return;
    const ExprId statement =
        graph_.context->exprs.parse(fmt::format("Eq({}, {})", graph_.text(symbol), tokens));
    for (const ChunkPlan::Assumed& known : plan_.assumed)
      if (known.symbol == symbol && known.statement == statement) return;
    plan_.assumed.push_back({symbol, statement, fmt::format("{} = {}", graph_.text(symbol), tokens)});
  }
  [[noreturn]] void decline(std::string id, const std::string& problem) const {
    throw PassError(std::move(id), problem, site_of(graph_, *node_), std::string(kLeaveOut));
  }

  const Graph& graph_;
  TokenExtents& tokens_;
  Facts& facts_;
  ChunkPlan& plan_;
  const Node* node_ = nullptr;
  std::int64_t rows_per_token_ = 1;
};

// A function of which some parameters count rows from a part's first row, which becomes its last
// parameter.
class RebasedBody {
 public:
  RebasedBody(Context& context, const Body& original) : context_(context), body_(original) {
    for (const Node& node : body_.nodes) names_.insert(node.name);
  }

  Body rebase(const FlexFunction& function, const std::vector<FlexIndex>& indices, TypeId number) {
    const std::vector<NodeId> parameters = parameters_of(body_);
    std::vector<NodeId> order(body_.order.begin(), body_.order.begin() + std::ssize(parameters));
    Node row = body_.nodes[parameters.back()];
    row.name = row.target = fresh_name("first_row");
    row.type = number;
    const NodeId row_id = body_.nodes.push_back(row);
    order.push_back(row_id);
    SideTable<NodeId, NodeId> global;
    for (const FlexIndex index : indices) {
      const NodeId local = parameters[flex_index_position(function.kind, index)];
      if (!reads_parameter(context_, body_, local)) continue;
      Node sum = body_.nodes[local];
      sum.kind = NodeKind::kCall;
      sum.name = fresh_name(fmt::format("{}_global", context_.text(sum.name)));
      sum.target = context_.strings.intern("aten.add.Tensor");
      sum.args = context_.args.add(std::vector{Arg::node(local), Arg::node(row_id)});
      resolve_op(context_, sum);
      global.at(local) = body_.nodes.push_back(sum);
      order.push_back(global[local]);
    }
    for (auto it = body_.order.begin() + std::ssize(parameters); it != body_.order.end(); ++it) {
      Node& node = body_.nodes[*it];
      auto take = [&](Arg arg) {
        const NodeId changed = arg.is_node() ? global[arg.as_node()] : NodeId();
        return changed ? Arg::node(changed) : arg;
      };
      map_arguments(context_, node, take);
      if (node.kind == NodeKind::kOutput && function.kind == FlexFunctionKind::kJoint) add_no_gradient(node);
      order.push_back(*it);
    }
    body_.order = std::move(order);
    return std::move(body_);
  }

 private:
  // The number has no gradient.
  void add_no_gradient(Node& output) {
    const Arg gradients = context_.args[output.args][0];
    const auto items = context_.args.children(gradients);
    std::vector<Arg> more(items.begin(), items.end());
    more.push_back(Arg::none());
    output.args = context_.args.add(std::vector{context_.args.add_tree(gradients.kind(), more)});
  }
  StringId fresh_name(const std::string& base) {
    StringId name = context_.strings.intern(base);
    for (int i = 1; !names_.insert(name); ++i) name = context_.strings.intern(fmt::format("{}_{}", base, i));
    return name;
  }

  Context& context_;
  Body body_;
  IdSet<StringId> names_;
};

}  // namespace

void check_attention_borders(const Graph& graph, TokenExtents& tokens, Facts& facts, ChunkPlan& plan) {
  BorderCheck check(graph, tokens, facts, plan);
  for (const auto& [id, cut] : plan.placements.attention) check.check(id, cut);
}

struct PartAttention::Use {
  NodeId original;
  std::size_t part;
  const AttentionCut& cut;
  RegionId region;
  std::optional<Arg> first_row;  // none: part 0, or nothing counts from it

  Key key(std::uint32_t what) const {
    return {what, first_row->kind(), first_row->bits(), indices_of(cut).size()};
  }
};

PartAttention::PartAttention(const Graph& graph, const ChunkPlan& plan, Graph& chunked, ChunkWriter& writer,
                             PartSizes& sizes)
    : in_(graph),
      plan_(plan),
      out_(chunked),
      writer_(writer),
      sizes_(sizes),
      tag_(chunked),
      tables_(chunked, writer),
      causal_(graph, plan, chunked, writer, sizes) {}

void PartAttention::adapt(NodeId original, std::size_t part, Node& node) {
  adapt_to_rows(original, part, node);
  if (tag_.is_on(*out_.context, node)) name_own_functions(node);
}

// Parts of a call that is compiled alone share no node that names a nested graph.
void PartAttention::name_own_functions(Node& node) {
  for (NodeId function : list_functions(*out_.context, out_.step(), node))
    if (!named_.insert(function))
      replace_function(*out_.context, node, function,
                       writer_.repeat(function, "regional_inductor compiles each part's call alone"));
}

void PartAttention::adapt_to_rows(NodeId original, std::size_t part, Node& node) {
  const auto cut = plan_.placements.attention.find(original);
  if (cut == plan_.placements.attention.end()) return;
  if (cut->second.causal) return causal_.adapt(original, part, node);
  const auto flex = FlexCall::read(out_, node);
  if (!flex) return;
  Context& context = *out_.context;
  Use use{original, part, cut->second, plan_.placements.region[original], {}};
  const ExprId rows =
      argument_type(in_, in_.step().nodes[original], "query")->sizes[static_cast<std::size_t>(use.cut.dim)];
  if (part > 0 && (use.cut.score || use.cut.mask))
    use.first_row = sizes_.first_row(rows, use.region, part).value();

  std::vector<Arg> mask = flex->mask;
  if (use.cut.dim == static_cast<int>(kQueryDim)) {
    adapt_lengths(use, rows, mask);
    adapt_tables(use, mask);
  }
  auto set_argument = [&](std::size_t param, Arg value) {
    rebind(context, node,
           {.param = param, .value = value, .left_out = context.args.add_tree(ArgKind::kTuple, {})});
  };
  auto captured_with_row = [&](std::size_t position) {
    const Arg captured = arg_of(context, node, position);
    std::vector<Arg> items;
    if (captured.is_list()) {
      const auto children = context.args.children(captured);
      items.assign(children.begin(), children.end());
    }
    items.push_back(*use.first_row);
    return context.args.add_tree(ArgKind::kTuple, items);
  };
  if (use.first_row && use.cut.mask) {
    adapt_function(use, flex->functions.back(), mask.back());
    set_argument(flex->mask_captured_param, captured_with_row(flex->mask_captured_param));
  }
  if (use.first_row && use.cut.score) {
    for (const FlexFunction& function : flex->functions) {
      if (function.kind == FlexFunctionKind::kMask) continue;
      Arg changed = Arg::node(function.source);
      adapt_function(use, function, changed);
      set_argument(function.param, changed);
    }
    set_argument(flex->score_captured_param, captured_with_row(flex->score_captured_param));
  }
  set_argument(flex->mask_param, context.args.add_tree(ArgKind::kTuple, mask));
}

// A length that is a number; a mask without tables is made for a length of 1, whatever the
// sequence.
void PartAttention::adapt_lengths(const Use& use, ExprId rows, std::vector<Arg>& mask) {
  const std::int64_t length = plan_.attention_borders.at(use.original).back();
  const auto own = [&] { return sizes_.of_extent(rows, use.region).value()[use.part]; };
  if (mask[kFlexQueryLength] == Arg::integer(length)) mask[kFlexQueryLength] = own();
  Arg& keys = mask[kFlexKeyLength];
  if (keys == Arg::integer(length) && use.cut.keys) keys = own();
  const bool is_last = use.part + 1 == plan_.division(use.region).count();
  if (!use.cut.prefix || is_last) return;
  const TypeId type = keys.is_node() ? out_.step().nodes[keys.as_node()].type : TypeId();
  const bool is_extent = type && out_.context->types[type].kind == TypeKind::kScalar &&
                         writer_.facts().equal(out_.context->types[type].expr, rows);
  if (keys == Arg::integer(length) || is_extent)
    keys = sizes_.first_row(rows, use.region, use.part + 1).value();
}

bool PartAttention::has_summands(NodeId original) const {
  const NodeId call = tuple_of(*in_.context, in_.step().nodes[original]);
  const auto cut = call ? plan_.placements.attention.find(call) : plan_.placements.attention.end();
  if (cut == plan_.placements.attention.end() || !cut->second.prefix) return false;
  const auto flex = FlexCall::read(in_, in_.step().nodes[call]);
  const Arg element = arg_of(*in_.context, in_.step().nodes[original], 1);
  return flex && flex->is_backward && is_flex_key_gradient(element);
}

NodeId PartAttention::append(const GradientStep& step) {
  return writer_.append(writer_.make({.name = step.name,
                                      .target = step.target,
                                      .args = step.args,
                                      .chunk_role = "chunk_input",
                                      .role = step.role,
                                      .origin = step.original,
                                      .region = plan_.placements.region[step.original],
                                      .part = step.part}));
}

NodeId PartAttention::cut_summands(NodeId original, std::size_t part, Arg call) {
  const Node& element = in_.step().nodes[original];
  const std::string name = fmt::format("{}_summands_chunk{}", writer_.name(original), part);
  const NodeId all =
      append({original, part, name, in_.text(element.target), {call, arg_of(*in_.context, element, 1)}});
  if (part == 0) return all;
  const ExprId rows =
      argument_type(in_, in_.step().nodes[call_of(*in_.context, in_.step(), original)], "query")
          ->sizes[kQueryDim];
  PartSizes::Shares shares = sizes_.of_extent(rows, plan_.placements.region[original]).value();
  shares.resize(part + 1);
  return append({original,
                 part,
                 name + "_split",
                 "aten.split_with_sizes.default",
                 {Arg::node(all), writer_.list(shares), Arg::integer(kQueryDim)}});
}

std::vector<NodeId> PartAttention::write_sums(NodeId original, const std::vector<Arg>& calls) {
  const std::string name(writer_.name(original));
  const std::string_view element = in_.text(in_.step().nodes[original].target);
  const std::size_t last = calls.size() - 1;
  std::vector<NodeId> cut, sums;
  for (std::size_t k = 0; k <= last; ++k) cut.push_back(cut_summands(original, k, calls[k]));
  const auto summand = [&](std::size_t k, std::size_t j) {
    if (k == 0) return Arg::node(cut[0]);
    return Arg::node(append({original,
                             k,
                             fmt::format("{}_summands_chunk{}_{}", name, k, j),
                             element,
                             {Arg::node(cut[k]), Arg::integer(static_cast<std::int64_t>(j))}}));
  };
  for (std::size_t j = 0; j < last; ++j) {
    Arg sum = summand(last, j);
    for (std::size_t k = last - 1; k > j; --k)
      sum = Arg::node(
          append({original, j, fmt::format("{}_sum{}_chunk{}", name, k, j), kSum, {sum, summand(k, j)}}));
    sums.push_back(append({original,
                           j,
                           fmt::format("{}_chunk{}", name, j),
                           kSum,
                           {sum, summand(j, j)},
                           ProvenanceRole::kPartInput}));
  }
  // Of the last part there is one summand: a copy, dense as sums are, so that the others' are
  // freed.
  sums.push_back(append({original,
                         last,
                         fmt::format("{}_chunk{}", name, last),
                         kCopy,
                         {summand(last, last)},
                         ProvenanceRole::kPartInput}));
  return sums;
}

// Tables of one block stay: it holds every part's rows.
void PartAttention::adapt_tables(const Use& use, std::vector<Arg>& mask) {
  const std::vector<std::int64_t>& borders = plan_.attention_borders.at(use.original);
  const auto original = FlexCall::read(in_, in_.step().nodes[use.original]);
  const BlockRange queries{borders[use.part] / original->query_block,
                           ceil_div(borders[use.part + 1], original->query_block)};
  const std::int64_t first_key = use.cut.prefix ? 0 : borders[use.part];
  const BlockRange keys{first_key / original->key_block,
                        ceil_div(borders[use.part + 1], original->key_block)};
  const bool divides_keys = use.cut.keys || use.cut.prefix;
  for (const FlexTablePair& pair : kFlexTables) {
    if (mask[pair.counts].is_none()) continue;
    const PartBlockTables::Tables whole{mask[pair.counts].as_node(), mask[pair.indices].as_node()};
    const TensorType& type = *writer_.tensor(whole.indices);
    auto blocks = [&](std::size_t dim) { return out_.context->exprs.constant(type.sizes[dim]).value(); };
    PartBlockTables::Kept kept;
    if (blocks(2) > 1 && (!pair.by_key || divides_keys)) kept.rows = pair.by_key ? keys : queries;
    if (blocks(3) > 1 && (pair.by_key || divides_keys)) kept.columns = pair.by_key ? queries : keys;
    // The last part of a prefix has all keys.
    if (kept.rows && kept.rows->size() == blocks(2)) kept.rows.reset();
    if (kept.columns && kept.columns->size() == blocks(3)) kept.columns.reset();
    const auto tables = tables_.keep(whole, kept,
                                     {original->mask[pair.counts].as_node(),
                                      original->mask[pair.indices].as_node(), use.region, use.part});
    mask[pair.counts] = Arg::node(tables.counts);
    mask[pair.indices] = Arg::node(tables.indices);
  }
}

void PartAttention::adapt_function(const Use& use, const FlexFunction& function, Arg& arg) {
  arg = Arg::node(rebased_source(use, function));
}

// The node that names the part's function.
NodeId PartAttention::rebased_source(const Use& use, const FlexFunction& function) {
  const Key key = use.key(function.source.index());
  if (const auto found = sources_.find(key); found != sources_.end()) return found->second;
  const StringId body = rebased_body(use, function);
  Node node = writer_.make({.name = std::string(out_.text(body)),
                            .target = out_.text(body),
                            .role = ProvenanceRole::kAdded,
                            .origin = function.source});
  const Node& original = out_.step().nodes[function.source];
  node.kind = NodeKind::kGetAttr;
  node.attr = Arg::named(ArgKind::kGraph, body);
  node.type = original.type;
  node.module = original.module;
  node.source = original.source;
  node.has_custom = original.has_custom;
  node.backward = original.backward;
  if (original.extra != nullptr && !original.extra->custom.empty())
    node.extra = out_.context->own(NodeExtra{.custom = original.extra->custom});
  const NodeId id = out_.step().nodes.push_back(std::move(node));
  writer_.keep(id, out_.step().nodes[id].type);
  return sources_[key] = id;
}

StringId PartAttention::rebased_body(const Use& use, const FlexFunction& function) {
  const StringId original = out_.step().nodes[function.source].attr.as_name();
  const Key key = use.key(original.index());
  if (const auto found = bodies_.find(key); found != bodies_.end()) return found->second;
  const TypeId number =
      use.first_row->is_node()
          ? out_.step().nodes[use.first_row->as_node()].type
          : out_.context->types.intern(Type{.kind = TypeKind::kValue, .value = *use.first_row});
  Body body =
      RebasedBody(*out_.context, *out_.find_body(original)).rebase(function, indices_of(use.cut), number);
  const std::string base = fmt::format("{}_chunk{}", out_.text(original), use.part);
  body.name = out_.intern(base);
  for (int i = 1; out_.find_body(body.name) != nullptr; ++i)
    body.name = out_.intern(fmt::format("{}_{}", base, i));
  const StringId name = body.name;
  out_.bodies.push_back(std::move(body));
  return bodies_[key] = name;
}

}  // namespace epweave
