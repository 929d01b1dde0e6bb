#include "replay/run/pairing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "analysis/effects.h"
#include "base/parse_number.h"
#include "ops/op.h"
#include "ops/traffic.h"

namespace epweave::replay {
namespace {

// How a node of B stands for a node of A.
struct Counterpart {
  std::string_view origin;
  std::uint32_t part = 0, parts = 0;  // parts 0: all of it
  bool is_piece = false;              // cut off the whole, not made by a copy of its code
  bool is_join = false;
};

// Of several origins, which a pass found equal, a part stands for the first, whose place it has.
std::optional<Counterpart> find_by_provenance(const Graph& b, const Node& node) {
  const NameList origins = node.provenance.back().origins;
  const bool is_part =
      std::ranges::any_of(node.provenance, [](const Provenance& record) { return record.parts > 1; });
  if (origins.empty() || (origins.size() > 1 && !is_part)) return std::nullopt;
  Counterpart counterpart{b.text(origins[0]), 0, 0};
  for (const Provenance& record : node.provenance) {
    if (record.role == ProvenanceRole::kMaterialize)
      return Counterpart{counterpart.origin, 0, 0, false, true};
    if (record.role == ProvenanceRole::kSize || record.role == ProvenanceRole::kAdded) return std::nullopt;
    if (record.parts > 1) {
      counterpart.part = record.part;
      counterpart.parts = record.parts;
      counterpart.is_piece =
          record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput;
    } else if (record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput) {
      return std::nullopt;
    }
  }
  return counterpart;
}

// "mm_7_chunk1" is part 1 of mm_7.
struct ChunkName {
  std::string_view origin;
  std::uint32_t part = 0;
};
std::optional<ChunkName> read_chunk_name(std::string_view name) {
  constexpr std::string_view kMark = "_chunk";
  const std::size_t at = name.rfind(kMark);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const auto part = parse_number<std::uint32_t>(name.substr(at + kMark.size()));
  return part ? std::optional(ChunkName{name.substr(0, at), *part}) : std::nullopt;
}

// Nodes without provenance stand for the node of their name; else torchtitan's names of parts are
// understood.
class NamePairing {
 public:
  NamePairing(const Graph& a, const Graph& b) : a_(a), b_(b), is_chain_(share_origins(a, b)) {
    for (NodeId id : a.step().order) nodes_[a.text(a.step().nodes[id].name)] = id;
    for (NodeId id : b.step().order)
      if (const auto chunk = read_chunk_name(b.text(b.step().nodes[id].name)))
        parts_[chunk->origin] = std::max(parts_[chunk->origin], chunk->part + 1);
  }

  NodeId find(std::string_view name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? NodeId() : found->second;
  }

  std::optional<Counterpart> find_counterpart(const Node& node) const {
    const std::string_view name = b_.text(node.name);
    if (!node.provenance.empty()) {
      const auto counterpart = find_by_provenance(b_, node);
      if (is_chain_ && counterpart && is_same_whole(*counterpart, name)) return Counterpart{name, 0, 0};
      return counterpart;
    }
    if (find(name)) return Counterpart{name, 0, 0};
    const auto chunk = read_chunk_name(name);
    if (!chunk || parts_.at(chunk->origin) < 2) return std::nullopt;
    return Counterpart{chunk->origin, chunk->part, parts_.at(chunk->origin)};
  }

 private:
  // Both graphs were made from one, whose nodes the provenance of either names.
  static bool share_origins(const Graph& a, const Graph& b) {
    return !a.origins.empty() &&
           std::ranges::equal(a.origins, b.origins, [&](const Origin& x, const Origin& y) {
             return a.text(x.name) == b.text(y.name);
           });
  }
  // Whether A has a node of this name that is all of the same origin. Not of what joins parts: of
  // one name they may join other parts, or join them behind a write.
  bool is_same_whole(const Counterpart& counterpart, std::string_view name) const {
    const auto is_made_whole = [](const Counterpart& made) { return made.parts == 0 && !made.is_join; };
    const NodeId id = find(name);
    if (!id || !is_made_whole(counterpart) || a_.step().nodes[id].provenance.empty()) return false;
    const auto other = find_by_provenance(a_, a_.step().nodes[id]);
    return other && is_made_whole(*other) && other->origin == counterpart.origin;
  }

  const Graph &a_, &b_;
  const bool is_chain_;
  std::unordered_map<std::string_view, NodeId> nodes_;         // of A
  std::unordered_map<std::string_view, std::uint32_t> parts_;  // of B, by origin
};

// Steps on the way to a whole value, such as the sum of the first two of three parts: nodes that a
// join of the same value takes, and nothing else stands for.
IdSet<NodeId> find_unfinished_joins(const Graph& b) {
  const auto joined = [](const Node& node) {
    for (const Provenance& record : node.provenance)
      if (record.role == ProvenanceRole::kMaterialize && record.origins.size() == 1) return record.origins[0];
    return StringId();
  };
  const Body& step = b.step();
  IdSet<NodeId> unfinished(step.nodes.size());
  for (NodeId id : step.order) {
    const StringId value = joined(step.nodes[id]);
    if (!value) continue;
    for_each_input(*b.context, step.nodes[id], [&](NodeId input) {
      if (joined(step.nodes[input]) == value) unfinished.insert(input);
    });
  }
  return unfinished;
}

// Whether the piece is one of the whole in blocks, which have a dimension of their own: its rows
// come behind it.
bool is_in_blocks(const Graph& a, NodeId whole, const Graph& b, const Node& piece) {
  const TensorType* x = tensor_of(*a.context, a.step().nodes[whole].type);
  const TensorType* y = tensor_of(*b.context, piece.type);
  return x != nullptr && y != nullptr && x->rank() != y->rank();
}

// Parts that write are a chain where they write one memory. Where each writes its own, they are
// summands, or rows.
void leave_apart(const Graph& b, std::vector<Group>& groups) {
  std::optional<Effects> effects;
  for (Group& group : groups) {
    if (!group.is_chain) continue;
    if (!effects) effects.emplace(b, b.step());
    const auto memory_of = [&](NodeId part) { return part ? effects->storage_of(part) : NodeId(); };
    const NodeId first = memory_of(group.values.front());
    group.is_chain = std::ranges::all_of(group.values, [&](NodeId part) { return memory_of(part) == first; });
  }
}

}  // namespace

WrittenStorage find_written_storage(const Graph& graph) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  WrittenStorage found{IdSet<NodeId>(body.nodes.size()), IdSet<NodeId>(body.nodes.size())};
  for (NodeId id : body.order) {
    if (!effects.is_written(effects.storage_of(id))) continue;
    found.all.insert(id);
    const Node& node = body.nodes[id];
    const bool is_view =
        node.kind == NodeKind::kCall && !reads_elements(node) && effects.accesses_of(id).empty();
    if (is_view && effects.storage_of(id) != id) found.views.insert(id);
  }
  return found;
}

std::vector<Group> pair_nodes(const Graph& a, const Graph& b, std::uint64_t& unpaired) {
  const NamePairing names(a, b);
  const IdSet<NodeId> unfinished = find_unfinished_joins(b);
  std::vector<Group> groups;
  // A value may be cut again elsewhere, and a sum of parts is cut into pieces: those are other
  // groups.
  std::map<std::tuple<NodeId, StringId, bool>, std::size_t> part_groups;
  for (NodeId id : b.step().order) {
    const Node& node = b.step().nodes[id];
    if (node.kind == NodeKind::kOutput) continue;
    const auto counterpart =
        unfinished.contains(id) ? std::optional<Counterpart>() : names.find_counterpart(node);
    const NodeId origin = counterpart ? names.find(counterpart->origin) : NodeId();
    if (!origin || (counterpart->is_piece && is_in_blocks(a, origin, b, node))) {
      ++unpaired;
      continue;
    }
    if (counterpart->parts == 0) {
      groups.push_back({origin, {id}, false, false, counterpart->is_join});
      continue;
    }
    const auto [at, is_new] =
        part_groups.try_emplace({origin, node.target, counterpart->is_piece}, groups.size());
    if (is_new)
      groups.push_back({origin, std::vector<NodeId>(counterpart->parts), true,
                        node.op != nullptr && node.op->writes, counterpart->is_piece});
    Group& group = groups[at->second];
    if (counterpart->part < group.values.size()) group.values[counterpart->part] = id;
  }
  leave_apart(b, groups);
  return groups;
}

}  // namespace epweave::replay
