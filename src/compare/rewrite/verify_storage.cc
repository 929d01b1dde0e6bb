#include "compare/rewrite/verify_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/flex_attention.h"
#include "analysis/host_copy.h"
#include "analysis/random_draws.h"
#include "analysis/users.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

StorageCheck::StorageCheck(RewriteClaims& claims)
    : claims_(claims),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      a_(graph_a_.step()),
      b_(graph_b_.step()),
      writers_a_(claims.effects_a()),
      writers_b_(claims),
      positions_(find_positions(b_, b_.order)) {}

void StorageCheck::check_effects(NodeId id) {
  const NodeId origin = claims_[id].origin;
  // A view became a reshape, which counts as reading what it may copy.
  if (is_reshape(b_.nodes[id]) && b_.nodes[id].target != a_.nodes[origin].target) return;
  const auto before = writers_a_.seen_by(origin), after = writers_b_.seen_by(id);
  for (const SeenWrite& write : after) {
    const bool is_expected = continues(id, write) || std::ranges::any_of(before, [&](const SeenWrite& x) {
                               return stands_for_write({id, positions_[id]}, write, x.writer);
                             });
    if (!holds(Condition::kSeesNoOtherWrite, is_expected))
      return claims_.fail(id, "rewrite-effects",
                          fmt::format("comes behind {}, which wrote the storage last; {}", describe(write),
                                      before.empty() ? "its origin sees it unwritten"
                                                     : fmt::format("its origin sees what {} wrote",
                                                                   claims_.name_a(before.back().writer))));
  }
  check_each_storage(id, before, after);
}

// B may have storage twice that A has once, where it computes something again or copies it to cut
// or join it: each is in the state that A's is in.
void StorageCheck::check_each_storage(NodeId id, std::span<const SeenWrite> before,
                                      std::span<const SeenWrite> after) {
  if (before.empty()) return;
  bool is_sound = true;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    const NodeId storage = writers_b_.effects().storage_of(input);
    const NodeId of_a = storage_in_a(storage);
    if (!is_sound || !of_a) return;
    for (const SeenWrite& x : before) {
      if (!claims_.same_class(of_a, x.storage)) continue;
      const bool is_seen = std::ranges::any_of(after, [&](const SeenWrite& write) {
        return write.storage == storage &&
               (continues(id, write) || stands_for_write({id, positions_[id]}, write, x.writer));
      });
      if (holds(Condition::kSeesWritesInEach, is_seen)) continue;
      is_sound = false;
      return claims_.fail(id, "rewrite-effects",
                          fmt::format("takes {}, to which nothing did what {} does in the first graph",
                                      claims_.describe(input), claims_.name_a(x.writer)));
    }
  });
}

// Which storage of A is that of B, by what made it. A join, or a copied piece, is of the storage
// that its value shows.
NodeId StorageCheck::storage_in_a(NodeId storage) const {
  const Claim& made = claims_[storage];
  switch (made.kind) {
    case ClaimKind::kWhole:
    case ClaimKind::kPart:
    case ClaimKind::kPiece:
    case ClaimKind::kJoin:
    case ClaimKind::kBlocks:
    case ClaimKind::kMoved:
      return writers_a_.effects().storage_of(made.origin);
    case ClaimKind::kNone:
    case ClaimKind::kSplit:
    case ClaimKind::kSize:
      return {};
  }
  return {};
}

std::string StorageCheck::describe(const SeenWrite& write) const {
  if (write.how == SeenWrite::How::kDirect) return claims_.describe(write.writer);
  return fmt::format("{} parts of {}", write.how == SeenWrite::How::kJoined ? "all" : "not all",
                     claims_.name_a(claims_[write.writer].origin));
}

// Part k sees what part k-1 of the same update left, in what both write, or beside its own share.
bool StorageCheck::continues(NodeId id, const SeenWrite& write) const {
  const Claim& claim = claims_[id];
  const Claim& from = claims_[write.writer];
  return write.how == SeenWrite::How::kDirect && claim.kind == ClaimKind::kPart &&
         from.kind == ClaimKind::kPart && from.origin == claim.origin && touches_own_share(id, write);
}

bool StorageCheck::stands_for_write(const Reader& reader, const SeenWrite& write, NodeId x) {
  const Claim& claim = claims_[reader.node];
  const Claim& from = claims_[write.writer];
  const bool is_torn = write.how == SeenWrite::How::kTorn;
  if (!holds(Condition::kJoinsAllWritten, !is_torn) || !claims_.same_class(from.origin, x)) return false;
  if (write.how == SeenWrite::How::kJoined || from.kind == ClaimKind::kWhole ||
      from.kind == ClaimKind::kMoved)
    return true;
  if (from.kind != ClaimKind::kPart) return false;
  // Each part of such an update goes on from the one before, and the last leaves what all of it
  // does.
  if (claims_.is_carried(from.origin)) return holds(Condition::kSeesLastCarried, from.part + 1 == from.parts);
  if (holds(Condition::kSeesAllParts, precede(from.origin, reader))) return true;
  return claim.kind == ClaimKind::kPart && from.part == claim.part &&
         holds(Condition::kSeesOwnShare, touches_own_share(reader.node, write));
}

// Whether all parts of a write come before the reader.
bool StorageCheck::precede(NodeId origin, const Reader& reader) const {
  return std::ranges::all_of(claims_.parts(origin),
                             [&](NodeId part) { return positions_[part] < reader.position; });
}

// Whether of storage that a part wrote, the reader, a part too, takes its share only, so that what
// other parts write there is nothing to it. What an update that accumulates writes, it may share
// with the other parts.
bool StorageCheck::touches_own_share(NodeId reader, const SeenWrite& write) const {
  const Node& node = b_.nodes[reader];
  const bool is_same_update =
      claims_[reader].origin == claims_[write.writer].origin && accumulates(context_, node);
  const Arg first = arg_of(context_, node, 0);
  const NodeId written = is_same_update && first.is_node() ? first.as_node() : NodeId();
  bool is_own = true;
  const auto visit = [&](NodeId input) {
    const auto left = writers_b_.left_in(input);
    const auto accesses = writers_b_.effects().accesses_of(write.writer);
    const NodeId storage = writers_b_.effects().storage_of(input);
    const bool is_concerned =
        std::ranges::any_of(accesses,
                            [&](const StorageAccess& x) { return x.writes && x.storage == storage; }) ||
        std::ranges::find(left, write) != left.end();
    if (is_concerned && input != written) is_own = is_own && shows_share_of(input, reader, write.writer);
  };
  for_each_input(context_, node, visit);
  if (const NodeId launch = is_wait(node) ? find_waited_launch(context_, b_, reader) : NodeId())
    for_each_input(context_, b_.nodes[launch], visit);
  return is_own;
}

// Whether the value is, or shows, the reader's share of what the parts of the writer write by
// shares.
bool StorageCheck::shows_share_of(NodeId value, NodeId reader, NodeId writer) const {
  const NodeId share = find_share(value);
  if (!share || claims_[share].part != claims_[reader].part || claims_[share].parts != claims_[reader].parts)
    return false;
  const Node& node = b_.nodes[writer];
  bool found = false;
  for (std::size_t i = 0; node.op != nullptr && i < node.op->params.size(); ++i)
    if (node.op->params[i].is_written)
      context_.args.for_each_node(arg_of(context_, node, i), [&](NodeId written) {
        const NodeId other = find_share(written);
        found = found || (other && is_same_cut(share, other));
      });
  return found || writers_b_.effects().storage_of(value) == share;
}

// The first of the values that this one shows, or was cut as a copy of, that is a share: all others
// show of it.
NodeId StorageCheck::find_share(NodeId value) const {
  NodeId share;
  for (NodeId id = value; id;) {
    const ClaimKind kind = claims_[id].kind;
    if (kind == ClaimKind::kPart || kind == ClaimKind::kPiece) share = id;
    NodeId shown = shown_operand(context_, b_, id);
    if (const Arg cut = arg_of(context_, b_.nodes[id], 0);
        !shown && kind == ClaimKind::kPiece && cut.is_node())
      shown = cut.as_node();
    id = shown;
  }
  return share;
}

// Pieces number k of two splits of one value into the same pieces, or neighbours of one.
bool StorageCheck::is_same_cut(NodeId p, NodeId q) const {
  if (p == q) return true;
  if (claims_[p].kind != ClaimKind::kPiece || claims_[q].kind != ClaimKind::kPiece) return false;
  const NodeId cut_p = shown_operand(context_, b_, p), cut_q = shown_operand(context_, b_, q);
  return cut_p && cut_q && claims_.same_class(claims_[cut_p].origin, claims_[cut_q].origin) &&
         b_.nodes[cut_p].type == b_.nodes[cut_q].type;
}

// A guard computes nothing: it stops a step that the graph was not traced for.
bool StorageCheck::is_guard(const Node& node) const {
  return graph_a_.text(node.target).find("assert") != std::string_view::npos;
}

void StorageCheck::check_updates(const IdSet<NodeId>& waited) {
  for (NodeId id : a_.order) {
    const Node& node = a_.nodes[id];
    const bool is_done = claims_.whole(id) || !claims_.parts(id).empty() || waited.contains(id);
    if (node.kind != NodeKind::kCall || is_done) continue;
    bool is_update = node.op == nullptr || draws_random(claims_.graph_a(), node) ||
                     (node.op->is_effectful && !is_guard(node));
    for (const StorageAccess& access : writers_a_.effects().accesses_of(id))
      is_update =
          is_update || (access.writes && !is_wait(node) && a_.nodes[access.storage].kind != NodeKind::kCall);
    if (holds(Condition::kDoesAllEffects, !is_update)) continue;
    const NodeId first = claims_.find_class(id);
    if (claims_.whole(first)) continue;                            // merged into that
    if (is_wait(node) && !claims_.parts(first).empty()) continue;  // waited for in parts already
    const std::string_view why = node.op == nullptr ? "; its effects are not known"
                                 : draws_random(claims_.graph_a(), node)
                                     ? "; all later draws give other numbers"
                                     : "";
    claims_.fail_in_a(id, "rewrite-update", fmt::format("the second graph does not do it{}", why));
  }
}

void StorageCheck::check_last_writes() {
  for (NodeId id : a_.order)
    if (const NodeId after = claims_.whole(id); after && a_.nodes[id].kind != NodeKind::kCall)
      check_last_write(after, id, after);
  if (a_.order.empty()) return;
  const NodeId output = a_.order.back(), after = claims_.whole(output);
  if (a_.nodes[output].kind != NodeKind::kOutput || !after) return;
  check_returned(after, a_.nodes[output].args, b_.nodes[after].args);
}

void StorageCheck::check_returned(NodeId output, ArgRange before, ArgRange after) {
  if (before.count != after.count) return;  // check_positional says so
  for (std::uint32_t i = 0; i < before.count; ++i) {
    const Arg x = context_.args[before][i], y = context_.args[after][i];
    if (x.is_tree() && y.is_tree()) check_returned(output, x.children(), y.children());
    if (x.is_node() && y.is_node()) check_last_write(output, x.as_node(), y.as_node());
  }
}

void StorageCheck::check_last_write(NodeId site, NodeId before, NodeId after) {
  const auto xs = writers_a_.left_in(before), ys = writers_b_.left_in(after);
  const NodeId x = xs.empty() ? NodeId() : xs.front().writer;  // A has no joins: one write at most
  const bool is_same = xs.empty() == ys.empty() && std::ranges::all_of(ys, [&](const SeenWrite& y) {
                         return stands_for_write({site, b_.order.size()}, y, x);
                       });
  if (holds(Condition::kLeavesWritten, is_same)) return;
  const std::string wrote =
      ys.empty() ? "nothing writes it" : fmt::format("{} wrote it last", describe(ys.back()));
  const std::string should = x ? fmt::format("{} did", claims_.name_a(x)) : "nothing did";
  claims_.fail(site, "rewrite-effects",
               fmt::format("leaves {} in another state: {}; in the first graph {}", claims_.describe(after),
                           wrote, should));
}

void StorageCheck::check_order() {
  for (const OrderEdge& edge : writers_a_.effects().order_edges()) {
    if (edge.reason != OrderReason::kRandom && edge.reason != OrderReason::kUnknownEffect) continue;
    const NodeId before = claims_.whole(edge.before), after = claims_.whole(edge.after);
    if (before && after && !holds(Condition::kDrawsInOrder, positions_[before] < positions_[after]))
      claims_.fail(after, "rewrite-order",
                   fmt::format("comes before {}; the other way around it {}", claims_.name_b(before),
                               name_of(edge.reason)));
  }
  for (NodeId a : a_.order) {
    const bool is_divided = draws_random(claims_.graph_a(), a_.nodes[a]) && !claims_.parts(a).empty();
    if (!holds(Condition::kDividesNoDraws, !is_divided))
      claims_.fail_in_a(a, "rewrite-order", "draws random numbers and is divided");
  }
}

void StorageCheck::check_host_reads() {
  std::set<std::pair<NodeId, NodeId>> known;  // copy and reader in A
  const auto note = [&](NodeId copy, NodeId reader) {
    known.insert({claims_.find_class(copy), claims_.find_class(reader)});
  };
  visit_early_reads(writers_a_.effects(), a_, a_.order, note, true);
  auto stands_for = [&](NodeId b) {
    const Claim& claim = claims_[b];
    const bool is_of_a = claim.kind == ClaimKind::kWhole || claim.kind == ClaimKind::kPart;
    return is_of_a ? claims_.find_class(claim.origin) : NodeId();
  };
  const auto check = [&](NodeId copy, NodeId reader) {
    if (!known.contains({stands_for(copy), stands_for(reader)}))
      claims_.fail(reader, "rewrite-host-read",
                   fmt::format("reads {} before anything waited for the copy", claims_.name_b(copy)));
  };
  visit_early_reads(writers_b_.effects(), b_, b_.order, check, true);
}

}  // namespace epweave
