#include "compare/pairing.h"

#include <array>
#include <unordered_map>

#include "compare/lineage.h"

namespace epweave {
namespace {

BodyPairing make_pairing(const Body& a, const Body& b) {
  BodyPairing pairing;
  pairing.origin.resize(b.nodes.size());
  pairing.part.resize(b.nodes.size(), kNoPart);
  pairing.made_for.resize(b.nodes.size());
  pairing.absorbed_by.resize(a.nodes.size());
  return pairing;
}

SideTable<StringId, NodeId> index_names(const Body& body) {
  SideTable<StringId, NodeId> nodes;
  for (NodeId id : body.order) nodes.at(body.nodes[id].name) = id;
  return nodes;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ hash >> 32;
}

enum class Constants : std::uint8_t { kCount, kLeaveOut };

// Pairs calls whose inputs are paired.
class StructurePairer {
 public:
  StructurePairer(const Graph& graph_a, const Body& a, const Graph& graph_b, const Body& b,
                  const PairingOptions& options)
      : graph_a_(graph_a),
        graph_b_(graph_b),
        context_(*graph_a.context),
        a_(a),
        b_(b),
        options_(options),
        pairing_(make_pairing(a, b)),
        is_paired_(a.nodes.size()),
        itself_(a.nodes.size()),
        names_(index_names(a)) {
    for (std::uint32_t i = 0; i < a.nodes.size(); ++i) itself_[NodeId(i)] = NodeId(i);
    number_placeholders(a, position_a_);
    number_placeholders(b, position_b_);
  }

  BodyPairing run() {
    pair_parts();
    Index exact = index(Constants::kCount);
    for (NodeId id : b_.order)
      if (!pairing_.origin[id]) pair_by_key(exact, id, Constants::kCount);
    Index loose = index(Constants::kLeaveOut);
    for (NodeId id : b_.order) {
      if (pairing_.origin[id]) continue;
      if (pair_by_key(exact, id, Constants::kCount) || pair_by_name(id, Module::kSame)) continue;
      pair_by_key(loose, id, Constants::kLeaveOut);
    }
    for (NodeId id : b_.order)
      if (!pairing_.origin[id]) pair_by_name(id, Module::kAny);
    pair_the_rest();
    return std::move(pairing_);
  }

 private:
  struct Bucket {
    std::vector<NodeId> nodes;
    std::size_t next = 0;  // those before it are paired
  };
  using Index = std::unordered_map<std::uint64_t, Bucket>;
  enum class Module : std::uint8_t { kSame, kAny };

  static void number_placeholders(const Body& body, SideTable<NodeId, std::size_t>& positions) {
    std::size_t next = 0;
    for (NodeId id : body.order)
      if (body.nodes[id].kind == NodeKind::kPlaceholder) positions.at(id) = next++;
  }

  Index index(Constants constants) {
    Index index;
    for (NodeId id : a_.order)
      if (!is_paired_.contains(id)) index[key_of(graph_a_, a_, id, itself_, constants)].nodes.push_back(id);
    return index;
  }

  std::uint64_t key_of(const Graph& graph, const Body& body, NodeId id,
                       const IdVector<NodeId, NodeId>& identity, Constants constants) const {
    const Node& node = body.nodes[id];
    std::uint64_t key = mix(1, static_cast<std::uint64_t>(node.kind));
    if (node.kind == NodeKind::kPlaceholder)
      return mix(key, role_key(graph, body, (&body == &a_ ? position_a_ : position_b_)[id]));
    if (node.kind == NodeKind::kOutput) return key;
    key = mix(key, node.target.index());
    if (node.kind == NodeKind::kGetAttr) return mix(key, arg_key(node.attr, identity, constants));
    for (ArgRange range : {node.args, node.kwargs})
      for (std::uint32_t i = 0; i < range.count; ++i)
        key = mix(key, arg_key(context_.args[range][i], identity, constants));
    return key;
  }

  // By what the value is to the model where that is known, else by position.
  std::uint64_t role_key(const Graph& graph, const Body& body, std::size_t position) const {
    if (&body != &graph.step() || position >= graph.inputs.size()) return position;
    const InputRole& role = graph.inputs[position];
    if (!role.fqn) return mix(role.role.index(), position);
    std::uint64_t key = mix(mix(role.role.index(), role.fqn.index()), role.which.index());
    const auto more = context_.args[role.more];
    for (std::size_t i = 0; i + 1 < more.size(); i += 2)
      if (context_.text(more[i].as_name()) == "inner")
        key = mix(key, arg_key(more[i + 1], itself_, Constants::kCount));
    return key;
  }

  std::uint64_t arg_key(Arg arg, const IdVector<NodeId, NodeId>& identity, Constants constants) const {
    const auto kind = static_cast<std::uint64_t>(arg.kind());
    if (arg.is_node()) {
      const NodeId id = identity[arg.as_node()];
      return mix(kind, id ? id.index() : ~std::uint64_t{0} - arg.as_node().index());
    }
    if (arg.is_tree()) {
      std::uint64_t key = mix(kind, arg.children().count);
      for (std::uint32_t i = 0; i < arg.children().count; ++i)
        key = mix(key, arg_key(context_.args.children(arg)[i], identity, constants));
      return key;
    }
    if (constants == Constants::kLeaveOut) return 0;
    if (arg.is(ArgKind::kSymbolic)) return mix(kind, context_.exprs.poly(arg.as_expr()).index());
    return mix(kind, arg.bits());
  }

  static bool names_whole(const Node& node) {
    return node.chunk.original_name && node.chunk.part.value_or(-1) >= 0;
  }

  // What A's own parts were made from: A was divided there already, also where it still has the
  // node.
  IdSet<StringId> list_divided_in_a() const {
    IdSet<StringId> divided;
    for (NodeId id : a_.order)
      if (names_whole(a_.nodes[id])) divided.insert(a_.nodes[id].chunk.original_name);
    return divided;
  }

  // torchtitan's chunker names the node that a part was made from.
  void pair_parts() {
    if (!options_.use_names) return;
    const IdSet<StringId> divided_in_a = list_divided_in_a();
    for (NodeId id : b_.order) {
      const Node& node = b_.nodes[id];
      if (!names_whole(node) || divided_in_a.contains(node.chunk.original_name)) continue;
      const NodeId whole = names_[node.chunk.original_name];
      if (!whole || a_.nodes[whole].chunk.part || a_.nodes[whole].target != node.target) continue;
      pair(whole, id);
      pairing_.part[id] = static_cast<std::uint32_t>(*node.chunk.part);
    }
  }

  bool pair_by_key(Index& index, NodeId id, Constants constants) {
    const auto found = index.find(key_of(graph_b_, b_, id, pairing_.origin, constants));
    if (found == index.end()) return false;
    Bucket& bucket = found->second;
    while (bucket.next < bucket.nodes.size() && is_paired_.contains(bucket.nodes[bucket.next])) ++bucket.next;
    if (bucket.next == bucket.nodes.size()) return false;
    NodeId chosen = bucket.nodes[bucket.next];
    const std::size_t end = std::min(bucket.nodes.size(), bucket.next + kMaxCandidates);
    for (std::size_t i = bucket.next; options_.use_names && i < end; ++i)
      if (a_.nodes[bucket.nodes[i]].name == b_.nodes[id].name && !is_paired_.contains(bucket.nodes[i]))
        chosen = bucket.nodes[i];
    return pair(chosen, id);
  }

  bool pair_by_name(NodeId id, Module module) {
    if (!options_.use_names) return false;
    const Node& node = b_.nodes[id];
    const NodeId candidate = names_[node.name];
    if (!candidate || is_paired_.contains(candidate)) return false;
    const Node& other = a_.nodes[candidate];
    if (other.kind != node.kind || (node.kind == NodeKind::kCall && other.target != node.target))
      return false;
    if (module == Module::kSame && other.module != node.module) return false;
    return pair(candidate, id);
  }

  // The k-th call of a target in a module and direction with the k-th.
  void pair_the_rest() {
    auto key_of_place = [](const Node& node) {
      return mix(mix(mix(static_cast<std::uint64_t>(node.kind), node.target.index()), node.module.index()),
                 node.is_backward() ? 1 : 0);
    };
    std::unordered_map<std::uint64_t, std::vector<NodeId>> left;
    for (auto id = a_.order.rbegin(); id != a_.order.rend(); ++id)
      if (!is_paired_.contains(*id) && a_.nodes[*id].kind == NodeKind::kCall)
        left[key_of_place(a_.nodes[*id])].push_back(*id);
    for (NodeId id : b_.order) {
      if (pairing_.origin[id] || b_.nodes[id].kind != NodeKind::kCall) continue;
      const auto found = left.find(key_of_place(b_.nodes[id]));
      if (found == left.end() || found->second.empty()) continue;
      pair(found->second.back(), id);
      found->second.pop_back();
    }
  }

  bool pair(NodeId a, NodeId b) {
    pairing_.origin[b] = a;
    is_paired_.insert(a);
    return true;
  }

  static constexpr std::size_t kMaxCandidates = 64;  // of calls that compute the same, to look for the name

  const Graph& graph_a_;
  const Graph& graph_b_;
  const Context& context_;
  const Body& a_;
  const Body& b_;
  const PairingOptions& options_;
  BodyPairing pairing_;
  IdSet<NodeId> is_paired_;
  IdVector<NodeId, NodeId> itself_;
  SideTable<StringId, NodeId> names_;
  SideTable<NodeId, std::size_t> position_a_, position_b_;  // among the placeholders
};

}  // namespace

std::string_view name_of(PairingKind kind) {
  static constexpr std::array<std::string_view, 3> kNames = {"provenance", "names", "structure"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool derives_from(const Graph& a, const Graph& b) {
  if (b.origins.empty() || a.bodies.empty()) return false;
  const SideTable<StringId, NodeId> names = index_names(a.step());
  std::size_t known = 0;
  for (const Origin& origin : b.origins) {
    const NodeId id = names[origin.name];
    known += id && a.step().nodes[id].target == origin.target;
  }
  return known == b.origins.size() && known == a.step().order.size();
}

BodyPairing pair_by_provenance(const Body& a, const Body& b) {
  BodyPairing pairing = make_pairing(a, b);
  const SideTable<StringId, NodeId> names = index_names(a);
  IdSet<NodeId> is_paired(a.nodes.size());
  std::vector<std::pair<NodeId, Lineage>> absorbing;
  for (NodeId id : b.order) {
    const Lineage lineage = find_lineage(b.nodes[id]);
    const NodeId first = lineage.origins.empty() ? NodeId() : names[lineage.origins.front()];
    if (!first) continue;
    if (lineage.is_whole() || lineage.is_part()) {
      pairing.origin[id] = first;
      if (lineage.is_part()) pairing.part[id] = lineage.part;
      is_paired.insert(first);
      if (lineage.origins.size() > 1) absorbing.emplace_back(id, lineage);
    } else {
      pairing.made_for[id] = first;
    }
  }
  for (const auto& [id, lineage] : absorbing)
    for (StringId origin : lineage.origins)
      if (const NodeId gone = names[origin]; gone && !is_paired.contains(gone) && !pairing.absorbed_by[gone])
        pairing.absorbed_by[gone] = id;
  return pairing;
}

BodyPairing pair_by_structure(const Graph& graph_a, const Body& a, const Graph& graph_b, const Body& b,
                              const PairingOptions& options) {
  return StructurePairer(graph_a, a, graph_b, b, options).run();
}

}  // namespace epweave
