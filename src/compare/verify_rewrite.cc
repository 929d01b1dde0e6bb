#include "compare/verify_rewrite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/host_copy.h"
#include "analysis/users.h"
#include "compare/lineage.h"
#include "compare/numbers.h"
#include "compare/pairing.h"
#include "compare/part_symbols.h"
#include "compare/rebase.h"
#include "compare/same_values.h"
#include "compare/verify_attention.h"
#include "ir/op.h"
#include "ir/type_rules.h"
#include "ir/verify_report.h"

namespace epweave {
namespace {

enum class ClaimKind : std::uint8_t { kNone, kWhole, kPart, kSplit, kPiece, kJoin, kSize, kBlocks };

// What a node of B says that it is.
struct Claim {
  ClaimKind kind = ClaimKind::kNone;
  NodeId origin;                      // first of its class
  std::uint32_t part = 0, parts = 0;  // kPart, kPiece; kJoin by sums: the last part added
  std::uint32_t first_part = 0;       // kJoin by sums: the part that the others are added to
  bool complete = true;               // kJoin: all parts are in it
};

// The last write before each access to storage that is written somewhere.
class Writers {
 public:
  Writers(const Context& context, const Body& body)
      : effects_(context, body), begins_(body.nodes.size()), counts_(body.nodes.size()) {
    for (NodeId id : body.order) {
      begins_[id] = writers_.size();
      for (const StorageAccess& access : effects_.accesses_of(id)) {
        if (last_[access.storage]) writers_.push_back(last_[access.storage]);
        if (access.writes) last_.at(access.storage) = id;
      }
      counts_[id] = writers_.size() - begins_[id];
    }
  }
  std::span<const NodeId> seen_by(NodeId id) const { return {writers_.data() + begins_[id], counts_[id]}; }
  // The last write of the step to the storage of a value, or none.
  NodeId last_to(NodeId value) const { return last_[effects_.storage_of(value)]; }
  const Effects& effects() const { return effects_; }

 private:
  Effects effects_;
  IdVector<NodeId, std::size_t> begins_, counts_;
  std::vector<NodeId> writers_;
  SideTable<NodeId, NodeId> last_;  // by storage
};

class RewriteVerifier {
 public:
  RewriteVerifier(const Graph& a, const Graph& b)
      : graph_a_(a),
        graph_b_(b),
        context_(*a.context),
        a_(a.step()),
        b_(b.step()),
        numbers_(a, b),
        values_(a),
        attention_(a, b),
        writers_a_(context_, a_),
        writers_b_(context_, b_),
        claims_(b_.nodes.size()),
        numerics_(b_.nodes.size()),
        class_(a_.nodes.size()),
        whole_(a_.nodes.size()),
        parts_(a_.nodes.size()),
        inputs_b_(list_inputs(context_, b_)),
        positions_(find_positions(b_, b_.order)) {
    for (NodeId id : a_.order) names_.at(a_.nodes[id].name) = id;
    for (std::uint32_t i = 0; i < a_.nodes.size(); ++i) class_[NodeId(i)] = NodeId(i);
  }

  RewriteReport run() {
    if (!check_derived()) return std::move(result_);
    merge_classes();
    read_claims();
    learn_divisions();
    check_inputs();
    check_parts();
    for (NodeId id : b_.order) check_node(id);
    check_uniform();
    check_updates();
    check_last_writes();
    check_order();
    check_groups();
    check_host_reads();
    check_nested();
    check_part_symbols(graph_a_, graph_b_, result_.violations);
    classify();
    return std::move(result_);
  }

 private:
  void fail(NodeId b, std::string_view invariant, std::string message) {
    report(graph_b_, b_, b_.nodes[b], invariant, std::move(message), result_.violations);
  }
  void fail_in_a(NodeId a, std::string_view invariant, std::string message) {
    report(graph_a_, a_, a_.nodes[a], invariant, std::move(message), result_.violations);
  }
  std::string name_a(NodeId id) const { return fmt::format("%{}", graph_a_.text(a_.nodes[id].name)); }
  std::string name_b(NodeId id) const { return fmt::format("%{}", graph_b_.text(b_.nodes[id].name)); }

  std::string describe(NodeId b) const {
    const Claim& claim = claims_[b];
    const std::string origin = claim.origin ? name_a(claim.origin) : "";
    switch (claim.kind) {
      case ClaimKind::kNone:
        return fmt::format("{}, which says nothing that could be checked", name_b(b));
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
    }
    return name_b(b);
  }

  // ------------------------------------------------------------------------- claims

  bool check_derived() {
    std::string problem;
    if (graph_b_.origins.empty()) problem = "the second graph has no provenance: no pass of epweave made it";
    for (const Origin& origin : graph_b_.origins) {
      const NodeId id = names_[origin.name];
      if (problem.empty() && (!id || a_.nodes[id].target != origin.target))
        problem = fmt::format(
            "the second graph was made from a graph with a node '{}' ({}), which the first has not",
            graph_b_.text(origin.name), graph_b_.text(origin.target));
    }
    if (problem.empty() && graph_b_.origins.size() != a_.order.size())
      problem = fmt::format("the second graph was made from a graph of {} nodes, the first has {}",
                            graph_b_.origins.size(), a_.order.size());
    if (!problem.empty()) result_.violations.push_back({"rewrite-derived", problem, {}, {}});
    return problem.empty();
  }

  // Nodes of A that one node of B stands for are one value.
  void merge_classes() {
    for (NodeId id : b_.order) {
      const Lineage lineage = find_lineage(b_.nodes[id]);
      if (lineage.origins.size() < 2 || !(lineage.is_whole() || lineage.is_part())) continue;
      const NodeId first = names_[lineage.origins.front()];
      for (StringId origin : lineage.origins) {
        const NodeId other = names_[origin];
        if (!first || !other || find_class(first) == find_class(other)) continue;
        if (values_.same(first, other)) {
          class_[find_class(other)] = find_class(first);
        } else {
          fail(id, "rewrite-merged",
               fmt::format("stands for {} and {}, which are not known to be the same value", name_a(first),
                           name_a(other)));
        }
      }
    }
  }
  NodeId find_class(NodeId a) {
    while (class_[a] != a) a = class_[a] = class_[class_[a]];
    return a;
  }
  bool same_class(NodeId x, NodeId y) { return x && y && (x == y || find_class(x) == find_class(y)); }

  void read_claims() {
    static const OpInfo* const cat = find_op("aten.cat.default");
    static const OpInfo* const split = find_op("aten.split_with_sizes.default");
    for (NodeId id : b_.order) {
      const Node& node = b_.nodes[id];
      const Lineage lineage = find_lineage(node);
      Claim& claim = claims_[id];
      claim.origin = lineage.origins.empty() ? NodeId() : names_[lineage.origins.front()];
      claim.part = lineage.part;
      claim.parts = lineage.parts;
      if (!claim.origin) continue;
      if (lineage.is_whole()) {
        claim.kind = ClaimKind::kWhole;
        add_whole(id, claim.origin);
      } else if (lineage.is_part()) {
        claim.kind = ClaimKind::kPart;
        parts_[claim.origin].push_back(id);
      } else if (lineage.role == ProvenanceRole::kSplit) {
        claim.kind = node.op == split ? ClaimKind::kSplit : ClaimKind::kPiece;
      } else if (lineage.role == ProvenanceRole::kPartInput) {
        claim.kind = ClaimKind::kPiece;
      } else if (lineage.role == ProvenanceRole::kSize) {
        claim.kind = ClaimKind::kSize;
      } else if (lineage.role == ProvenanceRole::kMaterialize) {
        claim.kind = ClaimKind::kJoin;
        // Until the sum is followed.
        if (node.op != cat && !is_reshape(node)) claim.complete = false;
      } else if (lineage.role == ProvenanceRole::kAdded && (is_reshape(node) || node.op == cat)) {
        claim.kind = ClaimKind::kBlocks;
      }
    }
  }
  void add_whole(NodeId b, NodeId origin) {
    if (whole_[origin]) {
      fail(b, "rewrite-once", fmt::format("{} is {} already", name_b(whole_[origin]), name_a(origin)));
    } else {
      whole_[origin] = b;
    }
  }

  std::uint32_t part_count(NodeId a) const {
    return parts_[a].empty() ? 0 : claims_[parts_[a].front()].parts;
  }
  NodeId part_of(NodeId a, std::uint32_t part) const {
    for (NodeId id : parts_[a])
      if (claims_[id].part == part) return id;
    return {};
  }

  void check_parts() {
    for (NodeId a : a_.order) {
      if (parts_[a].empty()) continue;
      ++result_.divided;
      const std::uint32_t n = part_count(a);
      std::vector<int> seen(n);
      bool is_sound = n > 1;
      for (NodeId id : parts_[a]) {
        const Claim& claim = claims_[id];
        is_sound = is_sound && claim.parts == n && claim.part < n && seen[claim.part]++ == 0;
      }
      if (!is_sound || parts_[a].size() != n)
        fail_in_a(a, "rewrite-part",
                  fmt::format("it has {} parts in the second graph, which are not 0 to {}, each once",
                              parts_[a].size(), n == 0 ? 0 : n - 1));
    }
  }

  // ------------------------------------------------------------------------- inputs

  void check_inputs() {
    auto placeholders = [](const Body& body) {
      std::vector<NodeId> list;
      for (NodeId id : body.order)
        if (body.nodes[id].kind == NodeKind::kPlaceholder) list.push_back(id);
      return list;
    };
    const std::vector<NodeId> before = placeholders(a_), after = placeholders(b_);
    bool is_same = before.size() == after.size() && graph_a_.inputs.size() == graph_b_.inputs.size() &&
                   graph_a_.outputs.size() == graph_b_.outputs.size();
    for (std::size_t i = 0; is_same && i < before.size(); ++i)
      is_same = claims_[after[i]].kind == ClaimKind::kWhole && claims_[after[i]].origin == before[i];
    for (std::size_t i = 0; is_same && i < graph_a_.inputs.size(); ++i) {
      const InputRole& x = graph_a_.inputs[i];
      const InputRole& y = graph_b_.inputs[i];
      is_same = x.role == y.role && x.fqn == y.fqn && x.which == y.which;
    }
    for (std::size_t i = 0; is_same && i < graph_a_.outputs.size(); ++i)
      is_same = graph_a_.outputs[i].role == graph_b_.outputs[i].role &&
                graph_a_.outputs[i].fqn == graph_b_.outputs[i].fqn;
    if (!is_same)
      result_.violations.push_back(
          {"rewrite-inputs", "the inputs or outputs are not those of the first graph", {}, {}});
  }

  // ------------------------------------------------------------------------- nodes

  void check_node(NodeId id) {
    check_added(id);
    switch (claims_[id].kind) {
      case ClaimKind::kWhole:
        ++result_.whole;
        check_call(id);
        check_type(id);
        check_effects(id);
        break;
      case ClaimKind::kPart:
        check_call(id);
        check_effects(id);
        break;
      case ClaimKind::kSplit:
        ++result_.splits;
        check_split(id);
        break;
      case ClaimKind::kPiece:
        check_piece(id);
        break;
      case ClaimKind::kJoin:
        ++result_.joins;
        check_join(id);
        break;
      case ClaimKind::kSize:
      case ClaimKind::kBlocks:  // with the split or join that is made with it
      case ClaimKind::kNone:
        break;
    }
  }

  // What is neither a node of A nor a part of one computes its value and does nothing else.
  void check_added(NodeId id) {
    const Node& node = b_.nodes[id];
    const ClaimKind kind = claims_[id].kind;
    if (kind == ClaimKind::kWhole || kind == ClaimKind::kPart) return;
    if (node.kind == NodeKind::kOutput)
      return fail(id, "rewrite-inputs", "is not the output of the first graph");
    if (node.kind != NodeKind::kCall) return;
    std::string_view effect;
    if (node.op == nullptr) {
      effect = "has effects that are not known";
    } else if (is_launch(node) || is_wait(node)) {
      effect = "communicates";
    } else if (node.op->writes) {
      effect = "writes storage";
    } else if (node.op->is_random) {
      effect = "draws random numbers";
    } else if (node.op->is_effectful) {
      effect = "has an effect";
    }
    if (!effect.empty())
      fail(id, "rewrite-added",
           fmt::format("{} and is neither a node of the first graph nor a part of one", effect));
  }

  void check_call(NodeId id) {
    const Node& after = b_.nodes[id];
    const Node& before = a_.nodes[claims_[id].origin];
    const bool is_same = before.kind == after.kind &&
                         (before.kind == NodeKind::kPlaceholder || before.kind == NodeKind::kOutput ||
                          before.target == after.target || (is_reshape(before) && is_reshape(after)));
    if (!is_same)
      return fail(
          id, "rewrite-target",
          fmt::format("its origin {} is {}", name_a(claims_[id].origin), graph_a_.text(before.target)));
    if (before.kind == NodeKind::kGetAttr && !context_.args.equal(before.attr, after.attr))
      return fail(id, "rewrite-argument", "reads another attribute");
    leaf_ = 0;
    if (claims_[id].kind == ClaimKind::kPart && before.op != nullptr &&
        before.op->cost == CostClass::kAttention)
      return check_attention(id);
    check_positional(id, before, after);
    check_keywords(id, before, after);
  }
  // What its part of a mask is, then the rest.
  void check_attention(NodeId id) {
    const Claim& claim = claims_[id];
    std::vector<NodeId> parts;
    for (std::uint32_t k = 0; k < claim.parts; ++k) parts.push_back(part_of(claim.origin, k));
    if (std::ranges::any_of(parts, [](NodeId part) { return !part; })) return;  // check_parts says so
    const AttentionCheck::Restored whole = attention_.restore(claim.origin, parts, claim.part);
    for (const std::string& problem : whole.problems) fail(id, "rewrite-attention", problem);
    check_positional(id, a_.nodes[claim.origin], whole.call);
    check_keywords(id, a_.nodes[claim.origin], whole.call);
  }
  static bool is_reshape(const Node& node) {
    static const OpInfo* const ops[] = {find_op("aten.view.default"), find_op("aten._unsafe_view.default"),
                                        find_op("aten.reshape.default")};
    return node.op != nullptr && std::ranges::find(ops, node.op) != std::end(ops);
  }

  void check_positional(NodeId id, const Node& before, const Node& after) {
    if (before.args.count != after.args.count)
      return fail(id, "rewrite-argument",
                  fmt::format("{} arguments, its origin has {}", after.args.count, before.args.count));
    const std::size_t group = is_launch(after) ? group_position(*after.op) : SIZE_MAX;
    for (std::uint32_t i = 0; i < before.args.count; ++i) {
      const Arg x = context_.args[before.args][i], y = context_.args[after.args][i];
      i == group ? check_group(id, x, y) : check_arg(id, fmt::format("argument {}", i), x, y);
    }
  }

  void check_keywords(NodeId id, const Node& before, const Node& after) {
    auto is_free = [&](std::string_view name) { return name == "non_blocking" && is_copy(after); };
    const std::vector<Arg> kwargs_a = list_kwargs(before), kwargs_b = list_kwargs(after);
    for (std::size_t i = 0; i + 1 < kwargs_a.size(); i += 2) {
      const std::string_view name = context_.text(kwargs_a[i].as_name());
      const Arg* other = find_kwarg(context_, after, name);
      if (is_free(name)) continue;
      if (other == nullptr) {
        fail(id, "rewrite-argument", fmt::format("argument '{}' is gone", name));
      } else if (name == "group_name") {
        check_group(id, kwargs_a[i + 1], *other);
      } else {
        check_arg(id, fmt::format("argument '{}'", name), kwargs_a[i + 1], *other);
      }
    }
    for (std::size_t i = 0; i + 1 < kwargs_b.size(); i += 2)
      if (const std::string_view name = context_.text(kwargs_b[i].as_name());
          !is_free(name) && find_kwarg(context_, before, name) == nullptr)
        fail(id, "rewrite-argument", fmt::format("argument '{}' is new", name));
  }
  std::vector<Arg> list_kwargs(const Node& node) const {
    const auto kwargs = context_.args[node.kwargs];
    return {kwargs.begin(), kwargs.end()};
  }
  static bool is_copy(const Node& node) {
    static const OpInfo* const copy = find_op("aten._to_copy.default");
    return node.op == copy;
  }

  void check_arg(NodeId user, const std::string& where, Arg x, Arg y) {
    if (x.is_tree() && y.is_tree()) {
      const ArgRange before = x.children(), after = y.children();
      if (x.kind() != y.kind() || before.count != after.count)
        return fail(user, "rewrite-argument", fmt::format("{} is another list than its origin's", where));
      for (std::uint32_t i = 0; i < before.count; ++i)
        check_arg(user, fmt::format("{}[{}]", where, i), context_.args[before][i], context_.args[after][i]);
      return;
    }
    if (x.is_node()) return check_value(user, where, x.as_node(), y);
    bool is_same = x == y;
    if (!is_same && x.is(ArgKind::kSymbolic))
      is_same = numbers_.match_scalar(x.as_expr(), y, share_of(user)) != Fraction::kNone;
    if (!is_same)
      fail(user, "rewrite-argument", fmt::format("{} is another constant than its origin's", where));
  }

  // How an argument of a part is taken: by all parts in the same way.
  enum class Taken : std::uint8_t { kNo, kWhole, kPart, kPrevious };

  void check_value(NodeId user, const std::string& where, NodeId x, Arg y) {
    const std::size_t leaf = leaf_++;
    const Taken taken = y.is_node() ? match_value(user, x, y.as_node()) : match_number(user, x, y);
    if (claims_[user].kind == ClaimKind::kPart && taken != Taken::kNo) {
      taken_[{claims_[user].origin, leaf}].push_back({user, taken});
      return;
    }
    if (taken == Taken::kNo)
      fail(user, "rewrite-argument",
           fmt::format("{} is {}, which is not {}{}", where,
                       y.is_node() ? describe(y.as_node()) : std::string("another constant"),
                       claims_[user].kind == ClaimKind::kPart
                           ? fmt::format("part {} or all of ", claims_[user].part)
                           : "",
                       name_a(x)));
  }

  Taken match_number(NodeId user, NodeId x, Arg y) {
    const TypeId type = a_.nodes[x].type;
    if (!type || context_.types[type].kind != TypeKind::kScalar) return Taken::kNo;
    return taken_as(numbers_.match_scalar(context_.types[type].expr, y, share_of(user)));
  }
  // The part that a node is, or all.
  Share share_of(NodeId b) const {
    const Claim& claim = claims_[b];
    return claim.kind == ClaimKind::kPart ? Share{claim.part, claim.parts} : Share{};
  }
  static Taken taken_as(Fraction fraction) {
    if (fraction == Fraction::kNone) return Taken::kNo;
    return fraction == Fraction::kAll ? Taken::kWhole : Taken::kPart;
  }

  Taken match_value(NodeId user, NodeId x, NodeId y) {
    const Claim& claim = claims_[y];
    const Claim& wants = claims_[user];
    const bool is_part = wants.kind == ClaimKind::kPart;
    if (claim.kind == ClaimKind::kSize) {
      const TypeId type = a_.nodes[x].type, size = b_.nodes[y].type;
      if (!type || !size || context_.types[type].kind != TypeKind::kScalar ||
          context_.types[size].kind != TypeKind::kScalar)
        return Taken::kNo;
      return taken_as(numbers_.match_scalar(context_.types[type].expr,
                                            Arg::symbolic(context_.types[size].expr), share_of(user)));
    }
    // Part k of a buffer takes what part k-1 made of it.
    if (is_part && claim.kind == ClaimKind::kPart && claim.origin == wants.origin && wants.part > 0 &&
        claim.part + 1 == wants.part && b_.nodes[user].op != nullptr && b_.nodes[user].op->writes)
      return Taken::kPrevious;
    if (!same_class(claim.origin, x)) return Taken::kNo;
    if (is_whole(y)) return Taken::kWhole;
    if (claim.kind != ClaimKind::kPart && claim.kind != ClaimKind::kPiece) return Taken::kNo;
    const bool is_mine = is_part && claim.part == wants.part && claim.parts == wants.parts;
    if (is_mine) return Taken::kPart;
    const Node& node = b_.nodes[user];
    return !is_part && node.op != nullptr && node.op->reads_types_only ? Taken::kWhole : Taken::kNo;
  }

  // Whether a node of B has all of its origin's value.
  bool is_whole(NodeId b) {
    const Claim& claim = claims_[b];
    if (claim.kind == ClaimKind::kWhole) return true;
    if (claim.kind == ClaimKind::kJoin) return claim.complete;
    return claim.kind == ClaimKind::kPart && claim.part + 1 == claim.parts && is_carried(claim.origin);
  }
  // Every part but the first continues what the one before left.
  bool is_carried(NodeId a) {
    for (NodeId id : parts_[a]) {
      const Claim& claim = claims_[id];
      const Node& node = b_.nodes[id];
      if (node.op == nullptr || !node.op->writes || node.args.empty()) return false;
      const Arg first = context_.args[node.args][0];
      if (!first.is_node()) return false;
      const Claim& from = claims_[first.as_node()];
      const bool continues =
          claim.part == 0 ? from.kind == ClaimKind::kWhole
                          : from.kind == ClaimKind::kPart && from.origin == a && from.part + 1 == claim.part;
      if (!continues) return false;
    }
    return true;
  }

  void check_uniform() {
    for (const auto& [key, uses] : taken_) {
      const Taken first = uses.front().taken;
      bool is_chain = true, is_same = true;
      for (const Use& use : uses) {
        is_chain = is_chain && (use.taken == Taken::kPrevious || claims_[use.user].part == 0);
        is_same = is_same && use.taken == first;
      }
      if (!is_same && !is_chain)
        fail(uses.front().user, "rewrite-part",
             fmt::format("parts of {} do not take their argument in the same way", name_a(key.first)));
    }
  }

  // ------------------------------------------------------------------------- types

  const TensorType* tensor_a(NodeId id) const { return tensor_of(context_, a_.nodes[id].type); }
  const TensorType* tensor_b(NodeId id) const { return tensor_of(context_, b_.nodes[id].type); }

  void check_type(NodeId id) {
    const TensorType* before = tensor_a(claims_[id].origin);
    const TensorType* after = tensor_b(id);
    if (before == nullptr || after == nullptr) return;
    bool is_same = before->dtype == after->dtype && before->sizes.size() == after->sizes.size();
    for (std::size_t i = 0; is_same && i < before->sizes.size(); ++i)
      is_same = numbers_.match(before->sizes[i], after->sizes[i], {}) != Fraction::kNone;
    if (!is_same)
      fail(id, "rewrite-type",
           fmt::format("is {}, its origin {}", print_type(context_, b_.nodes[id].type),
                       print_type(context_, a_.nodes[claims_[id].origin].type)));
  }

  // Whether a part has the sizes of the whole but for its share along `dim`; dim -1: exactly the sizes.
  bool has_part_sizes(NodeId part, NodeId origin, std::int64_t dim) {
    const TensorType* whole = tensor_a(origin);
    const TensorType* piece = tensor_b(part);
    if (whole == nullptr || piece == nullptr || whole->sizes.size() != piece->sizes.size()) return false;
    for (std::size_t i = 0; i < whole->sizes.size(); ++i) {
      const bool is_cut = static_cast<std::int64_t>(i) == dim;
      if (!numbers_.is_share(whole->sizes[i], piece->sizes[i], is_cut ? share_of(part) : Share{}))
        return false;
    }
    return true;
  }

  // ------------------------------------------------------------------------- splits and joins

  // A dimension argument, from the front; -1 if it is none.
  std::int64_t dim_of(const Node& node, std::size_t position, std::size_t rank) const {
    const Arg* arg = find_arg(context_, node, position, "dim");
    const std::int64_t dim = arg == nullptr ? 0 : arg->is_int() ? arg->as_int() : -1000;
    const auto n = static_cast<std::int64_t>(rank);
    if (dim < -n || dim >= n) return -1;
    return dim < 0 ? dim + n : dim;
  }

  void check_split(NodeId id) {
    const Node& node = b_.nodes[id];
    const NodeId origin = claims_[id].origin;
    const auto args = context_.args[node.args];
    const TensorType* type = tensor_a(origin);
    if (type == nullptr || args.size() < 2 || !args[0].is_node() || !args[1].is_list())
      return fail(id, "rewrite-split", "is not a split of a tensor");
    NodeId source = args[0].as_node();
    std::int64_t dim = dim_of(node, 2, type->sizes.size() + (is_in_blocks(source) ? 1 : 0));
    ExprId blocks;
    if (is_in_blocks(source)) {
      const NodeId whole = first_input(source);
      blocks = whole ? blocks_of(source, whole, dim - 1) : ExprId();
      if (!blocks) return fail(id, "rewrite-split", fmt::format("splits no blocks of {}", name_a(origin)));
      source = whole;
      --dim;
    }
    if (!same_class(claims_[source].origin, origin) || !is_whole(source))
      return fail(id, "rewrite-split",
                  fmt::format("splits {}, not all of {}", describe(source), name_a(origin)));
    if (dim < 0) return fail(id, "rewrite-split", "has a dimension that its operand lacks");
    const auto sizes = context_.args.children(args[1]);
    const auto n = static_cast<std::uint32_t>(sizes.size());
    for (std::uint32_t k = 0; k < n; ++k) {
      ExprId size = extent_of_size(sizes[k]);
      if (size && blocks) size = numbers_.multiply(size, blocks);
      if (!size ||
          numbers_.match(type->sizes[static_cast<std::size_t>(dim)], size, {k, n}) != Fraction::kPart)
        return fail(id, "rewrite-split",
                    fmt::format("part {} is not that of dimension {} of {}", k, dim, name_a(origin)));
    }
  }

  // ------------------------------------------------------------------------- blocks
  //
  // A dimension of 4*s rows in 4 blocks is viewed as [4, s], split or joined along the second, and viewed as
  // one dimension again.

  bool is_in_blocks(NodeId b) const {
    return claims_[b].kind == ClaimKind::kBlocks && is_reshape(b_.nodes[b]);
  }
  NodeId first_input(NodeId b) const {
    const auto args = context_.args[b_.nodes[b].args];
    return !args.empty() && args[0].is_node() ? args[0].as_node() : NodeId();
  }
  // The number of blocks, where `view` has dimension `dim` of `rows` as blocks and their rows, and all others
  // as they are.
  ExprId blocks_of(NodeId view, NodeId rows, std::int64_t dim) {
    const TensorType *inner = tensor_b(view), *outer = tensor_b(rows);
    if (inner == nullptr || outer == nullptr || dim < 0 || dim >= std::ssize(outer->sizes) ||
        inner->sizes.size() != outer->sizes.size() + 1)
      return {};
    const auto at = static_cast<std::size_t>(dim);
    for (std::size_t i = 0; i < outer->sizes.size(); ++i) {
      const ExprId size = i < at    ? inner->sizes[i]
                          : i == at ? numbers_.multiply(inner->sizes[i], inner->sizes[i + 1])
                                    : inner->sizes[i + 1];
      if (!numbers_.is_same(outer->sizes[i], size)) return {};
    }
    return inner->sizes[at];
  }

  // Part k of `origin` as rows, from a piece of a split of its blocks.
  bool is_piece_of_blocks(NodeId id, const Claim& claim) {
    NodeId piece = first_input(id);
    if (!piece || claims_[piece].kind != ClaimKind::kPiece || claims_[piece].part != claim.part) return false;
    NodeId element = piece;
    while (element && claims_[element].kind == ClaimKind::kPiece) element = first_input(element);
    if (!element || claims_[element].kind != ClaimKind::kSplit || claims_[element].origin != claim.origin)
      return false;
    const NodeId source = first_input(element);
    const TensorType* in_blocks = source ? tensor_b(source) : nullptr;
    if (in_blocks == nullptr || !is_in_blocks(source)) return false;
    const std::int64_t dim = dim_of(b_.nodes[element], 2, in_blocks->sizes.size());
    const ExprId blocks = blocks_of(piece, id, dim - 1);
    return blocks && numbers_.is_same(blocks, in_blocks->sizes[static_cast<std::size_t>(dim - 1)]);
  }

  void check_joined_blocks(NodeId id) {
    const NodeId origin = claims_[id].origin, joined = first_input(id);
    const TensorType *type = tensor_a(origin), *in_blocks = joined ? tensor_b(joined) : nullptr;
    const auto args = joined ? context_.args[b_.nodes[joined].args] : std::span<const Arg>();
    if (type == nullptr || in_blocks == nullptr || args.empty() || !args[0].is_list())
      return fail(id, "rewrite-join", "does not join blocks");
    const std::int64_t dim = dim_of(b_.nodes[joined], 1, in_blocks->sizes.size());
    const ExprId blocks = blocks_of(joined, id, dim - 1);
    const auto items = context_.args.children(args[0]);
    const std::uint32_t n = part_count(origin);
    if (!blocks || items.size() != n)
      return fail(id, "rewrite-join", fmt::format("does not join the {} parts of {}", n, name_a(origin)));
    for (std::uint32_t k = 0; k < n; ++k) {
      const NodeId item = items[k].is_node() ? items[k].as_node() : NodeId();
      const NodeId part = item && is_in_blocks(item) ? first_input(item) : NodeId();
      const ExprId part_blocks = part ? blocks_of(item, part, dim - 1) : ExprId();
      if (!part_blocks || part != part_of(origin, k) || !numbers_.is_same(blocks, part_blocks) ||
          !has_part_sizes(part, origin, dim - 1))
        return fail(id, "rewrite-join",
                    fmt::format("element {} is not part {} of {} in blocks", k, k, name_a(origin)));
    }
  }
  // How the tokens are divided: as the first split, or join of parts, into so many.
  void learn_divisions() {
    for (NodeId id : b_.order) {
      const Claim& claim = claims_[id];
      const bool is_cut = claim.kind == ClaimKind::kSplit;
      if (!is_cut && !(claim.kind == ClaimKind::kJoin && claim.complete)) continue;
      const auto args = context_.args[b_.nodes[id].args];
      const TensorType* type = tensor_a(claim.origin);
      const std::size_t list = is_cut ? 1 : 0;
      if (type == nullptr || args.size() <= list || !args[list].is_list()) continue;
      const bool is_block_cut = is_cut && args[0].is_node() && is_in_blocks(args[0].as_node());
      const std::int64_t dim = dim_of(b_.nodes[id], list + 1, type->sizes.size() + (is_block_cut ? 1 : 0)) -
                               (is_block_cut ? 1 : 0);
      if (dim < 0) continue;
      std::vector<ExprId> parts;
      for (const Arg& item : context_.args.children(args[list])) {
        ExprId part = is_cut ? extent_of_size(item) : extent_of_part(item, dim);
        if (part && is_block_cut)
          part = numbers_.multiply(part, tensor_b(args[0].as_node())->sizes[static_cast<std::size_t>(dim)]);
        if (part) parts.push_back(part);
      }
      if (parts.size() == context_.args.children(args[list]).size())
        numbers_.learn_division(type->sizes[static_cast<std::size_t>(dim)], parts);
    }
  }
  ExprId extent_of_size(Arg size) {
    const Arg value = size.is_node() ? scalar_of(size.as_node()) : size;
    if (value.is_int()) return context_.exprs.number(value.as_int());
    return value.is(ArgKind::kSymbolic) ? value.as_expr() : ExprId();
  }
  ExprId extent_of_part(Arg part, std::int64_t dim) const {
    const TensorType* type = part.is_node() ? tensor_b(part.as_node()) : nullptr;
    const bool has_dim = type != nullptr && dim < std::ssize(type->sizes);
    return has_dim ? type->sizes[static_cast<std::size_t>(dim)] : ExprId();
  }
  Arg scalar_of(NodeId b) const {
    const TypeId type = b_.nodes[b].type;
    return type && context_.types[type].kind == TypeKind::kScalar ? Arg::symbolic(context_.types[type].expr)
                                                                  : Arg();
  }

  void check_piece(NodeId id) {
    static const OpInfo* const getitem = find_op("operator.getitem");
    static const OpInfo* const clone = find_op("aten.clone.default");
    const Node& node = b_.nodes[id];
    const Claim& claim = claims_[id];
    const auto args = context_.args[node.args];
    if (args.empty() || !args[0].is_node()) return fail(id, "rewrite-split", "is not a piece of a split");
    const Claim& from = claims_[args[0].as_node()];
    const bool is_element = node.op == getitem && from.kind == ClaimKind::kSplit && args.size() == 2 &&
                            args[1].is_int() && args[1].as_int() == claim.part;
    const bool is_copy_of_piece =
        node.op == clone && from.kind == ClaimKind::kPiece && from.part == claim.part;
    const bool is_view = is_reshape(node) && is_piece_of_blocks(id, claim);
    if ((!is_element && !is_copy_of_piece && !is_view) || from.origin != claim.origin)
      fail(id, "rewrite-split", fmt::format("is not piece {} of {}", claim.part, name_a(claim.origin)));
  }

  void check_join(NodeId id) {
    static const OpInfo* const cat = find_op("aten.cat.default");
    if (parts_[claims_[id].origin].empty())
      return fail(id, "rewrite-join", fmt::format("{} has no parts", name_a(claims_[id].origin)));
    if (is_reshape(b_.nodes[id])) return check_joined_blocks(id);
    b_.nodes[id].op == cat ? check_cat(id) : check_sum(id);
  }

  void check_cat(NodeId id) {
    const Node& node = b_.nodes[id];
    const NodeId origin = claims_[id].origin;
    const std::uint32_t n = part_count(origin);
    const auto args = context_.args[node.args];
    const TensorType* type = tensor_a(origin);
    if (type == nullptr || args.empty() || !args[0].is_list())
      return fail(id, "rewrite-join", "does not join tensors");
    const auto items = context_.args.children(args[0]);
    if (items.size() != n)
      return fail(id, "rewrite-join",
                  fmt::format("joins {} of the {} parts of {}", items.size(), n, name_a(origin)));
    const std::int64_t dim = dim_of(node, 1, type->sizes.size());
    for (std::uint32_t k = 0; k < n; ++k) {
      const NodeId item = items[k].is_node() ? items[k].as_node() : NodeId();
      if (!item || item != part_of(origin, k))
        return fail(id, "rewrite-join",
                    fmt::format("element {} is {}, not part {} of {}", k,
                                item ? describe(item) : "a constant", k, name_a(origin)));
      if (dim < 0 || !has_part_sizes(item, origin, dim))
        return fail(id, "rewrite-join",
                    fmt::format("{} has not its share of {} along dimension {}", describe(item),
                                name_a(origin), dim));
    }
  }

  // ((p0 + p1) + p2) + ..., or from the last part to the first.
  void check_sum(NodeId id) {
    static const OpInfo* const add = find_op("aten.add.Tensor");
    static const OpInfo* const scalar_add = find_op("operator.add");
    const Node& node = b_.nodes[id];
    Claim& claim = claims_[id];
    const auto args = context_.args[node.args];
    const bool is_tensor = tensor_a(claim.origin) != nullptr;
    if (node.op != (is_tensor ? add : scalar_add) || args.size() != 2 || !node.kwargs.empty() ||
        !args[0].is_node() || !args[1].is_node())
      return fail(id, "rewrite-join", "is neither a cat nor a sum of two");
    const NodeId left = args[0].as_node(), right = args[1].as_node();
    const std::uint32_t n = part_count(claim.origin), k = claims_[right].part;
    const Claim& before = claims_[left];
    const bool is_sum =
        before.kind == ClaimKind::kJoin && before.origin == claim.origin && before.first_part != before.part;
    const std::uint32_t first = is_sum ? before.first_part : before.part;
    const bool is_start = is_sum || ((first == 0 || first + 1 == n) && left == part_of(claim.origin, first));
    const bool is_next =
        right == part_of(claim.origin, k) && (first == 0 ? k == before.part + 1 : k + 1 == before.part);
    if (!is_start || !is_next)
      return fail(
          id, "rewrite-join",
          fmt::format("adds {} and {}, not the parts of {} from the first to the last, nor from the last to "
                      "the first",
                      describe(left), describe(right), name_a(claim.origin)));
    if (is_tensor && (!has_part_sizes(right, claim.origin, -1) || !has_part_sizes(left, claim.origin, -1)))
      return fail(id, "rewrite-join",
                  fmt::format("adds parts that have not the size of {}", name_a(claim.origin)));
    claim.first_part = first;
    claim.part = k;
    claim.parts = n;
    claim.complete = first == 0 ? k + 1 == n : k == 0;
  }

  // ------------------------------------------------------------------------- effects

  // What the node sees of storage that others write.
  void check_effects(NodeId id) {
    const NodeId origin = claims_[id].origin;
    // A view became a reshape, which counts as reading what it may copy.
    if (is_reshape(b_.nodes[id]) && b_.nodes[id].target != a_.nodes[origin].target) return;
    const auto before = writers_a_.seen_by(origin);
    for (NodeId writer : writers_b_.seen_by(id)) {
      const bool is_expected = continues(id, writer) || std::ranges::any_of(before, [&](NodeId x) {
                                 return stands_for_write(id, writer, x);
                               });
      if (!is_expected)
        return fail(id, "rewrite-effects",
                    fmt::format("comes behind {}, which wrote the storage last; {}", describe(writer),
                                before.empty()
                                    ? "its origin sees it unwritten"
                                    : fmt::format("its origin sees what {} wrote", name_a(before.back()))));
    }
    for (NodeId x : before) {
      const bool is_seen = std::ranges::any_of(writers_b_.seen_by(id), [&](NodeId writer) {
        return continues(id, writer) || stands_for_write(id, writer, x);
      });
      if (!is_seen)
        return fail(id, "rewrite-effects",
                    fmt::format("does not see what {} wrote, as its origin does", name_a(x)));
    }
  }
  // Part k sees what part k-1 of the same update left.
  bool continues(NodeId id, NodeId writer) const {
    const Claim& claim = claims_[id];
    const Claim& from = claims_[writer];
    return claim.kind == ClaimKind::kPart && from.kind == ClaimKind::kPart && from.origin == claim.origin &&
           from.part + 1 == claim.part;
  }
  bool stands_for_write(NodeId id, NodeId writer, NodeId x) {
    const Claim& claim = claims_[id];
    const Claim& from = claims_[writer];
    if (!same_class(from.origin, x)) return false;
    if (from.kind == ClaimKind::kWhole) return true;
    if (from.kind != ClaimKind::kPart) return false;
    return claim.kind == ClaimKind::kPart ? from.part == claim.part : from.part + 1 == from.parts;
  }

  // A guard computes nothing: it stops a step that the graph was not traced for.
  bool is_guard(const Node& node) const {
    return graph_a_.text(node.target).find("assert") != std::string_view::npos;
  }

  // Writes to storage that outlives the step, ops kept for their effect alone, ops of unknown effects, and
  // random draws (each changes the numbers of all later ones) must be there.
  void check_updates() {
    for (NodeId id : a_.order) {
      const Node& node = a_.nodes[id];
      if (node.kind != NodeKind::kCall || whole_[id] || !parts_[id].empty()) continue;
      bool is_update = node.op == nullptr || node.op->is_random || (node.op->is_effectful && !is_guard(node));
      for (const StorageAccess& access : writers_a_.effects().accesses_of(id))
        is_update = is_update ||
                    (access.writes && !is_wait(node) && a_.nodes[access.storage].kind != NodeKind::kCall);
      if (!is_update) continue;
      const NodeId merged = whole_[find_class(id)];
      if (merged) continue;
      const std::string_view why = node.op == nullptr   ? "; its effects are not known"
                                   : node.op->is_random ? "; all later draws give other numbers"
                                                        : "";
      fail_in_a(id, "rewrite-update", fmt::format("the second graph does not do it{}", why));
    }
  }

  // What the step leaves in its inputs, its attributes and what it returns comes from the same last write.
  void check_last_writes() {
    for (NodeId id : a_.order)
      if (const NodeId after = whole_[id]; after && a_.nodes[id].kind != NodeKind::kCall)
        check_last_write(after, id, after);
    if (a_.order.empty()) return;
    const NodeId output = a_.order.back(), after = whole_[output];
    if (a_.nodes[output].kind != NodeKind::kOutput || !after) return;
    check_returned(after, a_.nodes[output].args, b_.nodes[after].args);
  }
  void check_returned(NodeId output, ArgRange before, ArgRange after) {
    if (before.count != after.count) return;  // check_positional says so
    for (std::uint32_t i = 0; i < before.count; ++i) {
      const Arg x = context_.args[before][i], y = context_.args[after][i];
      if (x.is_tree() && y.is_tree()) check_returned(output, x.children(), y.children());
      if (x.is_node() && y.is_node()) check_last_write(output, x.as_node(), y.as_node());
    }
  }
  void check_last_write(NodeId site, NodeId before, NodeId after) {
    const NodeId x = writers_a_.last_to(before), y = writers_b_.last_to(after);
    const bool is_same = !y ? !x || is_joined_behind(after, x) : x && stands_for_write(site, y, x);
    if (is_same) return;
    const NodeId join = writers_b_.effects().storage_of(after);
    const std::string wrote = y                    ? fmt::format("{} wrote it last", describe(y))
                              : is_join(join) && x ? fmt::format("{} joins its parts before", name_b(join))
                                                   : "nothing writes it";
    const std::string should = x ? fmt::format("{} did", name_a(x)) : "nothing did";
    fail(
        site, "rewrite-effects",
        fmt::format("leaves {} in another state: {}; in the first graph {}", describe(after), wrote, should));
  }
  bool is_join(NodeId b) const {
    return claims_[b].kind == ClaimKind::kJoin || claims_[b].kind == ClaimKind::kBlocks;
  }
  // Whether the value is made of parts that are joined when all that stands for the write is done.
  bool is_joined_behind(NodeId value, NodeId write) {
    const NodeId join = writers_b_.effects().storage_of(value);
    if (!is_join(join)) return false;
    const NodeId whole = whole_[write] ? whole_[write] : whole_[find_class(write)];
    if (whole) return positions_[whole] < positions_[join];
    return !parts_[write].empty() && std::ranges::all_of(parts_[write], [&](NodeId part) {
      return positions_[part] < positions_[join];
    });
  }

  void check_order() {
    for (const OrderEdge& edge : writers_a_.effects().order_edges()) {
      if (edge.reason != OrderReason::kRandom && edge.reason != OrderReason::kUnknownEffect) continue;
      const NodeId before = whole_[edge.before], after = whole_[edge.after];
      if (before && after && positions_[before] > positions_[after])
        fail(
            after, "rewrite-order",
            fmt::format("comes before {}; the other way around it {}", name_b(before), name_of(edge.reason)));
    }
    for (NodeId a : a_.order)
      if (a_.nodes[a].op != nullptr && a_.nodes[a].op->is_random && !parts_[a].empty())
        fail_in_a(a, "rewrite-order", "draws random numbers and is divided");
  }

  // ------------------------------------------------------------------------- communication

  void check_group(NodeId id, Arg x, Arg y) {
    if (x.is_node() && y.is_node()) return check_arg(id, "the group", x, y);
    auto name = [](Arg arg) {
      return arg.is(ArgKind::kText) || arg.is(ArgKind::kProcessGroup) ? arg.as_name() : StringId();
    };
    const StringId before = name(x);
    StringId after = name(y);
    if (before && before == after) return;
    // A group split from the one it was, with the same ranks.
    const ProcessGroup* was = find_group(graph_a_, before);
    const ProcessGroup* is = find_group(graph_b_, after);
    if (was == nullptr || is == nullptr || is->split_from != before || was->ranks != is->ranks)
      fail(
          id, "rewrite-group",
          fmt::format("runs on group '{}', its origin on '{}'", graph_b_.text(after), graph_a_.text(before)));
  }
  // The same name is the same group.
  void check_groups() {
    for (const ProcessGroup& group : graph_a_.groups) {
      const ProcessGroup* after = find_group(graph_b_, group.name);
      if (after != nullptr && after->ranks != group.ranks)
        result_.violations.push_back(
            {"rewrite-group",
             fmt::format("group '{}' has ranks [{}], in the first graph [{}]", graph_a_.text(group.name),
                         fmt::join(after->ranks, ", "), fmt::join(group.ranks, ", ")),
             {},
             {}});
    }
  }
  static const ProcessGroup* find_group(const Graph& graph, StringId name) {
    for (const ProcessGroup& group : graph.groups)
      if (name && group.name == name) return &group;
    return nullptr;
  }

  // A copy is read behind something that makes the host wait for it, unless A does not wait either.
  void check_host_reads() {
    std::set<std::pair<NodeId, NodeId>> known;  // copy and reader in A
    visit_early_reads(writers_a_.effects(), a_, a_.order, [&](NodeId copy, NodeId reader) {
      known.insert({find_class(copy), find_class(reader)});
    });
    auto stands_for = [&](NodeId b) {
      const Claim& claim = claims_[b];
      const bool is_of_a = claim.kind == ClaimKind::kWhole || claim.kind == ClaimKind::kPart;
      return is_of_a ? find_class(claim.origin) : NodeId();
    };
    visit_early_reads(writers_b_.effects(), b_, b_.order, [&](NodeId copy, NodeId reader) {
      if (!known.contains({stands_for(copy), stands_for(reader)}))
        fail(reader, "rewrite-host-read",
             fmt::format("reads {} before anything waited for the copy", name_b(copy)));
    });
  }

  // ------------------------------------------------------------------------- nested graphs

  // Node by node in the same order.
  void check_nested() {
    for (std::size_t i = 1; i < graph_a_.bodies.size(); ++i) {
      const Body& before = graph_a_.bodies[i];
      const Body* after = graph_b_.find_body(before.name);
      if (after == nullptr || !same_nested(before, *after))
        result_.violations.push_back(
            {"rewrite-nested", "is not what it is in the first graph", {}, before.name});
    }
  }
  bool same_nested(const Body& before, const Body& after) {
    if (before.order.size() != after.order.size()) return false;
    SideTable<NodeId, NodeId> image;
    for (std::size_t i = 0; i < before.order.size(); ++i) {
      const Node& x = before.nodes[before.order[i]];
      const Node& y = after.nodes[after.order[i]];
      const bool is_same_call = x.kind == y.kind && (x.kind != NodeKind::kCall || x.target == y.target) &&
                                same_nested(x.args, y.args, image) &&
                                same_nested(x.kwargs, y.kwargs, image) && context_.args.equal(x.attr, y.attr);
      if (!is_same_call) return false;
      image.at(before.order[i]) = after.order[i];
    }
    return true;
  }
  bool same_nested(ArgRange x, ArgRange y, const SideTable<NodeId, NodeId>& image) {
    if (x.count != y.count) return false;
    for (std::uint32_t i = 0; i < x.count; ++i) {
      const Arg p = context_.args[x][i], q = context_.args[y][i];
      const bool is_same =
          p.is_tree() && q.is_tree() ? p.kind() == q.kind() && same_nested(p.children(), q.children(), image)
          : p.is_node() && q.is_node() ? image[p.as_node()] == q.as_node()
          : p.is(ArgKind::kSymbolic)   ? numbers_.match_scalar(p.as_expr(), q, {}) != Fraction::kNone
                                       : p == q;
      if (!is_same) return false;
    }
    return true;
  }

  // ------------------------------------------------------------------------- numerics

  bool is_floating_value(NodeId id) const {
    const TensorType* type = tensor_b(id);
    return type != nullptr && is_floating(type->dtype);
  }

  void classify() {
    for (NodeId id : b_.order) {
      Numerics& numerics = numerics_[id];
      for (NodeId input : inputs_b_[id]) numerics = std::max(numerics, numerics_[input]);
      for (NodeId writer : writers_b_.seen_by(id)) numerics = std::max(numerics, numerics_[writer]);
      if (!is_floating_value(id)) continue;
      const Claim& claim = claims_[id];
      static const OpInfo* const add = find_op("aten.add.Tensor");
      const bool regroups = (claim.kind == ClaimKind::kJoin && b_.nodes[id].op == add) ||
                            (claim.kind == ClaimKind::kPart && is_carried(claim.origin));
      if (regroups) {
        numerics = Numerics::kSumOrder;
      } else if (claim.kind == ClaimKind::kPart) {
        numerics = std::max(numerics, Numerics::kChunkEqual);
      }
    }
    list_outputs();
  }

  void list_outputs() {
    if (b_.order.empty()) return;
    const Node& output = b_.nodes[b_.order.back()];
    std::vector<NodeId> returned;
    if (output.kind == NodeKind::kOutput && !output.args.empty()) {
      const Arg result = context_.args[output.args].front();
      const auto items = result.is_list() ? context_.args.children(result) : context_.args[output.args];
      for (const Arg& item : items) returned.push_back(item.is_node() ? item.as_node() : NodeId());
    }
    for (std::size_t i = 0; i < returned.size(); ++i) {
      std::string what = fmt::format("output {}", i);
      if (i < graph_b_.outputs.size() && graph_b_.outputs[i].role) {
        const OutputRole& role = graph_b_.outputs[i];
        what = role.fqn ? fmt::format("{} of {}", graph_b_.text(role.role), graph_b_.text(role.fqn))
                        : std::string(graph_b_.text(role.role));
      }
      if (returned[i])
        result_.outputs.push_back(
            {what, std::string(graph_b_.text(b_.nodes[returned[i]].name)), numerics_[returned[i]]});
    }
    list_updates();
  }

  // The last write to each input.
  void list_updates() {
    SideTable<NodeId, NodeId> last;
    for (NodeId id : b_.order)
      for (const StorageAccess& access : writers_b_.effects().accesses_of(id))
        if (access.writes && !is_wait(b_.nodes[id])) last.at(access.storage) = id;
    std::size_t position = 0;
    for (NodeId id : b_.order) {
      if (b_.nodes[id].kind != NodeKind::kPlaceholder) continue;
      const StringId fqn = position < graph_b_.inputs.size() ? graph_b_.inputs[position].fqn : StringId();
      ++position;
      if (const NodeId writer = last[id])
        result_.outputs.push_back({fmt::format("update of {}", graph_b_.text(fqn ? fqn : b_.nodes[id].name)),
                                   std::string(graph_b_.text(b_.nodes[writer].name)), numerics_[writer]});
    }
  }

  struct Use {
    NodeId user;
    Taken taken;
  };

  const Graph& graph_a_;
  const Graph& graph_b_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  Numbers numbers_;
  SameValues values_;
  AttentionCheck attention_;
  Writers writers_a_, writers_b_;
  IdVector<NodeId, Claim> claims_;
  IdVector<NodeId, Numerics> numerics_;
  IdVector<NodeId, NodeId> class_;
  IdVector<NodeId, NodeId> whole_;
  IdVector<NodeId, std::vector<NodeId>> parts_;
  NodeLists inputs_b_;
  IdVector<NodeId, std::uint32_t> positions_;  // in B
  SideTable<StringId, NodeId> names_;
  std::map<std::pair<NodeId, std::size_t>, std::vector<Use>> taken_;
  std::size_t leaf_ = 0;
  RewriteReport result_;
};

}  // namespace

std::string_view name_of(Numerics numerics) {
  static constexpr std::array<std::string_view, 3> kNames = {"reorder", "chunk-equal", "sum-order"};
  return kNames[static_cast<std::size_t>(numerics)];
}

RewriteReport verify_rewrite(const Graph& a, const Graph& b) {
  EPWEAVE_CHECK(a.context == b.context);
  EPWEAVE_CHECK(!a.bodies.empty() && !b.bodies.empty());
  if (!derives_from(a, b) && share_origins(a, b)) {
    const Graph rebased = rebase_provenance(a, b);
    return RewriteVerifier(a, rebased).run();
  }
  return RewriteVerifier(a, b).run();
}

}  // namespace epweave
