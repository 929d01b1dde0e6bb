#include "compare/rewrite/verify_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/host_copy.h"
#include "analysis/random_draws.h"
#include "analysis/rank_view.h"
#include "compare/rewrite/conditions.h"
#include "compare/rewrite/verify_interface.h"
#include "ops/bind.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sliced_run.h"
#include "ops/type_rules.h"

namespace epweave {

CallCheck::CallCheck(RewriteClaims& claims, Numbers& numbers)
    : claims_(claims),
      numbers_(numbers),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      a_(graph_a_.step()),
      b_(graph_b_.step()),
      facts_a_(claims.facts_a()),
      extents_a_(context_, a_, [this](PolyId poly) { return facts_a_.normalize(poly); }),
      extents_b_(context_, b_, [this](PolyId poly) { return numbers_.normalize(poly); }),
      attention_(claims),
      causal_mask_(graph_a_, graph_b_, numbers) {}

void CallCheck::check_added(NodeId id) {
  const Node& node = b_.nodes[id];
  const ClaimKind kind = claims_[id].kind;
  if (kind == ClaimKind::kWhole || kind == ClaimKind::kPart) return;
  if (node.kind == NodeKind::kOutput)
    return claims_.fail(id, "rewrite-inputs", "is not the output of the first graph");
  if (node.kind != NodeKind::kCall) return;
  std::string_view effect;
  if (node.op == nullptr) {
    effect = "has effects that are not known";
  } else if (is_launch(node) || is_wait(node)) {
    effect = "communicates";
  } else if (node.op->writes) {
    effect = "writes storage";
  } else if (draws_random(graph_b_, node)) {
    effect = "draws random numbers";
  } else if (node.op->is_effectful) {
    effect = "has an effect";
  }
  if (!effect.empty())
    claims_.fail(id, "rewrite-added",
                 fmt::format("{} and is neither a node of the first graph nor a part of one", effect));
}

void CallCheck::check_call(NodeId id) {
  const Node& after = b_.nodes[id];
  const Node& before = a_.nodes[claims_[id].origin];
  const bool is_same = before.kind == after.kind &&
                       (before.kind == NodeKind::kPlaceholder || before.kind == NodeKind::kOutput ||
                        before.target == after.target || (is_reshape(before) && is_reshape(after)));
  if (!holds(Condition::kSameTarget, is_same))
    return claims_.fail(
        id, "rewrite-target",
        fmt::format("its origin {} is {}", claims_.name_a(claims_[id].origin), graph_a_.text(before.target)));
  if (before.kind == NodeKind::kGetAttr && !context_.args.equal(before.attr, after.attr))
    return claims_.fail(id, "rewrite-argument", "reads another attribute");
  leaf_ = 0;
  if (claims_[id].kind == ClaimKind::kPart && before.op != nullptr &&
      before.op->cost == CostClass::kAttention)
    return check_attention(id);
  check_positional(id, before, after);
  check_keywords(id, before, after);
}

// What its part of a mask is, then the rest.
void CallCheck::check_attention(NodeId id) {
  const Claim& claim = claims_[id];
  std::vector<NodeId> parts;
  for (std::uint32_t k = 0; k < claim.parts; ++k) parts.push_back(claims_.part_of(claim.origin, k));
  if (std::ranges::any_of(parts, [](NodeId part) { return !part; })) return;  // check_parts says so
  AttentionCheck::Restored whole = attention_.restore(claim.origin, parts, claim.part);
  if (std::string problem = causal_mask_.restore(claim.origin, parts, claim.part, whole.call);
      !problem.empty())
    whole.problems.push_back(std::move(problem));
  for (const std::string& problem : whole.problems) claims_.fail(id, "rewrite-attention", problem);
  check_positional(id, a_.nodes[claim.origin], whole.call);
  check_keywords(id, a_.nodes[claim.origin], whole.call);
}

std::vector<std::string> CallCheck::assumptions() const {
  std::vector<std::string> list = attention_.assumptions();
  if (causal_mask_.rests_on_own_keys()) list.emplace_back(kOwnKeys);
  return list;
}

void CallCheck::check_positional(NodeId id, const Node& before, const Node& after) {
  before_ = &before;
  after_ = &after;
  if (before.args.count != after.args.count)
    return claims_.fail(id, "rewrite-argument",
                        fmt::format("{} arguments, its origin has {}", after.args.count, before.args.count));
  const std::size_t group = is_launch(after) ? group_position(*after.op) : SIZE_MAX;
  for (std::uint32_t i = 0; i < before.args.count; ++i) {
    const Arg x = context_.args[before.args][i], y = context_.args[after.args][i];
    param_ = after.op != nullptr && i < after.op->params.size() ? &after.op->params[i] : nullptr;
    item_ = {};
    i == group ? check_group(id, x, y) : check_arg(id, {.number = i}, x, y);
  }
}

void CallCheck::check_keywords(NodeId id, const Node& before, const Node& after) {
  // To the host only: check_host_reads finds what reads such a copy too early. Of a copy from the
  // host nothing would find what writes its source too early.
  const bool is_to_host = is_copy(after) && is_on_host(context_, after);
  auto is_free = [&](std::string_view name) { return name == "non_blocking" && is_to_host; };
  const std::vector<Arg> kwargs_a = list_kwargs(before), kwargs_b = list_kwargs(after);
  for (std::size_t i = 0; i + 1 < kwargs_a.size(); i += 2) {
    const std::string_view name = context_.text(kwargs_a[i].as_name());
    const Arg* other = find_kwarg(context_, after, name);
    if (is_free(name)) continue;
    const auto position = after.op != nullptr ? after.op->find_param(name) : std::nullopt;
    param_ = position ? &after.op->params[*position] : nullptr;
    item_ = {};
    if (other == nullptr) {
      if (holds(Condition::kSameKeywords, false)) continue;
      claims_.fail(id, "rewrite-argument", fmt::format("argument '{}' is gone", name));
    } else if (name == "group_name") {
      check_group(id, kwargs_a[i + 1], *other);
    } else {
      check_arg(id, {.name = name}, kwargs_a[i + 1], *other);
    }
  }
  for (std::size_t i = 0; i + 1 < kwargs_b.size(); i += 2)
    if (const std::string_view name = context_.text(kwargs_b[i].as_name());
        !is_free(name) && !holds(Condition::kSameKeywords, find_kwarg(context_, before, name) != nullptr))
      claims_.fail(id, "rewrite-argument", fmt::format("argument '{}' is new", name));
}

std::vector<Arg> CallCheck::list_kwargs(const Node& node) const {
  const auto kwargs = context_.args[node.kwargs];
  return {kwargs.begin(), kwargs.end()};
}

bool CallCheck::is_copy(const Node& node) const {
  static const OpInfo* const copy = find_op("aten._to_copy.default");
  return node.op == copy;
}

std::string CallCheck::Place::print() const {
  if (list != nullptr) return fmt::format("{}[{}]", list->print(), number);
  if (name.data() == kGroup.data()) return "the group";
  return name.empty() ? fmt::format("argument {}", number) : fmt::format("argument '{}'", name);
}

void CallCheck::check_arg(NodeId user, const Place& place, Arg x, Arg y) {
  if (x.is_tree() && y.is_tree()) {
    const ArgRange before = x.children(), after = y.children();
    if (x.kind() != y.kind() || before.count != after.count)
      return claims_.fail(user, "rewrite-argument",
                          fmt::format("{} is another list than its origin's", place.print()));
    const bool is_nested = item_.has_value();
    for (std::uint32_t i = 0; i < before.count; ++i) {
      if (!is_nested) item_ = i;
      check_arg(user, {.number = i, .list = &place}, context_.args[before][i], context_.args[after][i]);
    }
    if (!is_nested) item_ = {};
    return;
  }
  const std::uint32_t leaf = leaf_++;
  const Taken taken = x.is_node() ? y.is_node() ? match_value(user, x.as_node(), y.as_node())
                                                : match_number(user, x.as_node(), y)
                      : x == y ? Taken::kWhole
                                  : match_size(user, x, y);
  if (taken == Taken::kNo &&
      !holds(x.is_node() ? Condition::kSameOperands : Condition::kSameConstants, false))
    return fail_argument(user, place, x, y);
  if (taken == Taken::kPart && is_number(x) && !holds(Condition::kNumbersSayExtents, has_share(x, y)))
    return claims_.fail(user, "rewrite-argument",
                        fmt::format("{} is the part's share of a number that does not say how large a tensor "
                                    "is; each part must take all of it",
                                    place.print()));
  if (taken == Taken::kPart && !may_take_list(user, x))
    return claims_.fail(
        user, "rewrite-argument",
        fmt::format("{} is the part's own list as one value; nothing says what its elements are "
                    "of the whole's",
                    place.print()));
  if (claims_[user].kind == ClaimKind::kPart)
    taken_.push_back({y, claims_[user].origin, leaf, user,
                      param_ == nullptr ? kNoParam : static_cast<std::uint32_t>(position_of_param()),
                      static_cast<std::uint32_t>(item_.value_or(0)), taken,
                      param_ != nullptr && param_->is_written});
}

// Or may be one: where no type is recorded, and none follows.
bool CallCheck::is_number(Arg x) const {
  if (!x.is_node()) return true;
  const TypeId type = a_.nodes[x.as_node()].type;
  return !type || is_number_type(context_.types[type]);
}

// An element of it, which has facts of its own, or no list.
bool CallCheck::may_take_list(NodeId user, Arg x) const {
  const OpInfo* op = b_.nodes[user].op;
  const TypeId type = x.is_node() ? a_.nodes[x.as_node()].type : TypeId();
  const bool is_list =
      type && (context_.types[type].kind == TypeKind::kList || context_.types[type].kind == TypeKind::kTuple);
  return !is_list || op == nullptr || op->family == OpFamily::kElement;
}

// Half as many tokens are half as many rows, but not half of what each row is multiplied by; added
// to a share, they may be one. A scalar that is computed of a part's number says nothing yet.
bool CallCheck::has_share(Arg x, Arg y) {
  if (param_ == nullptr) return false;
  const TypeId result = before_->type;
  const bool is_scalar = result && is_number_type(context_.types[result]);
  if (is_scalar && x.is_node()) return param_->type == "SymInt";
  if (adds_param(*after_->op, position_of_param())) return true;  // PartFacts says what it makes
  const NumberPlace place{position_of_param(), item_};
  const ExprId whole = extents_a_.find(*before_, place), share = extents_b_.find(*after_, place);
  const ExprId given = number_of(context_, a_, x), taken = number_of(context_, b_, y);
  // The bounds of one of equal runs: `sliced_run` knows them by the extents.
  if (param_->name == "start" || param_->name == "end")
    if (const auto run = sliced_run(claims_.graph_a(), *before_, facts_a_);
        run && run == sliced_run(claims_.graph_b(), *after_, claims_.facts_b()))
      return true;
  return whole && share && given && taken && is_extent(given, whole) && numbers_.is_same(taken, share);
}

// By what A says, or B takes for granted, which is printed.
bool CallCheck::is_extent(ExprId number, ExprId extent) {
  return facts_a_.equal(number, extent) || claims_.facts_b().equal_as_assumed(number, extent);
}

std::size_t CallCheck::position_of_param() const {
  return static_cast<std::size_t>(param_ - after_->op->params.data());
}

// Of an argument that is a number; none where it is none, or not recorded.
void CallCheck::fail_argument(NodeId user, const Place& place, Arg x, Arg y) {
  if (!x.is_node())
    return claims_.fail(user, "rewrite-argument",
                        fmt::format("{} is another constant than its origin's", place.print()));
  const Claim& claim = claims_[user];
  claims_.fail(
      user, "rewrite-argument",
      fmt::format("{} is {}, which is not {}{}", place.print(),
                  y.is_node() ? claims_.describe(y.as_node()) : std::string("another constant"),
                  claim.kind == ClaimKind::kPart ? fmt::format("part {} or all of ", claim.part) : "",
                  claims_.name_a(x.as_node())));
}

CallCheck::Taken CallCheck::match_number(NodeId user, NodeId x, Arg y) {
  const TypeId type = a_.nodes[x].type;
  if (!type || context_.types[type].kind != TypeKind::kScalar) return Taken::kNo;
  return taken_as(numbers_.match_scalar(context_.types[type].expr, y, claims_.share_of(user)));
}

// A number or a symbolic scalar of A; in B another one, or a node that computes it.
CallCheck::Taken CallCheck::match_size(NodeId user, Arg x, Arg y) {
  const ExprId size = x.is(ArgKind::kSymbolic) || x.is_int() ? number_of(context_, a_, x) : ExprId();
  const bool is_size_node = y.is_node() && claims_[y.as_node()].kind == ClaimKind::kSize;
  if (!size || (y.is_node() && !is_size_node)) return Taken::kNo;
  const Arg taken = is_size_node ? claims_.scalar_b(y.as_node()) : y;
  const Fraction fraction = numbers_.match_scalar(size, taken, claims_.share_of(user));
  if (fraction != Fraction::kNone || !x.is_int() || param_ == nullptr) return taken_as(fraction);
  // A literal may be the number of all rows: then the part takes its share of that.
  const ExprId extent = extents_a_.find(*before_, {position_of_param(), item_});
  return extent && is_extent(size, extent)
             ? taken_as(numbers_.match_scalar(extent, taken, claims_.share_of(user)))
             : Taken::kNo;
}

// Whether the call's result is the argument that is being checked, written.
bool CallCheck::returns_what_it_writes() const {
  return param_ != nullptr && param_->is_written && !param_->alias_set.empty() && after_->op != nullptr &&
         after_->op->returns.size() == 1 && after_->op->returns.front().alias_set == param_->alias_set;
}

bool CallCheck::is_number_type(const Type& type) {
  const Arg value = type.value;
  return type.kind == TypeKind::kScalar ||
         (type.kind == TypeKind::kValue &&
          (value.is_int() || value.is(ArgKind::kReal) || value.is(ArgKind::kBool)));
}

CallCheck::Taken CallCheck::taken_as(Fraction fraction) {
  if (fraction == Fraction::kNone) return Taken::kNo;
  return fraction == Fraction::kAll ? Taken::kWhole : Taken::kPart;
}

CallCheck::Taken CallCheck::match_value(NodeId user, NodeId x, NodeId y) {
  const Claim& claim = claims_[y];
  const Claim& wants = claims_[user];
  const bool is_part = wants.kind == ClaimKind::kPart;
  if (claim.kind == ClaimKind::kSize) return match_number(user, x, claims_.scalar_b(y));
  // Part k of a buffer takes what part k-1 made of it.
  if (is_part && claim.kind == ClaimKind::kPart && claim.origin == wants.origin &&
      claim.part + 1 == wants.part && returns_what_it_writes())
    return Taken::kPrevious;
  if (!claims_.same_class(claim.origin, x)) return Taken::kNo;
  if (claims_.is_whole(y)) return Taken::kWhole;
  if (is_part && claims_.is_share_of(y, x, claims_.share_of(user))) return Taken::kPart;
  if (claim.kind != ClaimKind::kPart && claim.kind != ClaimKind::kPiece) return Taken::kNo;
  return !is_part && claims_.tensor_b(y) != nullptr && reads_kind_only(b_.nodes[user]) ? Taken::kWhole
                                                                                       : Taken::kNo;
}

// Of a tensor it reads dtype and device; what it reads of sizes shows in its own type. A check has
// none: it must not ask for sizes.
bool CallCheck::reads_kind_only(const Node& node) const {
  if (node.op == nullptr || !node.op->reads_types_only) return false;
  const auto is_asked = [&](std::string_view name) {
    const auto at = node.op->find_param(name);
    return at && !arg_of(context_, node, *at).is_none();
  };
  return !node.op->returns.empty() || !(is_asked("size") || is_asked("stride"));
}

// Parts 0 and 1 of one value may be cut along other dimensions, or in other blocks, and each be a
// part: rows of the one may then be rows of the other, too.
bool CallCheck::is_cut_alike(const Use& x, const Use& y, const PartFacts& facts,
                             const RowBlocks& blocks) const {
  if (x.taken != Taken::kPart || !x.value.is_node() || !y.value.is_node()) return true;
  const NodeId p = x.value.as_node(), q = y.value.as_node();
  return facts.divided_dimensions(claims_[p].origin, p) == facts.divided_dimensions(claims_[q].origin, q) &&
         blocks.are_cut_alike(p, q) == true;
}

void CallCheck::group_uses() {
  arguments_.assign(a_.nodes.size() + 1, 0);
  for (const Use& use : taken_) {
    std::uint32_t& count = arguments_[use.origin.index() + 1];
    count = std::max(count, use.leaf + 1);
  }
  for (std::size_t i = 1; i < arguments_.size(); ++i) arguments_[i] += arguments_[i - 1];
  const auto argument_of = [&](const Use& use) { return arguments_[use.origin.index()] + use.leaf; };
  begins_.assign(arguments_.back() + 1, 0);
  for (const Use& use : taken_) ++begins_[argument_of(use) + 1];
  for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  std::vector<std::uint32_t> ends(begins_.begin(), begins_.end() - 1);  // of what is placed
  std::vector<Use> grouped(taken_.size());
  for (const Use& use : taken_) grouped[ends[argument_of(use)]++] = use;
  taken_ = std::move(grouped);
}

void CallCheck::check_uniform(const PartFacts& facts, const RowBlocks& blocks) {
  for (std::uint32_t argument = 0; argument < arguments_.back(); ++argument) {
    const std::span<const Use> uses = uses_of(argument);
    if (uses.empty()) continue;
    const Taken first = uses.front().taken;
    bool is_chain = true, is_same = true;
    for (const Use& use : uses) {
      // The first part begins with all of what is written, each other one with what the one before
      // left.
      is_chain = is_chain && use.taken == (claims_[use.user].part == 0 ? Taken::kWhole : Taken::kPrevious);
      is_same = is_same && use.taken == first;
      const bool is_first = &use == &uses.front();
      if (is_same && !is_first &&
          !holds(Condition::kCutsAlike, is_cut_alike(use, uses.front(), facts, blocks)))
        claims_.fail(
            use.user, "rewrite-part",
            fmt::format("takes {}, which is cut otherwise than {}", claims_.describe(use.value.as_node()),
                        claims_.describe(uses.front().value.as_node())));
    }
    if (!holds(Condition::kTakesAlike, is_same || is_chain))
      claims_.fail(uses.front().user, "rewrite-part",
                   fmt::format("parts of {} do not take their argument in the same way",
                               claims_.name_a(uses.front().origin)));
  }
}

void CallCheck::visit_divided(const Visit& visit, const std::function<void(NodeId)>& behind) const {
  std::vector<PartOperand> operands;
  for (NodeId a : a_.order) {
    const std::uint32_t n = claims_.parts(a).empty() ? 0 : claims_.part_count(a);
    const NodeId part = n > 0 ? claims_.part_of(a, n - 1) : NodeId();
    operands.clear();
    for (std::uint32_t i = arguments_[a.index()]; part && i < arguments_[a.index() + 1]; ++i) {
      const std::span<const Use> uses = uses_of(i);
      if (uses.empty()) continue;
      const auto own = std::ranges::find(uses, part, &Use::user);
      const Use& use = own != uses.end() ? *own : uses.back();  // where the part's is refused
      const auto how = use.taken == Taken::kPart       ? PartOperand::How::kPart
                       : use.taken == Taken::kPrevious ? PartOperand::How::kPrevious
                                                       : PartOperand::How::kWhole;
      operands.push_back(
          {use.param == kNoParam ? SIZE_MAX : use.param, how, use.value, use.is_written, use.item});
    }
    if (part) visit(a, part, operands);
    behind(a);
  }
}

// Whether a join puts rows together, as they are or viewed otherwise (verify_joins.h); others add
// parts up.
static bool joins_rows(const Node& node) {
  if (node.op == nullptr) return false;
  const OpFamily family = node.op->family;
  return family == OpFamily::kJoin || family == OpFamily::kReshape || family == OpFamily::kPermute;
}

void CallCheck::check_summands(const PartFacts& facts) {
  for (NodeId id : b_.order) {
    if (claims_[id].kind != ClaimKind::kJoin || claims_.parts(claims_[id].origin).empty()) continue;
    const NodeId origin = claims_[id].origin;
    const PartFact fact = facts[origin];
    if (joins_rows(b_.nodes[id])) {
      if (!holds(Condition::kJoinsRows, facts.may_join(origin)))
        claims_.fail(
            id, "rewrite-join",
            fmt::format("joins {}, of which a part has not rows of the whole but {}", claims_.name_a(origin),
                        fact == PartFact::kStatistics
                            ? "statistics of its attention, padded to another number of rows"
                            : "what it made of its own sums or of numbers of its own rows"));
    } else if (holds(Condition::kAddsSummands, false)) {
      continue;
    } else if (fact == PartFact::kSame) {
      claims_.fail(
          id, "rewrite-join",
          fmt::format("adds up what each part has all of: {} depends on no part", claims_.name_a(origin)));
    } else if (fact != PartFact::kShare && fact != PartFact::kZero) {
      claims_.fail(
          id, "rewrite-join",
          fmt::format("adds up {}, of which the parts are not known to be summands: it is not made by sums "
                      "over rows and what is linear in them alone",
                      claims_.name_a(origin)));
    }
  }
}

// Also where one of them is no number or none is recorded.
bool CallCheck::has_number_of(NodeId b, NodeId a) {
  const TypeId before = a_.nodes[a].type, after = b_.nodes[b].type;
  if (!before || !after) return true;
  const bool are_values =
      context_.types[before].kind == TypeKind::kValue && context_.types[after].kind == TypeKind::kValue;
  const bool are_numbers = is_number_type(context_.types[before]) && is_number_type(context_.types[after]);
  if (are_values && (are_numbers || a_.nodes[a].kind == NodeKind::kPlaceholder))
    return context_.args.equal(context_.types[before].value, context_.types[after].value);
  if (context_.types[before].kind != TypeKind::kScalar) return true;
  const Type& type = context_.types[after];
  const Arg number = type.kind == TypeKind::kValue ? type.value : claims_.scalar_b(b);
  if (!number.is_int() && !number.is(ArgKind::kSymbolic)) return true;
  return numbers_.match_scalar(context_.types[before].expr, number, {}) == Fraction::kAll;
}

void CallCheck::check_shared_writes(const PartFacts& facts) {
  for (NodeId a : a_.order) {
    if (!claims_.parts(a).empty() && !holds(Condition::kWritesRowsOfWhole, !facts.spoils_whole(a)))
      claims_.fail(
          claims_.parts(a).front(), "rewrite-part",
          fmt::format("each part of {} writes into its rows of a value what is not rows of the whole",
                      claims_.name_a(a)));
    if (!claims_.parts(a).empty() && !holds(Condition::kCarriesSums, !facts.spoils_shared(a)))
      claims_.fail(claims_.parts(a).front(), "rewrite-part",
                   fmt::format("each part of {} writes what all parts share, and does not add its part to it",
                               claims_.name_a(a)));
  }
}

// A tensor, several values, or one that is no tensor. Traces record lists as tuples, and symbols
// may have become numbers.
static TypeKind form_of(const Type& type) {
  if (type.kind == TypeKind::kList) return TypeKind::kTuple;
  return type.kind == TypeKind::kScalar ? TypeKind::kValue : type.kind;
}

void CallCheck::check_kind(NodeId id) {
  const Claim& claim = claims_[id];
  const bool is_value = claim.kind == ClaimKind::kWhole || claim.kind == ClaimKind::kPart ||
                        claim.kind == ClaimKind::kPiece || claim.kind == ClaimKind::kJoin ||
                        claim.kind == ClaimKind::kMoved;
  const TypeId before = is_value ? a_.nodes[claim.origin].type : TypeId(), after = b_.nodes[id].type;
  if (!before) return;
  if (!after)
    return claims_.fail(id, "rewrite-type",
                        fmt::format("has no recorded type, and none follows; its origin is {}",
                                    print_type(context_, before)));
  if (form_of(context_.types[before]) != form_of(context_.types[after]))
    claims_.fail(
        id, "rewrite-type",
        fmt::format("is {}, its origin {}", print_type(context_, after), print_type(context_, before)));
}

void CallCheck::check_type(NodeId id) {
  if (const NodeId origin = claims_[id].origin; !has_number_of(id, origin)) {
    const std::string is = print_type(context_, b_.nodes[id].type);
    const std::string was = print_type(context_, a_.nodes[origin].type);
    return claims_.fail(id, "rewrite-type",
                        is == was ? fmt::format("is {}, and another one than its origin", is)
                                  : fmt::format("is {}, its origin {}", is, was));
  }
  const TensorType* before = claims_.tensor_a(claims_[id].origin);
  const TensorType* after = claims_.tensor_b(id);
  if (before == nullptr || after == nullptr) return;
  bool is_same = before->dtype == after->dtype && before->device == after->device &&
                 before->sizes.size() == after->sizes.size();
  for (std::size_t i = 0; is_same && i < before->sizes.size(); ++i)
    is_same = numbers_.match(before->sizes[i], after->sizes[i], {}) != Fraction::kNone;
  // How an input lies in memory is the caller's business; of what is computed, `verify B` infers
  // it.
  const bool is_input = b_.nodes[id].kind == NodeKind::kPlaceholder;
  if (is_input && before->strides.size() == after->strides.size())
    for (std::size_t i = 0; is_same && i < before->strides.size(); ++i)
      is_same = numbers_.match(before->strides[i], after->strides[i], {}) != Fraction::kNone;
  const auto first = [&](const TensorType& type) {
    return type.offset ? type.offset : context_.exprs.number(0);
  };
  if (is_input) is_same = is_same && numbers_.match(first(*before), first(*after), {}) != Fraction::kNone;
  if (!holds(Condition::kSameTypes, is_same))
    claims_.fail(id, "rewrite-type",
                 fmt::format("is {}, its origin {}", print_type(context_, b_.nodes[id].type),
                             print_type(context_, a_.nodes[claims_[id].origin].type)));
}

void CallCheck::check_size(NodeId id) {
  const Node& node = b_.nodes[id];
  const bool binds = node.extra != nullptr && !node.extra->bindings.empty();
  bool follows = false;
  // What is recorded of operands that nothing checks says nothing.
  bool is_checked = true;
  for_each_input(context_, node,
                 [&](NodeId input) { is_checked = is_checked && claims_[input].kind != ClaimKind::kNone; });
  if (is_checked && has_type_rule(node) && node.op->family != OpFamily::kHostRead && !binds) {
    try {
      const TypeId type = infer_type(claims_.facts_b(), graph_b_, b_, node);
      follows = type && (!node.type || same_type(claims_.facts_b(), context_, type, node.type));
    } catch (const TypeMismatch&) {
      follows = false;
    }
  }
  if (!holds(Condition::kSizesFollow, follows))
    claims_.fail(id, "rewrite-type",
                 fmt::format("is to be the number {}, which does not follow from its arguments",
                             print_type(context_, node.type)));
}

// What a group was split from at first.
static StringId find_source(const Graph& graph, const ProcessGroup& group) {
  const ProcessGroup* source = &group;
  for (std::size_t i = 0; i < graph.groups.size() && source->split_from; ++i) {
    const ProcessGroup* next = graph.find_group(source->split_from);
    if (next == nullptr) return source->split_from;
    source = next;
  }
  return source->name;
}

void CallCheck::check_group(NodeId id, Arg x, Arg y) {
  if (x.is_node() && y.is_node()) return check_arg(id, {.name = kGroup}, x, y);
  // A group that is looked up is the one that is recorded.
  const StringId before = recorded_group(context_, a_, x), after = recorded_group(context_, b_, y);
  if (before && before == after) return;
  // A group split from the one it was, or from what that was split from, with the same ranks on
  // every rank.
  const ProcessGroup* was = graph_a_.find_group(before);
  const ProcessGroup* is = graph_b_.find_group(after);
  const bool is_split = was != nullptr && is != nullptr && is->split_from &&
                        find_source(graph_b_, *is) == find_source(graph_a_, *was) &&
                        is_one_group(graph_a_, *was, graph_b_, *is) && (!is->axes || is->axes == was->axes);
  if (!holds(Condition::kSameGroup, is_split))
    claims_.fail(
        id, "rewrite-group",
        fmt::format("runs on group '{}', its origin on '{}'", graph_b_.text(after), graph_a_.text(before)));
}

}  // namespace epweave
