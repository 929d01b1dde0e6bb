#include "compare/rewrite/verify_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::size_t kQueryDim = 2;

std::vector<Arg> list_items(const Context& context, Arg list) {
  if (!list.is_list()) return {};
  const auto items = context.args.children(list);
  return {items.begin(), items.end()};
}

}  // namespace

// What part of the whole call a part is.
struct AttentionCheck::Division {
  FlexCall before, after;
  std::size_t dim = kQueryDim;  // of the query
  Rows rows;                    // of it
  bool keys = false;            // the keys are the part's own
  bool prefix = false;          // the keys are those up to the part's last one
  bool divides_keys() const { return keys || prefix; }
  std::int64_t first_key() const { return prefix ? 0 : rows.begin; }
  std::vector<FlexIndex> indices() const {
    if (dim != kQueryDim) return {FlexIndex::kBatch};
    if (keys) return {FlexIndex::kQuery, FlexIndex::kKey};
    return {FlexIndex::kQuery};
  }
};

AttentionCheck::AttentionCheck(const RewriteClaims& claims)
    : claims_(claims),
      a_(claims.graph_a()),
      b_(claims.graph_b()),
      context_(*a_.context),
      facts_a_(claims.facts_a()),
      facts_b_(claims.facts_b()) {}

AttentionCheck::Restored AttentionCheck::restore(NodeId origin, std::span<const NodeId> parts,
                                                 std::size_t part) {
  Restored result{b_.step().nodes[parts[part]], {}};
  const Node& whole = a_.step().nodes[origin];
  if (!FlexCall::read(a_, whole) || !FlexCall::read(b_, result.call)) return result;
  const auto division = divide(origin, parts, part);
  problems_.clear();
  check_cuts(whole, result.call, division ? std::optional(division->dim) : std::nullopt);
  if (!division) {
    result.problems = std::move(problems_);
    return result;
  }
  assume_numbers(result.call);
  if (division->keys) assume(std::string(kOwnKeys));
  std::vector<Arg> mask = division->after.mask;
  if (division->prefix) check_causal(*division);
  if (division->keys && prefix_calls_ != nullptr)
    problems_.emplace_back(
        "takes the keys of its part alone, where other calls take those of the parts before, too");
  if (division->dim == kQueryDim) {
    restore_tables(*division, mask);
  } else {
    check_batch_tables(*division);
  }
  check_captured(origin, *division, result.call);
  restore_functions(*division, result.call, mask);
  std::vector<Arg> args(context_.args[result.call.args].begin(), context_.args[result.call.args].end());
  if (division->after.mask_param < args.size())
    args[division->after.mask_param] = context_.args.add_tree(ArgKind::kTuple, mask);
  result.call.args = context_.args.add(args);
  result.problems = std::move(problems_);
  return result;
}

std::optional<std::int64_t> AttentionCheck::extent(const Graph& graph, const Node& node,
                                                   std::string_view param, std::size_t dim) {
  const auto position = node.op->find_param(param);
  const Arg* arg = position ? find_arg(context_, node, *position, param) : nullptr;
  const TensorType* type = arg != nullptr && arg->is_node()
                               ? tensor_of(context_, graph.step().nodes[arg->as_node()].type)
                               : nullptr;
  if (type == nullptr || dim >= type->rank()) return std::nullopt;
  return (&graph == &a_ ? facts_a_ : facts_b_).hint(type->sizes[dim]);
}

std::optional<AttentionCheck::Division> AttentionCheck::divide(NodeId origin, std::span<const NodeId> parts,
                                                               std::size_t part) {
  const Node& whole = a_.step().nodes[origin];
  const Node& call = b_.step().nodes[parts[part]];
  const auto before = FlexCall::read(a_, whole), after = FlexCall::read(b_, call);
  if (!before || !after) return std::nullopt;
  Division division{*before, *after};
  for (const std::size_t dim : {std::size_t{0}, kQueryDim}) {
    division.dim = dim;
    division.rows = {};
    for (std::size_t k = 0; k <= part; ++k) {
      const auto rows = extent(b_, b_.step().nodes[parts[k]], "query", dim);
      if (!rows) return std::nullopt;
      division.rows = {division.rows.end, division.rows.end + *rows};
    }
    if (extent(a_, whole, "query", dim) != extent(b_, call, "query", dim)) {
      const bool has_own = dim == kQueryDim && extent(a_, whole, "key", dim) != extent(b_, call, "key", dim);
      division.prefix = has_own && prefix_calls_ != nullptr && prefix_calls_->contains(parts[part]);
      division.keys = has_own && !division.prefix;
      return division;
    }
  }
  return std::nullopt;
}

void AttentionCheck::check_cuts(const Node& whole, const Node& call, std::optional<std::size_t> divided) {
  constexpr std::size_t kFewestDims = 3;  // of what lies beside the queries
  for (std::size_t p = 0; p < call.op->params.size(); ++p) {
    const std::string_view name = call.op->params[p].name;
    const bool is_keys = name == "key" || name == "value";
    const Arg x = arg_of(context_, whole, p), y = arg_of(context_, call, p);
    const TensorType* before = x.is_node() ? claims_.tensor_a(x.as_node()) : nullptr;
    const TensorType* after = y.is_node() ? claims_.tensor_b(y.as_node()) : nullptr;
    if (before == nullptr || after == nullptr || before->rank() < kFewestDims) continue;
    for (std::size_t d = 0; d < before->rank() && d < after->rank(); ++d) {
      const bool is_beside =
          d == divided && !(is_keys && d == kQueryDim) && context_.exprs.constant(before->sizes[d]) != 1;
      if (is_cut(before->sizes[d], after->sizes[d])) {
        if (d != divided)
          refuse(Condition::kCutsAtQueries, fmt::format("has a part of dimension {} of its {}, along which "
                                                        "its functions and tables are the whole's",
                                                        d, name));
      } else if (is_beside) {
        refuse(Condition::kCutsAtQueries,
               fmt::format("has all of dimension {} of its {}, beside a part of its queries", d, name));
      }
    }
  }
}

// Sizes of B may be numbers where those of A are symbols.
bool AttentionCheck::is_cut(ExprId whole, ExprId piece) {
  if (whole == piece) return false;
  const auto of_whole = facts_a_.hint(whole), of_piece = facts_b_.hint(piece);
  return !of_whole || of_whole != of_piece;
}

void AttentionCheck::refuse(Condition broken, std::string problem) {
  if (!holds(broken, false)) problems_.push_back(std::move(problem));
}

void AttentionCheck::assume(std::string text) {
  if (std::ranges::find(assumptions_, text) == assumptions_.end()) assumptions_.push_back(std::move(text));
}

// Rows, blocks and tables are counted by what extents of queries and keys were when traced.
void AttentionCheck::assume_numbers(const Node& call) {
  for (std::string_view name : {"query", "key"}) {
    const auto param = call.op->find_param(name);
    const Arg arg = param ? arg_of(context_, call, *param) : Arg::none();
    const TensorType* type = arg.is_node() ? claims_.tensor_b(arg.as_node()) : nullptr;
    if (type == nullptr) continue;
    for (const std::size_t dim : {std::size_t{0}, kQueryDim})
      for (const StringId symbol : context_.exprs.symbols(facts_b_.normalize(type->sizes[dim])))
        if (const auto number = facts_b_.hint(symbol))
          assume(fmt::format("{} = {}", context_.text(symbol), *number));
  }
}

// Then a query sees no key behind the part's, if block tables say what the mask function says.
void AttentionCheck::check_causal(const Division& division) {
  const FlexFunction& mask = division.before.functions.back();
  if (!hides_later_keys(context_, mask))
    refuse(Condition::kHidesLaterKeys,
           fmt::format(
               "takes the keys up to its part's, and nothing shows that the mask {} hides from each query "
               "the keys behind it",
               context_.text(mask.body->name)));
  if (division.before.has_full_blocks()) assume(std::string(kFlexFullBlocks));
}

std::span<const Arg> AttentionCheck::call_args(NodeId id, std::string_view target,
                                               std::span<const Keyword> keywords) const {
  const Node& node = b_.step().nodes[id];
  if (node.kind != NodeKind::kCall || context_.text(node.target) != target) return {};
  if (node.kwargs.count != 2 * keywords.size()) return {};
  for (const auto& [name, value] : keywords) {
    const Arg* given = find_kwarg(context_, node, name);
    if (given == nullptr || *given != value) return {};
  }
  return context_.args[node.args];
}

// ------------------------------------------------------------------------- block tables

void AttentionCheck::restore_tables(const Division& division, std::vector<Arg>& mask) {
  const auto in_blocks = [&](std::int64_t begin, std::int64_t block) {
    return Rows{begin / block, (division.rows.end + block - 1) / block};
  };
  for (const FlexTablePair& pair : kFlexTables) {
    if (!mask[pair.counts].is_node() || !mask[pair.indices].is_node()) continue;
    const Arg whole = division.before.mask[pair.indices];
    const TensorType* type =
        whole.is_node() ? tensor_of(context_, a_.step().nodes[whole.as_node()].type) : nullptr;
    if (type == nullptr || type->rank() != 4) continue;
    const bool divides_rows = !pair.by_key || division.divides_keys();
    const bool divides_columns = pair.by_key || division.divides_keys();
    const std::int64_t row_block = pair.by_key ? division.before.key_block : division.before.query_block;
    const std::int64_t column_block = pair.by_key ? division.before.query_block : division.before.key_block;
    const std::int64_t first_row = pair.by_key ? division.first_key() : division.rows.begin;
    const std::int64_t first_column = pair.by_key ? division.rows.begin : division.first_key();
    const Rows rows = in_blocks(first_row, row_block), columns = in_blocks(first_column, column_block);
    // One block holds all rows; the last part may have all keys.
    const auto blocks_along = [&](std::size_t dim) { return context_.exprs.constant(type->sizes[dim]); };
    const auto has_all = [&](std::size_t dim, Rows kept) {
      return blocks_along(dim) == 1 || (kept.begin == 0 && blocks_along(dim) == kept.end);
    };
    const bool all_rows = has_all(2, rows), all_columns = has_all(3, columns);
    // A part's blocks are counted from its first row on.
    const bool begins_a_block =
        (!divides_rows || blocks_along(2) == 1 || first_row % row_block == 0) &&
        (!divides_columns || blocks_along(3) == 1 || first_column % column_block == 0);
    std::optional<Tables> tables = Tables{mask[pair.counts].as_node(), mask[pair.indices].as_node()};
    if (!holds(Condition::kBeginsABlock, begins_a_block)) tables.reset();
    if (tables && divides_columns && !all_columns) tables = without_columns(*tables, columns);
    if (tables && divides_rows && !all_rows) {
      const auto counts = without_rows(tables->counts, rows);
      const auto indices = without_rows(tables->indices, rows);
      tables = counts && indices ? std::optional(Tables{*counts, *indices}) : std::nullopt;
    }
    if (!tables && holds(Condition::kCutsTables, false))
      tables = {claims_.whole(division.before.mask[pair.counts].as_node()), claims_.whole(whole.as_node())};
    if (!tables) {
      problems_.push_back(fmt::format("block tables {} and {} of its mask are not those of rows {} to {}",
                                      pair.counts, pair.indices, division.rows.begin, division.rows.end));
      continue;
    }
    mask[pair.counts] = Arg::node(tables->counts);
    mask[pair.indices] = Arg::node(tables->indices);
  }
}

// A part's batch numbers count from 0, in tables too, but where one table is for all of the batch.
void AttentionCheck::check_batch_tables(const Division& division) {
  for (const FlexTablePair& pair : kFlexTables)
    for (const std::size_t field : {pair.counts, pair.indices}) {
      const Arg whole = division.before.mask[field];
      const TensorType* type =
          whole.is_node() ? tensor_of(context_, a_.step().nodes[whole.as_node()].type) : nullptr;
      if (type == nullptr || type->rank() == 0 || context_.exprs.constant(type->sizes[0]) == 1) continue;
      if (!holds(Condition::kCutsTables, is_share(whole, division.after.mask[field])))
        problems_.push_back(fmt::format("block table {} of its mask is that of the whole batch", field));
    }
}

std::optional<NodeId> AttentionCheck::without_rows(NodeId table, Rows rows) {
  const auto args = call_args(table, "aten.slice.Tensor");
  if (args.size() != 4 || !args[0].is_node() || args[1] != Arg::integer(kQueryDim) ||
      args[2] != Arg::integer(rows.begin) || args[3] != Arg::integer(rows.end))
    return std::nullopt;
  return args[0].as_node();
}

// Undoes PartBlockTables::keep_columns, node by node.
std::optional<AttentionCheck::Tables> AttentionCheck::without_columns(Tables tables, Rows columns) {
  const Arg count = Arg::integer(columns.end - columns.begin);
  const TensorType* counts_type = tensor_of(context_, b_.step().nodes[tables.counts].type);
  if (counts_type == nullptr) return std::nullopt;
  auto first = [&](Arg arg, std::string_view target, std::vector<Arg> rest,
                   std::vector<Keyword> keywords = {}) -> Arg {
    if (!arg.is_node()) return Arg::none();
    const auto args = call_args(arg.as_node(), target, keywords);
    const bool fits =
        args.size() == rest.size() + 1 && std::equal(rest.begin(), rest.end(), args.begin() + 1);
    return fits ? args[0] : Arg::none();
  };
  const Arg kept = first(Arg::node(tables.indices), "aten.clamp_max.default",
                         {Arg::integer(columns.end - columns.begin - 1)});
  const Arg sorted = first(kept, "aten.slice.Tensor", {Arg::integer(3), Arg::integer(0), count});
  const Arg sort = first(sorted, "operator.getitem", {Arg::integer(0)});
  const Arg marked = first(sort, "aten.sort.stable", {}, {{"stable", Arg::boolean(true)}});
  const auto fill =
      marked.is_node() ? call_args(marked.as_node(), "aten.masked_fill.Scalar") : std::span<const Arg>();
  if (fill.size() != 3 || fill[2] != count || !fill[0].is_node()) return std::nullopt;
  const Arg is_kept_node = first(fill[1], "aten.bitwise_not.default", {});
  const Arg indices =
      columns.begin == 0 ? fill[0] : first(fill[0], "aten.sub.Tensor", {Arg::integer(columns.begin)});
  const Arg dtype = Arg::named(ArgKind::kDType, context_.strings.intern(info(counts_type->dtype).name));
  const std::vector<Keyword> summed_as = {{"dtype", dtype}};
  const auto sum = call_args(tables.counts, "aten.sum.dim_IntList", summed_as);
  const std::vector<Arg> along = sum.size() == 2 ? list_items(context_, sum[1]) : std::vector<Arg>();
  if (!is_kept_node.is_node() || !indices.is_node() || sum.size() != 2 || sum[0] != is_kept_node ||
      along != std::vector{Arg::integer(-1)})
    return std::nullopt;
  // Down to which entries of a row are listed: position < counts.
  Arg listed = is_kept_node;
  for (Arg within; (within = first(listed, "aten.bitwise_and.Tensor", {})).is_none() && listed.is_node();) {
    const auto both = call_args(listed.as_node(), "aten.bitwise_and.Tensor");
    if (both.size() != 2) break;
    listed = both[0];
  }
  const auto compared =
      listed.is_node() ? call_args(listed.as_node(), "aten.lt.Tensor") : std::span<const Arg>();
  if (compared.size() != 2) return std::nullopt;
  const Arg counts = first(compared[1], "aten.unsqueeze.default", {Arg::integer(-1)});
  if (!counts.is_node()) return std::nullopt;
  const Tables whole{counts.as_node(), indices.as_node()};
  return is_kept(is_kept_node.as_node(), whole, columns) ? std::optional(whole) : std::nullopt;
}

// position < counts, and begin <= indices < end where that leaves something out.
bool AttentionCheck::is_kept(NodeId node, const Tables& tables, Rows columns) {
  const TensorType* type = tensor_of(context_, b_.step().nodes[tables.indices].type);
  const auto width =
      type != nullptr && type->rank() == 4 ? context_.exprs.constant(type->sizes[3]) : std::nullopt;
  if (!width) return false;
  const Arg indices = Arg::node(tables.indices);
  auto strip = [&](std::string_view comparison, std::int64_t bound) {
    const auto both = call_args(node, "aten.bitwise_and.Tensor");
    if (both.size() != 2 || !both[0].is_node() || !both[1].is_node()) return false;
    const auto compared = call_args(both[1].as_node(), comparison);
    if (compared.size() != 2 || compared[0] != indices || compared[1] != Arg::integer(bound)) return false;
    node = both[0].as_node();
    return true;
  };
  if (columns.end < *width && !strip("aten.lt.Scalar", columns.end)) return false;
  if (columns.begin > 0 && !strip("aten.ge.Scalar", columns.begin)) return false;
  const auto listed = call_args(node, "aten.lt.Tensor");
  if (listed.size() != 2 || !listed[0].is_node()) return false;
  const std::vector<Keyword> made_on = {{"device", Arg::named(ArgKind::kDevice, type->device)}};
  const auto positions = call_args(listed[0].as_node(), "aten.arange.default", made_on);
  return positions.size() == 1 && positions[0] == Arg::integer(*width);
}

// ------------------------------------------------------------------------- functions

void AttentionCheck::restore_functions(const Division& division, Node& call, std::vector<Arg>& mask) {
  std::vector<Arg> args(context_.args[call.args].begin(), context_.args[call.args].end());
  bool drops_mask_row = false, drops_score_row = false;
  for (std::size_t i = 0; i < division.before.functions.size(); ++i) {
    const FlexFunction& original = division.before.functions[i];
    const FlexFunction& function = division.after.functions[i];
    const bool is_mask = original.kind == FlexFunctionKind::kMask;
    if (original.body->name == function.body->name) {
      const auto parameters = parameters_of(*original.body);
      bool counts_rows = false;
      for (const FlexIndex index : division.indices())
        counts_rows |=
            reads_parameter(context_, *original.body, parameters[flex_index_position(original.kind, index)]);
      if (counts_rows && division.rows.begin > 0 && division.dim == kQueryDim)
        refuse(Condition::kCountsFromItsRow,
               fmt::format("its {} function counts rows from 0, the part begins at row {}",
                           is_mask ? "mask" : "score", division.rows.begin));
      continue;
    }
    if (!is_rebased(original, function, division)) {
      refuse(Condition::kCountsFromItsRow,
             fmt::format("its function {} is not {} counted from row {}", context_.text(function.body->name),
                         context_.text(original.body->name), division.rows.begin));
      continue;
    }
    (is_mask ? drops_mask_row : drops_score_row) = true;
    // Of calls that are computed again, the original may be all that is left of the function.
    NodeId restored = claims_.whole(original.source);
    if (!restored) restored = claims_.whole(claims_.find_class(original.source));
    if (!restored) continue;
    if (is_mask) {
      mask.back() = Arg::node(restored);
    } else if (function.param < args.size()) {
      args[function.param] = Arg::node(restored);
    }
  }
  auto drop_row = [&](std::size_t param) {
    if (param >= args.size()) return;
    std::vector<Arg> captured = list_items(context_, args[param]);
    if (captured.empty() || !is_number(captured.back(), division.rows.begin, b_.step())) {
      refuse(Condition::kCountsFromItsRow,
             fmt::format("its functions count from another row than its first one, {}", division.rows.begin));
      return;
    }
    captured.pop_back();
    args[param] = context_.args.add_tree(args[param].kind(), captured);
  };
  if (drops_mask_row) drop_row(division.after.mask_captured_param);
  if (drops_score_row) drop_row(division.after.score_captured_param);
  call.args = context_.args.add(args);
}

// Functions that count rows of the whole index all of what they captured. A batch number of the
// part's own is for lookups in the part's share alone.
void AttentionCheck::check_captured(NodeId origin, const Division& division, const Node& call) {
  for (std::size_t i = 0; i < division.before.functions.size(); ++i) {
    const FlexFunction& function = division.before.functions[i];
    const std::size_t param = function.kind == FlexFunctionKind::kMask ? division.after.mask_captured_param
                                                                       : division.after.score_captured_param;
    const std::vector<Arg> whole = list_items(context_, arg_of(context_, a_.step().nodes[origin], param));
    const std::vector<Arg> taken = list_items(context_, arg_of(context_, call, param));
    const bool has_own_batch =
        division.dim != kQueryDim && function.body->name == division.after.functions[i].body->name;
    const std::vector<NodeId> parameters = parameters_of(*function.body);
    const std::size_t first = flex_captured_position(function.kind);
    const NodeId batch = parameters[flex_index_position(function.kind, FlexIndex::kBatch)];
    std::vector<NodeId> lookups;
    for (std::size_t k = 0; k < whole.size() && k < taken.size(); ++k) {
      if (!is_share(whole[k], taken[k])) continue;
      const auto found = has_own_batch && first + k < parameters.size()
                             ? lookups_of(context_, *function.body, parameters[first + k], batch)
                             : std::nullopt;
      if (!found)
        refuse(Condition::kLooksUpInAll,
               fmt::format("its function {} indexes all of {}, and takes a part of it",
                           context_.text(function.body->name),
                           context_.text(a_.step().nodes[whole[k].as_node()].name)));
      if (found) lookups.insert(lookups.end(), found->begin(), found->end());
    }
    if (has_own_batch && division.rows.begin > 0 && reads_parameter(context_, *function.body, batch, lookups))
      refuse(Condition::kLooksUpInAll,
             fmt::format("its function {} counts from 0 along the batch, the part begins at {}",
                         context_.text(function.body->name), division.rows.begin));
  }
}

bool AttentionCheck::is_share(Arg whole, Arg taken) {
  if (!whole.is_node() || !taken.is_node()) return false;
  const TensorType* before = tensor_of(context_, a_.step().nodes[whole.as_node()].type);
  const TensorType* after = tensor_of(context_, b_.step().nodes[taken.as_node()].type);
  const auto is_same = [&](ExprId x, ExprId y) { return !is_cut(x, y); };
  return before != nullptr && after != nullptr && !std::ranges::equal(before->sizes, after->sizes, is_same);
}

// Whether an argument in a body of B is the number, or a scalar that is known to be.
bool AttentionCheck::is_number(Arg arg, std::int64_t number, const Body& body) {
  if (!arg.is_node()) return arg == Arg::integer(number);
  const TypeId id = body.nodes[arg.as_node()].type;
  if (!id) return false;
  const Type& type = context_.types[id];
  if (type.kind == TypeKind::kScalar) return facts_b_.hint(type.expr) == number;
  return type.kind == TypeKind::kValue && type.value == Arg::integer(number);
}

bool AttentionCheck::is_rebased(const FlexFunction& original, const FlexFunction& function,
                                const Division& division) {
  const Body &before = *original.body, &after = *function.body;
  const std::vector<NodeId> old_parameters = parameters_of(before), parameters = parameters_of(after);
  if (parameters.size() != old_parameters.size() + 1) return false;
  const NodeId row = parameters.back();
  SideTable<NodeId, NodeId> image, global;  // of A's nodes; of B's parameters
  for (std::size_t i = 0; i < old_parameters.size(); ++i) {
    if (!has_same_elements(context_, before.nodes[old_parameters[i]].type, after.nodes[parameters[i]].type))
      return false;
    image.at(old_parameters[i]) = parameters[i];
  }
  std::vector<NodeId> rest;
  for (NodeId id : after.order) {
    const Node& node = after.nodes[id];
    if (node.kind == NodeKind::kPlaceholder) continue;
    const auto args = context_.args[node.args];
    const bool is_sum =
        context_.text(node.target) == "aten.add.Tensor" && args.size() == 2 && args[0].is_node() &&
        (args[1] == Arg::node(row) || args[1] == Arg::integer(division.rows.begin)) &&
        std::find(parameters.begin(), parameters.end(), args[0].as_node()) != parameters.end();
    if (!is_sum) {
      rest.push_back(id);
      continue;
    }
    bool is_index = false;
    for (const FlexIndex index : division.indices())
      is_index |= args[0].as_node() == parameters[flex_index_position(original.kind, index)];
    if (!is_index || node.kwargs.count != 0) return false;
    global.at(args[0].as_node()) = id;
  }
  for (const FlexIndex index : division.indices()) {
    const std::size_t position = flex_index_position(original.kind, index);
    if (reads_parameter(context_, before, old_parameters[position]) && !global[parameters[position]])
      return false;
  }
  std::size_t next = 0;
  for (NodeId id : before.order) {
    const Node& x = before.nodes[id];
    if (x.kind == NodeKind::kPlaceholder) continue;
    if (next == rest.size()) return false;
    const Node& y = after.nodes[rest[next]];
    if (x.kind != y.kind || (x.kind == NodeKind::kCall && x.target != y.target) ||
        !context_.args.equal(x.attr, y.attr) || !has_same_elements(context_, x.type, y.type))
      return false;
    auto moved = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId to = image[arg.as_node()];
      return Arg::node(to && global[to] ? global[to] : to);
    };
    ArgRange args = context_.args.map(x.args, moved);
    if (x.kind == NodeKind::kOutput && original.kind == FlexFunctionKind::kJoint) {
      const Arg gradients = context_.args[args][0];
      std::vector<Arg> items = list_items(context_, gradients);
      items.push_back(Arg::none());
      args = context_.args.add(std::vector{context_.args.add_tree(gradients.kind(), items)});
    }
    if (!context_.args.equal(args, y.args) ||
        !context_.args.equal(context_.args.map(x.kwargs, moved), y.kwargs))
      return false;
    image.at(id) = rest[next++];
  }
  return next == rest.size();
}

}  // namespace epweave
