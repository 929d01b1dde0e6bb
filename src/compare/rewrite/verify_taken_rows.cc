#include "compare/rewrite/verify_taken_rows.h"

#include <fmt/format.h>

#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/rules.h"

namespace epweave {

TakenRowsCheck::TakenRowsCheck(RewriteClaims& claims, Numbers& numbers, const LaterWrites& in_a,
                               const LaterWrites& in_b)
    : claims_(claims),
      numbers_(numbers),
      context_(*claims.graph_a().context),
      later_in_a_(in_a),
      later_in_b_(in_b),
      rows_of_a_(claims.graph_a()),
      rows_of_b_(claims.graph_b()) {}

bool TakenRowsCheck::check(NodeId id, JoinCheck& joins) {
  const auto rows = find_rows(id);
  if (!rows) return false;
  if (const std::string fault = find_fault(*rows, joins); !fault.empty()) {
    claims_.fail(id, "rewrite-rows",
                 fmt::format("is said to be {}, which shows rows of {}, and shows rows of {}; {}",
                             claims_.name_a(claims_[id].origin), claims_.name_a(rows->in_a.of),
                             claims_.describe(rows->in_b.of), fault));
    return true;
  }
  if (is_part(*rows)) taken_.push_back(id);
  return true;
}

// Only where B takes them of something else than A does.
std::optional<TakenRowsCheck::Rows> TakenRowsCheck::find_rows(NodeId id) {
  const Graph &a = claims_.graph_a(), &b = claims_.graph_b();
  const NodeId origin = claims_[id].origin;
  const NodeId from = find_cut_operand(b, id), whole = from ? find_cut_operand(a, origin) : NodeId();
  if (!whole || (claims_.is_whole(from) && claims_.same_class(claims_[from].origin, whole))) return {};
  if (!has_checked_numbers(id)) return {};
  const auto in_b = rows_of_b_.find(claims_.facts_b(), id);
  if (!in_b) return {};
  // What B takes for granted of A's symbols is printed.
  auto in_a = rows_of_a_.find(claims_.facts_a(), origin);
  if (!in_a) in_a = rows_of_a_.find(claims_.facts_b(), origin);
  return in_a ? std::optional(Rows{*in_a, *in_b}) : std::nullopt;
}

// What is recorded of a number that nothing checks says nothing.
bool TakenRowsCheck::has_checked_numbers(NodeId id) const {
  const Body& body = claims_.graph_b().step();
  bool is_checked = true;
  const auto check = [&](NodeId node) {
    for_each_input(context_, body.nodes[node], [&](NodeId input) {
      const TypeId type = body.nodes[input].type;
      const bool is_number = !type || context_.types[type].kind == TypeKind::kScalar ||
                             context_.types[type].kind == TypeKind::kValue;
      is_checked = is_checked && !(is_number && claims_[input].kind == ClaimKind::kNone);
    });
  };
  check(id);
  if (const auto element = tuple_element(context_, body, body.nodes[id])) check(element->tuple);
  return is_checked;
}

bool TakenRowsCheck::is_part(const Rows& rows) const {
  return claims_[rows.in_b.of].kind == ClaimKind::kPart;
}

std::string TakenRowsCheck::find_fault(const Rows& rows, JoinCheck& joins) {
  const ShownRows &in_a = rows.in_a, &in_b = rows.in_b;
  const TensorType *whole = claims_.tensor_a(in_a.of), *part = claims_.tensor_b(in_b.of);
  if (whole == nullptr || part == nullptr || in_a.dim != in_b.dim || whole->rank() != part->rank() ||
      whole->dtype != part->dtype)
    return "these are not rows of one dimension and dtype";
  const auto begin = find_begin(rows, joins);
  if (!begin) return "that is no part of it";
  ExprPool& exprs = context_.exprs;
  if (!holds(Condition::kTakesSameRows, begins_right(rows, *begin)))
    return fmt::format("these begin at {}, those at {}",
                       exprs.text(exprs.add(exprs.add(begin->of_a, begin->of_b), in_b.start)),
                       exprs.text(in_a.start));
  // The cat is memory of its own: what is written there, its operand has not, nor the other way
  // around. A part lies where the whole does, and STATE sees what is written there.
  const bool is_unwritten = is_part(rows) || (!later_in_a_.any(in_a.of) && !later_in_b_.any(in_b.of));
  if (!holds(Condition::kTakesUnwritten, is_unwritten))
    return "one of these is written behind where it is computed";
  return {};
}

bool TakenRowsCheck::begins_right(const Rows& rows, const Begin& begin) {
  ExprPool& exprs = context_.exprs;
  return numbers_.match(exprs.sub(rows.in_a.start, begin.of_a), exprs.add(begin.of_b, rows.in_b.start), {}) ==
         Fraction::kAll;
}

std::optional<TakenRowsCheck::Begin> TakenRowsCheck::find_begin(const Rows& rows, JoinCheck& joins) {
  return is_part(rows) ? find_begin_of_part(rows, joins) : find_begin_in_cat(rows);
}

std::optional<TakenRowsCheck::Begin> TakenRowsCheck::find_begin_of_part(const Rows& rows, JoinCheck& joins) {
  const Claim& claim = claims_[rows.in_b.of];
  if (!claims_.same_class(claim.origin, rows.in_a.of) || claims_.is_carried(claim.origin)) return {};
  const ExprId zero = context_.exprs.number(0);
  ExprId begin = zero;
  for (std::uint32_t k = 0; k <= claim.part; ++k) {
    const NodeId part = claims_.part_of(claim.origin, k);
    if (!part || !joins.has_part_sizes(part, claim.origin, static_cast<std::int64_t>(rows.in_a.dim)))
      return {};
    if (k < claim.part) begin = context_.exprs.add(begin, claims_.tensor_b(part)->sizes[rows.in_a.dim]);
  }
  return Begin{zero, begin};
}

std::optional<TakenRowsCheck::Begin> TakenRowsCheck::find_begin_in_cat(const Rows& rows) {
  const Node& node = claims_.graph_a().step().nodes[rows.in_a.of];
  if (node.op == nullptr || node.op->type_rule != rules::cat || !claims_.is_whole(rows.in_b.of)) return {};
  const Arg list = arg_of(context_, node, 0);
  if (!list.is_list() || find_dim(context_, node, claims_.tensor_a(rows.in_a.of)->rank()) != rows.in_a.dim)
    return {};
  const NodeId wanted = claims_[rows.in_b.of].origin;
  const ExprId zero = context_.exprs.number(0);
  ExprId begin = zero;
  std::optional<Begin> found;  // a value may stand there twice
  for (Arg item : context_.args.children(list)) {
    const TensorType* type = item.is_node() ? claims_.tensor_a(item.as_node()) : nullptr;
    if (type == nullptr || type->rank() <= rows.in_a.dim) return {};
    if (claims_.same_class(item.as_node(), wanted)) {
      found = Begin{begin, zero};
      if (begins_right(rows, *found)) break;
    }
    begin = context_.exprs.add(begin, type->sizes[rows.in_a.dim]);
  }
  return found;
}

void TakenRowsCheck::check_facts(const PartFacts& facts, RowBlocks& blocks) {
  for (NodeId id : taken_) {
    const NodeId part = rows_of_b_.find(claims_.facts_b(), id)->of;
    blocks.check_taken(id, part);
    if (!holds(Condition::kTakesRows, facts.may_join(claims_[part].origin)))
      claims_.fail(id, "rewrite-rows",
                   fmt::format("takes rows of {}, of which a part has not rows of the whole",
                               claims_.name_a(claims_[part].origin)));
  }
}

}  // namespace epweave
