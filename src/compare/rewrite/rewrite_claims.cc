#include "compare/rewrite/rewrite_claims.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/verify_report.h"
#include "compare/lineage.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"

namespace epweave {

bool is_reshape(const Node& node) {
  return node.op != nullptr && is_reshape(*node.op);
}

const OpInfo& find_view() {
  static const OpInfo* const view = find_op("aten.view.default");
  return *view;
}

bool accumulates(const Context& context, const Node& node) {
  static const OpInfo* const sums[] = {find_op("aten.add_.Tensor"), find_op("aten.sub_.Tensor"),
                                       find_op("aten.index_add_.default"),
                                       find_op("aten.scatter_add_.default")};
  static const OpInfo* const put = find_op("aten.index_put_.default");
  if (node.op == nullptr) return false;
  if (node.op != put) return std::ranges::find(sums, node.op) != std::end(sums);
  const Arg* flag = find_arg(context, node, 3, "accumulate");
  return flag != nullptr && flag->is(ArgKind::kBool) && flag->as_bool();
}

RewriteClaims::RewriteClaims(const Graph& a, const Graph& b, const IdVector<NodeId, NodeId>& original,
                             std::vector<Violation>& violations)
    : graph_a_(a),
      graph_b_(b),
      context_(*a.context),
      a_(a.step()),
      b_(b.step()),
      violations_(violations),
      facts_a_(a),
      facts_b_(b),
      original_(original),
      values_(a, facts_a_, original_),
      claims_(b_.nodes.size()),
      class_(a_.nodes.size()),
      whole_(a_.nodes.size()),
      divided_(a_.nodes.size()) {
  facts_b_.take_hints(facts_a_);
  for (NodeId id : a_.order) names_.at(a_.nodes[id].name) = id;
  for (std::uint32_t i = 0; i < a_.nodes.size(); ++i) class_[NodeId(i)] = NodeId(i);
  for (NodeId id : a_.order)
    if (original_.contains(id) && original_[id]) class_[id] = original_[id];
}

bool RewriteClaims::read() {
  if (!check_derived()) return false;
  merge_classes();
  read_claims();
  find_moved();
  return true;
}

void RewriteClaims::fail(NodeId b, std::string_view invariant, std::string message) {
  report(graph_b_, b_, b_.nodes[b], invariant, std::move(message), violations_);
}

void RewriteClaims::fail_in_a(NodeId a, std::string_view invariant, std::string message) {
  report(graph_a_, a_, a_.nodes[a], invariant, std::move(message), violations_);
}

void RewriteClaims::fail_graph(std::string_view invariant, std::string message) {
  violations_.push_back({std::string(invariant), std::move(message), {}, {}});
}

Arg RewriteClaims::scalar_b(NodeId id) const {
  const TypeId type = b_.nodes[id].type;
  return type && context_.types[type].kind == TypeKind::kScalar ? Arg::symbolic(context_.types[type].expr)
                                                                : Arg();
}

void RewriteClaims::fail_nested(StringId body, std::string_view invariant, std::string message) {
  violations_.push_back({std::string(invariant), std::move(message), {}, body});
}

std::string RewriteClaims::name_a(NodeId id) const {
  return fmt::format("%{}", graph_a_.text(a_.nodes[id].name));
}

std::string RewriteClaims::name_b(NodeId id) const {
  return fmt::format("%{}", graph_b_.text(b_.nodes[id].name));
}

std::string RewriteClaims::describe(NodeId b) const {
  const Claim& claim = claims_[b];
  const std::string origin = claim.origin ? name_a(claim.origin) : "";
  switch (claim.kind) {
    case ClaimKind::kNone:
      return fmt::format("{} (unproved)", name_b(b));
    case ClaimKind::kWhole:
      return claim.origin && a_.nodes[claim.origin].name == b_.nodes[b].name
                 ? name_b(b)
                 : fmt::format("{} (all of {})", name_b(b), origin);
    case ClaimKind::kPart:
    case ClaimKind::kPiece:
      return fmt::format("{} (part {} of {})", name_b(b), claim.part, origin);
    case ClaimKind::kSplit:
      return fmt::format("{} (the parts of {})", name_b(b), origin);
    case ClaimKind::kJoin:
      if (claim.complete) return fmt::format("{} (all of {}, joined)", name_b(b), origin);
      if (claim.first_part == claim.part)
        return fmt::format("{} (parts of {}, wrongly joined)", name_b(b), origin);
      return fmt::format("{} (parts {} to {} of {})", name_b(b), claim.first_part, claim.part, origin);
    case ClaimKind::kSize:
      return fmt::format("{} (a size)", name_b(b));
    case ClaimKind::kBlocks:
      return fmt::format("{} ({} in blocks)", name_b(b), origin);
    case ClaimKind::kMoved:
      return fmt::format("{} (all of {}, moved)", name_b(b), origin);
  }
  return name_b(b);
}

// A graph without provenance says that each node is A's of the same name.
bool RewriteClaims::check_names() {
  for (NodeId id : b_.order) {
    const Node& node = b_.nodes[id];
    if (names_[node.name]) continue;
    fail_graph("rewrite-derived",
               fmt::format(
                   "the second graph has no provenance, so its nodes are taken by name, and the first has no "
                   "node '{}' ({}): no pass of epweave made it; `epweave-replay check` compares such graphs "
                   "by running them",
                   graph_b_.text(node.name), graph_b_.text(node.target)));
    return false;
  }
  return true;
}

bool RewriteClaims::check_derived() {
  if (graph_b_.origins.empty()) return check_names();
  std::string problem;
  for (const Origin& origin : graph_b_.origins) {
    const NodeId id = names_[origin.name];
    if (problem.empty() && (!id || a_.nodes[id].target != origin.target))
      problem =
          fmt::format("the second graph was made from a graph with a node '{}' ({}), which the first has not",
                      graph_b_.text(origin.name), graph_b_.text(origin.target));
  }
  if (problem.empty() && graph_b_.origins.size() != a_.order.size())
    problem = fmt::format("the second graph was made from a graph of {} nodes, the first has {}",
                          graph_b_.origins.size(), a_.order.size());
  if (!problem.empty()) fail_graph("rewrite-derived", problem);
  return problem.empty();
}

// Nodes of A that one node of B stands for are one value.
void RewriteClaims::merge_classes() {
  for (NodeId id : b_.order) {
    const Lineage lineage = find_lineage(b_.nodes[id]);
    if (lineage.origins.size() < 2 || lineage.role == ProvenanceRole::kSize ||
        lineage.role == ProvenanceRole::kAdded)
      continue;
    const NodeId first = names_[lineage.origins.front()];
    for (StringId origin : lineage.origins) {
      const NodeId other = names_[origin];
      if (!first || !other || find_root(first) == find_root(other)) continue;
      if (holds(Condition::kMergesSameCalls, values_.same(first, other))) {
        class_[find_root(other)] = find_root(first);
      } else {
        fail(id, "rewrite-merged",
             fmt::format("stands for {} and {}, which are not known to be the same value", name_a(first),
                         name_a(other)));
      }
    }
  }
  for (NodeId a : a_.order) class_[a] = find_root(a);
}

NodeId RewriteClaims::find_root(NodeId a) {
  while (class_[a] != a) a = class_[a] = class_[class_[a]];
  return a;
}

void RewriteClaims::read_claims() {
  static const OpInfo* const cat = find_op("aten.cat.default");
  static const OpInfo* const permute = find_op("aten.permute.default");
  static const OpInfo* const split = find_op("aten.split_with_sizes.default");
  for (NodeId id : b_.order) {
    const Node& node = b_.nodes[id];
    const bool is_join = node.op == cat || node.op == permute || is_reshape(node);
    const Lineage lineage = find_lineage(node);
    Claim& claim = claims_[id];
    claim.origin = lineage.origins.empty() ? NodeId() : names_[lineage.origins.front()];
    claim.part = lineage.part;
    claim.parts = lineage.parts;
    if (!claim.origin) continue;
    if (lineage.parts > most_parts(b_)) continue;  // it says nothing
    if (lineage.is_whole()) {
      claim.kind = ClaimKind::kWhole;
      add_whole(id, claim.origin);
    } else if (lineage.is_part()) {
      claim.kind = ClaimKind::kPart;
      parts_.at(claim.origin).push_back(id);
      divided_[class_[claim.origin]] = claim.origin;
    } else if (lineage.role == ProvenanceRole::kSplit) {
      claim.kind = node.op == split ? ClaimKind::kSplit : ClaimKind::kPiece;
    } else if (lineage.role == ProvenanceRole::kPartInput) {
      claim.kind = ClaimKind::kPiece;
    } else if (lineage.role == ProvenanceRole::kSize) {
      claim.kind = ClaimKind::kSize;
    } else if (lineage.role == ProvenanceRole::kMaterialize) {
      claim.kind = ClaimKind::kJoin;
      // Until the sum is followed.
      if (!is_join) claim.complete = false;
    } else if (lineage.role == ProvenanceRole::kAdded && is_join) {
      claim.kind = ClaimKind::kBlocks;
    }
  }
}

// What nothing divides is not joined either.
void RewriteClaims::find_moved() {
  for (NodeId id : b_.order) {
    Claim& claim = claims_[id];
    if (claim.kind != ClaimKind::kJoin || !is_reshape(b_.nodes[id]) || part_count(claim.origin) != 0)
      continue;
    claim.kind = ClaimKind::kMoved;
    add_whole(id, claim.origin);
  }
}

void RewriteClaims::add_whole(NodeId b, NodeId origin) {
  if (whole_[origin]) {
    fail(b, "rewrite-once", fmt::format("{} is {} already", name_b(whole_[origin]), name_a(origin)));
  } else {
    whole_[origin] = b;
  }
}

std::uint32_t RewriteClaims::part_count(NodeId a) const {
  const NodeId divided = parts(a).empty() ? divided_[class_[a]] : a;
  return divided ? claims_[parts(divided).front()].parts : 0;
}

NodeId RewriteClaims::part_of(NodeId a, std::uint32_t part) const {
  for (NodeId id : parts(a))
    if (claims_[id].part == part) return id;
  return {};
}

Share RewriteClaims::share_of(NodeId b) const {
  const Claim& claim = claims_[b];
  const bool is_share = claim.kind == ClaimKind::kPart || claim.kind == ClaimKind::kPiece;
  return is_share ? Share{claim.part, claim.parts} : Share{};
}

bool RewriteClaims::is_share_of(NodeId b, NodeId a, Share share) const {
  const Claim& claim = claims_[b];
  const bool is_cut = claim.kind == ClaimKind::kPiece;
  if (!is_cut && !(claim.kind == ClaimKind::kPart && !is_carried(claim.origin))) return false;
  return same_class(claim.origin, a) && claim.part == share.part && claim.parts == share.parts;
}

bool RewriteClaims::is_whole(NodeId b) const {
  const Claim& claim = claims_[b];
  if (claim.kind == ClaimKind::kWhole || claim.kind == ClaimKind::kMoved) return true;
  if (claim.kind == ClaimKind::kJoin) return claim.complete;
  return claim.kind == ClaimKind::kPart && claim.part + 1 == claim.parts && is_carried(claim.origin);
}

bool RewriteClaims::is_carried(NodeId a) const {
  for (NodeId id : parts(a)) {
    const Claim& claim = claims_[id];
    const Node& node = b_.nodes[id];
    if (!accumulates(context_, node)) return false;
    const Arg first = arg_of(context_, node, 0);
    if (!first.is_node()) return false;
    const Claim& from = claims_[first.as_node()];
    const bool continues =
        claim.part == 0 ? from.kind == ClaimKind::kWhole
                        : from.kind == ClaimKind::kPart && from.origin == a && from.part + 1 == claim.part;
    if (!continues) return false;
  }
  return true;
}

void RewriteClaims::set_sum(NodeId b, std::uint32_t first, std::uint32_t last) {
  Claim& claim = claims_[b];
  claim.first_part = first;
  claim.part = last;
  claim.parts = part_count(claim.origin);
  claim.complete = first == 0 ? last + 1 == claim.parts : last == 0;
}

void RewriteClaims::check_parts() {
  for (NodeId a : a_.order) {
    if (parts(a).empty()) continue;
    const std::uint32_t n = part_count(a);
    std::vector<int> seen(n);
    bool is_sound = n > 1;
    for (NodeId id : parts(a)) {
      const Claim& claim = claims_[id];
      is_sound = is_sound && claim.parts == n && claim.part < n && seen[claim.part]++ == 0;
      const auto said = b_.nodes[id].chunk.part;
      if (said && *said != static_cast<std::int64_t>(claim.part))
        fail(id, "rewrite-part",
             fmt::format("is part {} by its provenance, its chunk field says {}", claim.part, *said));
    }
    if (!is_sound || parts(a).size() != n)
      fail_in_a(a, "rewrite-part",
                fmt::format("it has {} parts in the second graph, which are not 0 to {}, each once",
                            parts(a).size(), n == 0 ? 0 : n - 1));
  }
}

bool has_same_elements(const Context& context, TypeId x, TypeId y) {
  const TensorType *before = tensor_of(context, x), *after = tensor_of(context, y);
  if (before == nullptr || after == nullptr) return before == after;
  return before->dtype == after->dtype && before->device == after->device && before->rank() == after->rank();
}

}  // namespace epweave
