#include "compare/rewrite/part_facts.h"

#include <algorithm>
#include <cmath>

#include "analysis/collectives.h"
#include "analysis/random_draws.h"
#include "analysis/whole_numbers.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/collective_arguments.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

constexpr std::int64_t kSumOfLosses = 2;  // a loss's `reduction`

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_summand(PartFact fact) {
  return fact == PartFact::kShare || fact == PartFact::kZero;
}

// The same in all parts.
bool is_common(PartFact fact) {
  return fact == PartFact::kSame || fact == PartFact::kZero;
}

bool makes_zeros(const Context& context, const Node& node) {
  if (node.op->makes_zeros) return true;
  return is_zero_number(named_arg(context, node, "fill_value"));
}

bool pads_zeros(const Context& context, const Node& node) {
  const Arg value = named_arg(context, node, "value");
  return value.is_none() || is_zero_number(value);
}

// Whether each number that a call takes in the place of an operand's elements is 0.
bool fills_zeros(const Context& context, const Node& node) {
  for (std::size_t i = 0; i < node.op->params.size(); ++i)
    if (node.op->params[i].type == "Scalar" && !is_zero_number(arg_of(context, node, i))) return false;
  return true;
}

bool gives_gradients(const OpInfo& op) {
  return std::ranges::any_of(op.params, [](const OpParam& p) { return p.name.starts_with("grad_out"); });
}

bool reads_no_element(const OpInfo& op) {
  return op.reads_types_only || makes_rows_alike(op.family);
}

// As many rows as sizes say, all alike or of one row. Any other call that takes rows of what it has
// all of takes those of one place, which are not those of each part.
bool makes_rows_by_sizes(const OpInfo& op) {
  return reads_no_element(op) || op.family == OpFamily::kExpand;
}

}  // namespace

bool PartFacts::Operand::is_rows() const {
  return is_tensor && std::ranges::find(is_divided, true) != is_divided.end();
}

bool PartFacts::is_own(PartFact fact) const {
  return fact == PartFact::kOwn || fact == PartFact::kNumbers || fact == PartFact::kPlaces ||
         fact == PartFact::kStatistics || (fact == PartFact::kEntries && !may_take_own_sums());
}

PartFacts::PartFacts(const RewriteClaims& claims, Numbers& numbers, const Effects& effects_a,
                     const RowBlocks& blocks)
    : claims_(claims),
      numbers_(numbers),
      effects_(effects_a),
      blocks_(blocks),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      b_(claims.graph_b().step()),
      facts_(a_.nodes.size()),
      facts_a_(claims.facts_a()) {
  const Graph &a = claims.graph_a(), &b = claims.graph_b();
  for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i)
    has_own_sums_ |= b.passes[i].options.find("contract=own-sums") != std::string::npos;
}

void PartFacts::add(NodeId origin, NodeId part, std::span<const PartOperand> operands) {
  const Node& node = a_.nodes[origin];
  Entry& entry = facts_[origin];
  op_ = node.op;
  node_ = &node;
  operands_.clear();
  numbered_ = 0;
  if (op_ == nullptr) return write_beside(origin, PartFact::kOwn);
  bool writes_shared = false, writes_part = false;
  for (const PartOperand& taken : operands) {
    operands_.push_back(describe(taken));
    if (!taken.is_written || is_wait(node)) continue;
    const bool is_shared = taken.how != PartOperand::How::kPart;
    (is_shared ? writes_shared : writes_part) = true;
    if (is_shared) operands_.back().fact = PartFact::kZero;  // each adds to what is there
  }
  const TypeId type = node.type;
  const TypeKind kind = type ? context_.types[type].kind : TypeKind::kValue;
  if (op_->family == OpFamily::kElement) {
    entry.full = entry.rows = find_element(origin, part);
  } else if (kind == TypeKind::kTensor) {
    entry.full = entry.rows = find_tensor(origin, part);
  } else if (kind == TypeKind::kScalar || kind == TypeKind::kValue) {
    entry.full = entry.rows = find_number(origin, part);
  } else {
    entry.full = find_full(origin);
    entry.rows = find_rows(origin, part);
    entry.numbers_rows = op_->family == OpFamily::kSort && sorts_rows();
  }
  entry.numbered = numbered_;
  if (writes_shared) {
    entry.spoils_shared = !(accumulates(context_, node) && is_summand(entry.full));
    entry.full = entry.rows = PartFact::kOwn;
  }
  // What is no rows of it is memory that each part has all of: each writes there what one should.
  if (writes_part && claims_.whole(effects_.storage_of(origin)) && entry.full != PartFact::kRows)
    entry.spoils_whole = true;
  if (writes_part) write_through(effects_.storage_of(origin), entry.full);
  write_beside(origin, is_common(entry.full) ? PartFact::kSame : PartFact::kOwn);
  if (kind == TypeKind::kTensor) views_.at(effects_.storage_of(origin)).push_back(origin);
}

// What was written in place is in all views of the storage that was written. Numbers of other rows
// are not those that a view had.
void PartFacts::write_through(NodeId storage, PartFact fact) {
  const std::vector<NodeId>* views = views_.find(storage);
  if (views == nullptr) return;
  for (NodeId view : *views) {
    PartFact& known = facts_[view].full;
    if (holds(Condition::kWritesReachViews, false)) continue;
    if (known == PartFact::kZero) known = fact;
    const bool numbers_others = numbered_rows_[facts_[view].numbered] != numbered_rows_[numbered_];
    if (known != fact || numbers_others) known = PartFact::kOwn;
    facts_[view].rows = known;
  }
}

// What a call writes beside its result: tensors of a list, operands of an op that is not known.
void PartFacts::write_beside(NodeId origin, PartFact fact) {
  if (is_wait(*node_)) return;
  for (const StorageAccess& access : effects_.accesses_of(origin))
    if (access.writes && (op_ == nullptr || access.storage != effects_.storage_of(origin)))
      write_through(access.storage, fact);
}

std::vector<bool> PartFacts::divided_dimensions(NodeId origin, NodeId part) const {
  const TensorType *whole = claims_.tensor_a(origin), *piece = claims_.tensor_b(part);
  if (whole == nullptr || piece == nullptr || whole->rank() != piece->rank()) return {};
  std::vector<bool> is_divided(whole->rank());
  for (std::size_t i = 0; i < whole->rank(); ++i)
    is_divided[i] = numbers_.match(whole->sizes[i], piece->sizes[i], {}) != Fraction::kAll;
  return is_divided;
}

bool PartFacts::is_divided(NodeId origin, NodeId part) const {
  const std::vector<bool> dims = divided_dimensions(origin, part);
  return std::ranges::find(dims, true) != dims.end();
}

PartFacts::Operand PartFacts::describe(const PartOperand& taken) const {
  Operand operand{&taken, PartFact::kSame, false, {}};
  if (taken.how == PartOperand::How::kPrevious) operand.fact = PartFact::kOwn;
  if (!taken.value.is_node()) {
    if (taken.how == PartOperand::How::kPart) operand.fact = PartFact::kShare;  // of a number that is known
    if (taken.how == PartOperand::How::kWhole && taken.value == Arg::integer(0))
      operand.fact = PartFact::kZero;
    return operand;
  }
  const NodeId value = taken.value.as_node();
  operand.is_tensor = claims_.tensor_b(value) != nullptr;
  if (taken.how == PartOperand::How::kWhole && is_zero(value)) operand.fact = PartFact::kZero;
  if (taken.how != PartOperand::How::kPart) return operand;
  const Claim& claim = claims_[value];
  operand.is_divided = divided_dimensions(claim.origin, value);
  if (claim.kind == ClaimKind::kPart) {
    operand.fact = facts_[claim.origin].full;
    operand.numbered = facts_[claim.origin].numbered;
  } else {
    operand.fact = claim.kind == ClaimKind::kPiece ? PartFact::kRows : PartFact::kShare;
  }
  return operand;
}

// Whether a whole value is zeros that nothing ever writes to: a view would show what is written.
bool PartFacts::is_zero(NodeId value) const {
  const Claim& claim = claims_[value];
  if (claim.kind != ClaimKind::kWhole) return false;
  const Node& node = a_.nodes[claim.origin];
  if (node.op == nullptr || !reads_no_element(*node.op) || !makes_zeros(context_, node)) return false;
  return holds(Condition::kZerosUnwritten, !effects_.is_written(effects_.storage_of(claim.origin)));
}

// ------------------------------------------------------------------------- numbers

// Not even one: an extent of it is 0.
bool PartFacts::has_no_elements(NodeId origin) const {
  const TensorType* whole = claims_.tensor_a(origin);
  return whole != nullptr && std::ranges::any_of(whole->sizes, [&](ExprId extent) {
           return context_.exprs.constant(extent) == 0;
         });
}

// Whether what `number_of` says of each part, or none, adds up to the whole's number.
template <class NumberOf>
bool PartFacts::parts_add_up(NodeId origin, ExprId whole, const NumberOf& number_of) const {
  std::vector<ExprId> numbers;
  for (std::uint32_t k = 0; k < claims_.part_count(origin); ++k) {
    const NodeId part = claims_.part_of(origin, k);
    const ExprId number = part ? number_of(part) : ExprId();
    if (!number) return false;
    numbers.push_back(number);
  }
  return numbers_.is_sum(whole, numbers);
}

// Whether the numbers of the parts, as recorded, add up to the whole's.
bool PartFacts::adds_up(NodeId origin) const {
  const TypeId type = a_.nodes[origin].type;
  if (!type || context_.types[type].kind != TypeKind::kScalar) return false;
  return parts_add_up(origin, context_.types[type].expr, [this](NodeId part) {
    const Arg number = claims_.scalar_b(part);
    return number.is(ArgKind::kSymbolic) ? number.as_expr() : ExprId();
  });
}

// Whether the parts together are as large as the whole, along each dimension that is divided.
bool PartFacts::extents_add_up(NodeId origin, NodeId part) const {
  const std::vector<bool> is_divided = divided_dimensions(origin, part);
  for (std::size_t d = 0; d < is_divided.size(); ++d) {
    const auto extent_of = [&](NodeId of_part) {
      const TensorType* type = claims_.tensor_b(of_part);
      return type != nullptr && type->rank() == is_divided.size() ? type->sizes[d] : ExprId();
    };
    if (is_divided[d] && !parts_add_up(origin, claims_.tensor_a(origin)->sizes[d], extent_of)) return false;
  }
  return true;
}

// Whether the call's own rows say how many it gives, or sizes of rows do, or numbers that add up:
// together as many as the whole.
bool PartFacts::has_rows_of_rows() const {
  if (op_->family == OpFamily::kLike)
    return !operands_.empty() && operands_.front().is_rows() && counts_rows(operands_.front().fact);
  if (!reads_no_element(*op_) && std::ranges::any_of(operands_, &Operand::is_rows)) return true;
  bool is_sized = false;
  for (const Operand& operand : operands_) {
    if (operand.is_tensor || operand.taken->how != PartOperand::How::kPart) continue;
    if (!is_extent_of_rows(operand)) return false;
    is_sized = true;
  }
  return is_sized;
}

// Whether a part's number is a share of the whole's, or how many rows of the whole a part has.
bool PartFacts::is_extent_of_rows(const Operand& operand) const {
  const Arg value = operand.taken->value;
  if (!value.is_node()) return false;
  if (operand.fact == PartFact::kShare) return true;
  // Of what the part's call takes: the whole's may take a view of it that the parts do not have.
  const Node& size = b_.nodes[value.as_node()];
  const Arg of = arg_of(context_, size, 0);
  if (!has_family(size, OpFamily::kSize) || !of.is_node()) return false;
  const Claim& counted = claims_[of.as_node()];
  return counted.kind == ClaimKind::kPart && counts_rows(facts_[counted.origin].rows);
}

PartFact PartFacts::find_number(NodeId origin, NodeId part) {
  const TypeId type = a_.nodes[origin].type;
  const bool is_scalar = type && context_.types[type].kind == TypeKind::kScalar;
  if (op_->family != OpFamily::kSize) return find_linear(origin, false);
  if (is_scalar &&
      numbers_.match_scalar(context_.types[type].expr, claims_.scalar_b(part), {}) == Fraction::kAll)
    return PartFact::kSame;
  // As many as data say of rows that are the part's own have no other proof than their sum itself.
  const bool is_of_rows =
      !operands_.empty() && operands_.front().is_tensor && counts_rows(operands_.front().fact);
  // Offsets and strides of rows do not.
  return holds(Condition::kCountsRows, is_of_rows) && holds(Condition::kNumbersAddUp, adds_up(origin))
             ? PartFact::kShare
             : PartFact::kOwn;
}

// ------------------------------------------------------------------------- tensors

PartFact PartFacts::find_element(NodeId origin, NodeId part) {
  const Node& node = a_.nodes[origin];
  const auto element = tuple_element(context_, a_, node);
  const PartOperand* tuple = operands_.empty() ? nullptr : operands_.front().taken;
  if (!element || tuple == nullptr || !tuple->value.is_node()) return PartFact::kOwn;
  const Claim& claim = claims_[tuple->value.as_node()];
  if (tuple->how == PartOperand::How::kWhole) return PartFact::kSame;
  if (claim.kind != ClaimKind::kPart) return PartFact::kOwn;
  const Entry& entry = facts_[claim.origin];
  if (element->index == 1 && entry.numbers_rows) {
    const std::vector<bool> dims = divided_dimensions(origin, part);
    return number_rows(origin, static_cast<std::size_t>(std::ranges::find(dims, true) - dims.begin()));
  }
  // Places along another dimension, by numbers of the part's own.
  const OpInfo* maker = a_.nodes[claim.origin].op;
  if (element->index == 1 && maker != nullptr && maker->family == OpFamily::kSort && is_own(entry.rows))
    return PartFact::kOwn;
  if (is_padded_statistic(origin, claim.origin)) {
    facts_[origin].statistics = origin;
    return PartFact::kStatistics;
  }
  numbered_ = entry.numbered;
  if (claims_.tensor_a(origin) != nullptr && is_divided(origin, part)) return entry.rows;
  return has_no_elements(origin) ? PartFact::kSame : entry.full;
}

// Of what is divided along two dimensions, pairs of rows of two parts are in none.
PartFact PartFacts::find_tensor(NodeId origin, NodeId part) {
  const bool is_same_statistic = op_->family == OpFamily::kIdentity && !operands_.empty() &&
                                 operands_.front().fact == PartFact::kStatistics;
  if (is_same_statistic) {
    facts_[origin].statistics = facts_[claims_[operands_.front().taken->value.as_node()].origin].statistics;
    return PartFact::kStatistics;
  }
  const auto divided = std::ranges::count(divided_dimensions(origin, part), true);
  // Rows to which each part adds a number of its own are not those of the whole.
  const auto adds_own = [&](const Operand& operand) { return is_added_number(operand); };
  if (std::ranges::any_of(operands_, adds_own))
    return divided == 0 && std::ranges::none_of(operands_, &Operand::is_rows) ? find_linear(origin, true)
                                                                              : PartFact::kOwn;
  if (divided == 0) return has_no_elements(origin) ? PartFact::kSame : find_full(origin);
  const PartFact fact = find_rows(origin, part);
  return holds(Condition::kDividesOneDimension, divided == 1) ? fact : PartFact::kOwn;
}

// As large as the whole.
PartFact PartFacts::find_full(NodeId origin) const {
  const Node& node = a_.nodes[origin];
  if (reads_no_element(*op_)) return makes_zeros(context_, node) ? PartFact::kZero : PartFact::kSame;
  if (draws_random(claims_.graph_a(), node)) return PartFact::kOwn;
  const auto is_row = [](const Operand& operand) { return operand.is_tensor && operand.is_rows(); };
  if (std::ranges::none_of(operands_, is_row)) return find_linear(origin, true);
  if (attends_rows()) return PartFact::kSame;  // the state of the random generator
  if (!holds(Condition::kReducesBySum, adds_rows(node)) || !has_statistics_of_rows(origin))
    return PartFact::kOwn;
  for (const Operand& operand : operands_) {
    if (!operand.is_tensor || is_statistic(operand)) continue;
    const bool is_destination = operand.taken->param == 0 && op_->linearity == Linearity::kSum;
    const bool is_offset = is_offset_param(operand.taken->param);
    const bool fits = is_destination || is_added(operand) ? is_summand(operand.fact)
                      : operand.is_rows()                 ? operand.fact == PartFact::kRows
                      : is_offset ? holds(Condition::kGroupsCountRows, operand.fact == PartFact::kShare)
                                  : is_common(operand.fact);
    if (!fits) return PartFact::kOwn;
  }
  return PartFact::kShare;
}

// Attention, of queries in parts.
bool PartFacts::attends_rows() const {
  if (op_->cost != CostClass::kAttention || gives_gradients(*op_)) return false;
  return std::ranges::any_of(operands_, [&](const Operand& operand) {
    return name_of_param(operand.taken->param) == "query" && operand.is_rows();
  });
}

// What a part's call (of B) takes by this name; empty: no tensor.
NodeId PartFacts::taken_by(NodeId call, std::string_view name) const {
  const Node& node = b_.nodes[call];
  const auto position = node.op != nullptr ? node.op->find_param(name) : std::nullopt;
  const Arg taken = position ? arg_of(context_, node, *position) : Arg::none();
  return taken.is_node() && claims_.tensor_b(taken.as_node()) != nullptr ? taken.as_node() : NodeId();
}

// Whose statistics a part's `statistics` are, an element of what its attention gives.
NodeId PartFacts::queries_of(NodeId statistics) const {
  const Arg given = arg_of(context_, b_.nodes[statistics], 0);
  return given.is_node() ? taken_by(given.as_node(), "query") : NodeId();
}

// Whether `value` of B, and what it is of A, have each extent in which `queries` are cut.
bool PartFacts::has_cut_of(NodeId value, NodeId queries) const {
  const NodeId origin = claims_[queries].origin, origin_of_value = claims_[value].origin;
  if (!origin || !origin_of_value) return false;
  const std::vector<bool> is_divided = divided_dimensions(origin, queries);
  const TensorType *whole = claims_.tensor_a(origin_of_value), *piece = claims_.tensor_b(value),
                   *all_queries = claims_.tensor_a(origin), *own_queries = claims_.tensor_b(queries);
  if (whole == nullptr || piece == nullptr || whole->rank() != piece->rank()) return false;
  for (std::size_t d = 0; d < is_divided.size(); ++d) {
    bool is_found = !is_divided[d];
    for (std::size_t i = 0; i < whole->rank() && !is_found; ++i)
      is_found = facts_a_.equal(whole->sizes[i], all_queries->sizes[d]) &&
                 numbers_.is_same(piece->sizes[i], own_queries->sizes[d]);
    if (!is_found) return false;
  }
  return true;
}

// Whether two queries of B are cut along the same dimensions, of the same extents.
bool PartFacts::are_cut_alike(NodeId queries, NodeId others) const {
  const NodeId origin = claims_[queries].origin, origin_of_others = claims_[others].origin;
  if (!origin || !origin_of_others) return false;
  const std::vector<bool> is_divided = divided_dimensions(origin, queries);
  if (is_divided != divided_dimensions(origin_of_others, others)) return false;
  for (std::size_t d = 0; d < is_divided.size(); ++d) {
    const auto extent_in_a = [&](NodeId of) { return claims_.tensor_a(of)->sizes[d]; };
    const auto extent_in_b = [&](NodeId of) { return claims_.tensor_b(of)->sizes[d]; };
    if (is_divided[d] && !(facts_a_.equal(extent_in_a(origin), extent_in_a(origin_of_others)) &&
                           numbers_.is_same(extent_in_b(queries), extent_in_b(others))))
      return false;
  }
  return true;
}

// One of a part's attention (a call of A) that a kernel pads, in one part at least: as many rows as
// its queries have begin with theirs, and what lies behind them lies elsewhere in the whole's. What
// attention gives beside floating-point numbers is of no row.
bool PartFacts::is_padded_statistic(NodeId origin, NodeId attention) const {
  const OpInfo* op = a_.nodes[attention].op;
  if (op == nullptr || op->cost != CostClass::kAttention || gives_gradients(*op)) return false;
  const TensorType* type = claims_.tensor_a(origin);
  if (type == nullptr || !is_floating(type->dtype) || !op->find_param("query") || has_no_elements(origin))
    return false;
  bool is_cut = true;
  for (std::uint32_t k = 0; k < claims_.part_count(origin) && is_cut; ++k) {
    const NodeId part = claims_.part_of(origin, k), queries = part ? queries_of(part) : NodeId();
    is_cut = queries && has_cut_of(part, queries);
  }
  return !holds(Condition::kStatisticsOfRows, is_cut);
}

// That the gradient of attention takes.
bool PartFacts::is_statistic(const Operand& operand) const {
  return name_of_param(operand.taken->param) == "logsumexp" && gives_gradients(*op_) &&
         operand.fact == PartFact::kStatistics;
}

// Each part's gradient of attention takes the statistics of its own queries: what attention gave of
// queries that are cut as they are, or as many rows of such as there are queries.
bool PartFacts::has_statistics_of_rows(NodeId origin) const {
  if (op_->cost != CostClass::kAttention || !gives_gradients(*op_)) return true;
  bool is_cut = true;
  for (std::uint32_t k = 0; k < claims_.part_count(origin) && is_cut; ++k) {
    const NodeId call = claims_.part_of(origin, k);
    const NodeId queries = call ? taken_by(call, "query") : NodeId();
    const NodeId statistics = call ? taken_by(call, "logsumexp") : NodeId();
    if (!queries || !statistics) continue;
    const Claim& claim = claims_[statistics];
    const bool is_part = claim.kind == ClaimKind::kPart;
    const NodeId given = is_part ? facts_[claim.origin].statistics : NodeId();
    if (!given) {
      is_cut = has_cut_of(statistics, queries);
      continue;
    }
    const NodeId part = claims_.part_of(given, k), others = part ? queries_of(part) : NodeId();
    is_cut = others && are_cut_alike(queries, others);
  }
  return holds(Condition::kStatisticsOfRows, is_cut);
}

// Whether a tensor of which parts are such has as many rows as its parts together.
bool PartFacts::counts_rows(PartFact fact) const {
  return fact != PartFact::kOwn && fact != PartFact::kStatistics;
}

// Whether results that are as large as the whole are sums over the rows that are divided.
bool PartFacts::adds_rows(const Node& node) const {
  const TensorType* result = tensor_of(context_, node.type);
  if (result != nullptr && result->dtype == DType::kBool) return false;  // whether any is not zero
  switch (traits_of(op_->family).sums) {
    case Sums::kNever:
      return false;
    case Sums::kAlways:
      return true;
    case Sums::kByArguments:
      break;
  }
  const Arg reduction = named_arg(context_, node, "reduction");
  if (op_->find_param("reduction")) return reduction.is_int() && reduction.as_int() == kSumOfLosses;
  if (op_->find_param("accumulate")) return named_arg(context_, node, "accumulate") == Arg::boolean(true);
  if (op_->find_param("scale_grad_by_freq"))
    return named_arg(context_, node, "scale_grad_by_freq") != Arg::boolean(true);
  return gives_gradients(*op_);  // of what all rows share
}

// Of operands that are as large as the whole's, or of numbers.
PartFact PartFacts::find_linear(NodeId origin, bool is_tensor) const {
  std::size_t shares = 0, zeros = 0, factor_shares = 0, factor_zeros = 0;
  bool all_summands = true, first_is_share = false, first_is_zero = false, position_is_share = false,
       adds_same = false;
  for (const Operand& operand : operands_) {
    const bool is_number = is_added_number(operand);
    if (is_tensor && !operand.is_tensor && !is_number) continue;
    const PartFact fact = is_number ? fact_of_added(operand) : operand.fact;
    if (is_own(fact) || fact == PartFact::kRows) return PartFact::kOwn;
    const bool is_share = fact == PartFact::kShare;
    const bool is_zero = fact == PartFact::kZero;
    adds_same |= is_added(operand) && !is_summand(fact);
    if (is_position(operand.taken->param)) {
      position_is_share |= is_share;
      continue;
    }
    shares += is_share;
    zeros += is_zero;
    factor_shares += is_share && !is_added(operand);
    factor_zeros += is_zero && !is_added(operand);
    all_summands &= is_summand(fact);
    if (operand.taken->param == 0) {
      first_is_share |= is_share;
      first_is_zero |= is_zero;
    }
  }
  if (position_is_share) return PartFact::kOwn;
  const bool is_reduction = op_->family == OpFamily::kAllReduce || op_->family == OpFamily::kReduceScatter;
  Linearity linearity = is_reduction && holds(Condition::kReducesRanksBySum, reduces_by_sum(a_.nodes[origin]))
                            ? Linearity::kSum
                            : op_->linearity;
  if (op_->family == OpFamily::kPad)
    linearity = holds(Condition::kPadsZeros, pads_zeros(context_, a_.nodes[origin])) ? Linearity::kFirst
                                                                                     : Linearity::kNone;
  if (selects_elements())
    linearity = holds(Condition::kPadsZeros, fills_zeros(context_, a_.nodes[origin])) ? Linearity::kSum
                                                                                      : Linearity::kNone;
  if (!holds(Condition::kConvertsSums, converts_shares(origin))) linearity = Linearity::kNone;
  if (shares > 0 && !holds(Condition::kScalesByFinite, scales_by_finite(a_.nodes[origin])))
    linearity = Linearity::kNone;
  switch (linearity) {
    case Linearity::kNone:
      if (shares > 0 && holds(Condition::kLinear, false)) return PartFact::kShare;
      return shares == 0 ? PartFact::kSame : PartFact::kOwn;
    case Linearity::kFirst:
      if (shares == 0) return first_is_zero ? PartFact::kZero : PartFact::kSame;
      return shares == 1 && holds(Condition::kFirstIsShare, first_is_share) ? PartFact::kShare
                                                                            : PartFact::kOwn;
    case Linearity::kEach:
      // What is added to a product is no factor: a share, or zeros, there are none of the product.
      if (shares == 0) return factor_zeros > 0 && !adds_same ? PartFact::kZero : PartFact::kSame;
      return holds(Condition::kOneIsShare, factor_shares == 1 && !adds_same) ? PartFact::kShare
                                                                             : PartFact::kOwn;
    case Linearity::kSum:
      if (shares == 0 && !(all_summands && zeros > 0)) return PartFact::kSame;
      if (!holds(Condition::kAllAreSummands, all_summands)) return PartFact::kOwn;
      if (!holds(Condition::kAddsNoNumber, !adds_number(a_.nodes[origin]))) return PartFact::kOwn;
      return shares == 0 ? PartFact::kZero : PartFact::kShare;
  }
  return PartFact::kOwn;
}

// (a + b) / 0 may be infinite where a / 0 + b / 0 is no number.
bool PartFacts::scales_by_finite(const Node& node) const {
  for (std::size_t i = 0; i < op_->params.size(); ++i) {
    const Arg given = arg_of(context_, node, i);
    if (given.is(ArgKind::kReal) && !std::isfinite(given.as_real())) return false;
    if (is_zero_number(given) && op_->linearity == Linearity::kFirst && op_->params[i].name == "other")
      return false;
  }
  return true;
}

bool PartFacts::reduces_by_sum(const Node& node) const {
  const Arg how = named_arg(context_, node, "reduce_op");
  bool is_linear = how.is(ArgKind::kText);
  context_.args.for_each_node(arg_of(context_, node, 0), [&](NodeId reduced) {
    const TensorType* type = claims_.tensor_a(reduced);
    is_linear =
        is_linear && type != nullptr && is_linear_reduction(context_.text(how.as_name()), type->dtype);
  });
  return is_linear;
}

// Operands that are shares, to the dtype of the result. An integer that is read as a number has 64
// bits.
bool PartFacts::converts_shares(NodeId origin) const {
  const TensorType* result = claims_.tensor_a(origin);
  if (result == nullptr && op_->family != OpFamily::kHostRead) return true;
  return std::ranges::none_of(operands_, [&](const Operand& operand) {
    if (!operand.is_tensor || operand.fact != PartFact::kShare) return false;
    const TensorType* type = claims_.tensor_b(operand.taken->value.as_node());
    if (type == nullptr) return false;
    if (result == nullptr)
      return !converts_sums(type->dtype, is_floating(type->dtype) ? DType::kFloat64 : DType::kInt64);
    const NodeId whole = claims_[operand.taken->value.as_node()].origin;
    return !converts_sums(type->dtype, result->dtype) &&
           !(whole && converts_sum(claims_.graph_a(), effects_, whole, result->dtype));
  });
}

// add(x, 1), add(x, %n): a number, written or computed, of which each part adds all.
bool PartFacts::adds_number(const Node& node) const {
  const auto is_share = [&](std::size_t param) {
    return std::ranges::any_of(operands_, [&](const Operand& operand) {
      return operand.taken->param == param && is_added_number(operand) &&
             fact_of_added(operand) == PartFact::kShare;
    });
  };
  for (std::size_t i = 0; i < op_->params.size(); ++i) {
    const Arg given = arg_of(context_, node, i);
    const bool is_tensor = given.is_node() && claims_.tensor_a(given.as_node()) != nullptr;
    const bool is_summand = op_->params[i].type == "Tensor" || adds_param(*op_, i);
    if (is_summand && !given.is_none() && !is_tensor && !is_share(i)) return true;
  }
  return false;
}

// One of a part's own, beside a tensor.
bool PartFacts::is_added_number(const Operand& operand) const {
  return !operand.is_tensor && operand.taken->how == PartOperand::How::kPart &&
         adds_param(*op_, operand.taken->param);
}

// How many rows each part has of the whole's adds up, though data say how many.
PartFact PartFacts::fact_of_added(const Operand& number) const {
  const bool is_extent = number.fact == PartFact::kOwn && is_extent_of_rows(number);
  return is_extent ? PartFact::kShare : number.fact;
}

std::string_view PartFacts::name_of_param(std::size_t param) const {
  return param < op_->params.size() ? op_->params[param].name : std::string_view();
}

// Where each group of rows ends.
bool PartFacts::is_offset_param(std::size_t param) const {
  return name_of_param(param) == "offs";
}

// Added to a product: once in the whole, once in each part. No gradient has the bias in it.
bool PartFacts::is_added(const Operand& operand) const {
  return (op_->family == OpFamily::kAddMatmul && operand.taken->param == 0) ||
         (name_of_param(operand.taken->param) == "bias" && !gives_gradients(*op_));
}

bool PartFacts::may_take_own_sums() const {
  rests_on_own_sums_ |= has_own_sums_;
  return has_own_sums_;
}

// It says which elements, and is none of them.
bool PartFacts::is_position(std::size_t param) const {
  return is_one_of(name_of_param(param), {"index", "indices", "mask", "condition", "offs", "repeats"});
}

// Each element is one operand's, as a position says: where, masked_fill.
bool PartFacts::selects_elements() const {
  if (op_->family != OpFamily::kElementwise || op_->linearity != Linearity::kNone) return false;
  for (std::size_t i = 0; i < op_->params.size(); ++i)
    if (is_position(i)) return true;
  return false;
}

// A part of the whole.
PartFact PartFacts::find_rows(NodeId origin, NodeId part) {
  const Node& node = a_.nodes[origin];
  if (const auto numbers = find_numbers(origin, part)) return *numbers;
  // Each row's place in a list of how often each comes: one of all parts' places (of experts), if
  // the list counts a part's own in each.
  if (op_->family == OpFamily::kRepeatRows) {
    const bool counts = !operands_.empty() && operands_.front().fact == PartFact::kShare;
    return holds(Condition::kRepeatsCounted, counts) ? PartFact::kRows : PartFact::kOwn;
  }
  const bool takes_rows = std::ranges::any_of(operands_, &Operand::is_rows);
  if (!makes_rows_by_sizes(*op_) && !holds(Condition::kLeavesOfRows, takes_rows)) return PartFact::kOwn;
  if (!holds(Condition::kExtentsAddUp, has_rows_of_rows() || extents_add_up(origin, part)))
    return PartFact::kOwn;
  if (reads_no_element(*op_)) return PartFact::kRows;
  if (!picks_own_rows() || !has_statistics_of_rows(origin)) return PartFact::kOwn;
  if (picks_entries()) return PartFact::kEntries;
  const Arg reduction = named_arg(context_, node, "reduction");
  for (const Operand& operand : operands_) {
    if (!operand.is_tensor || picked_dimension(operand) || is_statistic(operand)) continue;
    const bool is_unused = name_of_param(operand.taken->param) == "total_weight" && reduction.is_int() &&
                           reduction.as_int() == kSumOfLosses;
    // Groups of a part's rows end where its own counts say, which add up to the whole's.
    if (is_offset_param(operand.taken->param) &&
        !holds(Condition::kGroupsCountRows, operand.fact == PartFact::kShare))
      return PartFact::kOwn;
    if (is_unused || is_offset_param(operand.taken->param)) continue;
    if (!holds(Condition::kRowsTakeNoNumbers, !is_own(operand.fact))) return PartFact::kOwn;
    const bool is_sum = operand.fact == PartFact::kShare && !may_take_own_sums();
    if (!holds(Condition::kRowsTakeNoShare, !is_sum)) return PartFact::kOwn;
  }
  return PartFact::kRows;
}

// Along the dimension that is divided.
bool PartFacts::sorts_rows() const {
  if (operands_.empty()) return false;
  const std::vector<bool>& is_divided = operands_.front().is_divided;
  const int dim = sorted_dimension(context_, *node_, is_divided.size());
  return dim >= 0 && static_cast<std::size_t>(dim) < is_divided.size() &&
         is_divided[static_cast<std::size_t>(dim)];
}

}  // namespace epweave
