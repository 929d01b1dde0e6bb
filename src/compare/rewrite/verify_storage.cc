#include "compare/rewrite/verify_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/collectives.h"
#include "analysis/host_copy.h"
#include "analysis/users.h"
#include "ops/op.h"

namespace epweave {

StorageCheck::StorageCheck(RewriteClaims& claims)
    : claims_(claims),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      a_(graph_a_.step()),
      b_(graph_b_.step()),
      writers_a_(context_, a_),
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
    if (!is_expected)
      return claims_.fail(id, "rewrite-effects",
                          fmt::format("comes behind {}, which wrote the storage last; {}", describe(write),
                                      before.empty() ? "its origin sees it unwritten"
                                                     : fmt::format("its origin sees what {} wrote",
                                                                   claims_.name_a(before.back().writer))));
  }
  for (const SeenWrite& x : before) {
    const bool is_seen = std::ranges::any_of(after, [&](const SeenWrite& write) {
      return continues(id, write) || stands_for_write({id, positions_[id]}, write, x.writer);
    });
    if (!is_seen)
      return claims_.fail(
          id, "rewrite-effects",
          fmt::format("does not see what {} wrote, as its origin does", claims_.name_a(x.writer)));
  }
}

std::string StorageCheck::describe(const SeenWrite& write) const {
  if (write.how == SeenWrite::How::kDirect) return claims_.describe(write.writer);
  return fmt::format("{} parts of {}", write.how == SeenWrite::How::kJoined ? "all" : "not all",
                     claims_.name_a(claims_[write.writer].origin));
}

// Part k sees what part k-1 of the same update left.
bool StorageCheck::continues(NodeId id, const SeenWrite& write) const {
  const Claim& claim = claims_[id];
  const Claim& from = claims_[write.writer];
  return write.how == SeenWrite::How::kDirect && claim.kind == ClaimKind::kPart &&
         from.kind == ClaimKind::kPart && from.origin == claim.origin && from.part + 1 == claim.part;
}

bool StorageCheck::stands_for_write(const Reader& reader, const SeenWrite& write, NodeId x) {
  const Claim& claim = claims_[reader.node];
  const Claim& from = claims_[write.writer];
  if (write.how == SeenWrite::How::kTorn || !claims_.same_class(from.origin, x)) return false;
  if (write.how == SeenWrite::How::kJoined || from.kind == ClaimKind::kWhole) return true;
  if (from.kind != ClaimKind::kPart) return false;
  // Each part of such an update goes on from the one before, and the last leaves what all of it does.
  if (claims_.is_carried(from.origin)) return from.part + 1 == from.parts;
  if (claim.kind == ClaimKind::kPart) return from.part == claim.part;
  return std::ranges::all_of(claims_.parts(from.origin),
                             [&](NodeId part) { return positions_[part] < reader.position; });
}

// A guard computes nothing: it stops a step that the graph was not traced for.
bool StorageCheck::is_guard(const Node& node) const {
  return graph_a_.text(node.target).find("assert") != std::string_view::npos;
}

void StorageCheck::check_updates() {
  for (NodeId id : a_.order) {
    const Node& node = a_.nodes[id];
    if (node.kind != NodeKind::kCall || claims_.whole(id) || !claims_.parts(id).empty()) continue;
    bool is_update = node.op == nullptr || node.op->is_random || (node.op->is_effectful && !is_guard(node));
    for (const StorageAccess& access : writers_a_.effects().accesses_of(id))
      is_update =
          is_update || (access.writes && !is_wait(node) && a_.nodes[access.storage].kind != NodeKind::kCall);
    if (!is_update) continue;
    const NodeId merged = claims_.whole(claims_.find_class(id));
    if (merged) continue;
    const std::string_view why = node.op == nullptr   ? "; its effects are not known"
                                 : node.op->is_random ? "; all later draws give other numbers"
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
  if (is_same) return;
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
    if (before && after && positions_[before] > positions_[after])
      claims_.fail(after, "rewrite-order",
                   fmt::format("comes before {}; the other way around it {}", claims_.name_b(before),
                               name_of(edge.reason)));
  }
  for (NodeId a : a_.order)
    if (a_.nodes[a].op != nullptr && a_.nodes[a].op->is_random && !claims_.parts(a).empty())
      claims_.fail_in_a(a, "rewrite-order", "draws random numbers and is divided");
}

void StorageCheck::check_host_reads() {
  std::set<std::pair<NodeId, NodeId>> known;  // copy and reader in A
  visit_early_reads(writers_a_.effects(), a_, a_.order, [&](NodeId copy, NodeId reader) {
    known.insert({claims_.find_class(copy), claims_.find_class(reader)});
  });
  auto stands_for = [&](NodeId b) {
    const Claim& claim = claims_[b];
    const bool is_of_a = claim.kind == ClaimKind::kWhole || claim.kind == ClaimKind::kPart;
    return is_of_a ? claims_.find_class(claim.origin) : NodeId();
  };
  visit_early_reads(writers_b_.effects(), b_, b_.order, [&](NodeId copy, NodeId reader) {
    if (!known.contains({stands_for(copy), stands_for(reader)}))
      claims_.fail(reader, "rewrite-host-read",
                   fmt::format("reads {} before anything waited for the copy", claims_.name_b(copy)));
  });
}

}  // namespace epweave
