#include "passes/chunk/chunk_parts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "ops/type_rules.h"

namespace epweave {

PartAccess::PartAccess(const Graph& graph, const ChunkPlan& plan, ChunkWriter& writer, PartSizes& sizes,
                       PartJoins& joins, const PartedStorage& storage, ChunkedValues& values,
                       WholeAccess& wholes)
    : in_(graph),
      plan_(plan),
      placements_(plan.placements),
      writer_(writer),
      sizes_(sizes),
      joins_(joins),
      storage_(storage),
      values_(values),
      wholes_(wholes) {}

Arg PartAccess::argument(NodeId user, NodeId input, std::size_t leaf, std::size_t k) {
  const Access access = placements_.access(user, leaf);
  switch (access.kind) {
    case Access::Kind::kWhole:
      return Arg::node(wholes_.whole(input, user));
    case Access::Kind::kSlice:
      return slice(input, access, k, user);
    case Access::Kind::kPrefix:
      return prefix(input, access, k, user);
    case Access::Kind::kChain:
      return k == 0 ? Arg::node(wholes_.whole(input, user)) : values_.parts_of(user)[k - 1];
    case Access::Kind::kAny:
    case Access::Kind::kPart:
      break;
  }
  return seen_by(user, input).is_divided() ? part(input, k, user) : Arg::node(wholes_.whole(input, user));
}

Arg PartAccess::part(NodeId id, std::size_t k, NodeId user) {
  if (placements_.has_parts_for(id, placements_.region[user])) {
    storage_.require_fresh_parts(id, values_.parts_time(id), user);
    return values_.parts_of(id)[k];
  }
  const Placement& placement = seen_by(user, id);
  const TypeId type = in_.step().nodes[id].type;
  if (type && in_.context->types[type].kind == TypeKind::kScalar) return part_of_number(id, k, user);
  if (!placement.is(PlacementKind::kSplit)) fail_part(id, user);
  return slice(id, {Access::Kind::kSlice, static_cast<std::int16_t>(placement.dim), placement.blocks}, k,
               user);
}

// What a node of a region takes a value for.
const Placement& PartAccess::seen_by(NodeId user, NodeId input) const {
  return placements_.seen_from(input, placements_.region[user]);
}

// The parts of a value that has none for the user's region are made once for all regions that hand
// over parts to it, or, where values are rejoined between regions, for each region.
std::uint32_t PartAccess::sharers(NodeId user) const {
  const RegionId region = placements_.region[user];
  return plan_.join == JoinMode::kRegions ? region.index() : placements_.regions[region.index()].group;
}

// Parts 0 to k of a value that nothing writes in place.
Arg PartAccess::prefix(NodeId id, const Access& access, std::size_t k, NodeId user) {
  if (k == 0) return part(id, 0, user);
  const PrefixKey key{id, k, sharers(user)};
  if (const auto known = prefixes_.find(key); known != prefixes_.end()) return known->second;
  std::vector<Arg> parts;
  for (std::size_t j = 0; j <= k; ++j) parts.push_back(part(id, j, user));
  const NodeId joined =
      joins_.concatenate_prefix({.origin = id, .region = placements_.region[user], .dim = access.dim}, parts);
  return prefixes_[key] = Arg::node(joined);
}

Arg PartAccess::part_of_number(NodeId id, std::size_t k, NodeId user) {
  if (!seen_by(user, id).is_partial()) fail_part(id, user);
  const ExprId extent = in_.context->types[in_.step().nodes[id].type].expr;
  return piece({id.index(), -1, 0, sharers(user)}, id, k, [&] {
    numbers_in_parts_.push_back(id);
    const auto known = sizes_.of_extent(extent, placements_.region[user]);
    return known ? *known : sizes_.of_number(wholes_.whole(id, user), {id, user});
  });
}

Arg PartAccess::slice(NodeId id, const Access& access, std::size_t k, NodeId user) {
  return piece({id.index(), access.dim, access.blocks.index(), sharers(user)}, id, k, [&] {
    return joins_.cut({.whole = wholes_.whole(id, user),
                       .origin = id,
                       .user = user,
                       .dim = access.dim,
                       .blocks = access.blocks});
  });
}

// Made anew where the value was written since.
template <class Cut>
Arg PartAccess::piece(const PiecesKey& key, NodeId id, std::size_t k, const Cut& cut) {
  const auto found = pieces_.find(key);
  if (found != pieces_.end() && found->second.time >= storage_.last_write(id)) return found->second.args[k];
  // Demanding the whole may make other pieces: fill in through a fresh look-up.
  std::vector<Arg> made = cut();
  return (pieces_[key] = {writer_.time(), std::move(made)}).args[k];
}

void PartAccess::fail_part(NodeId id, NodeId user) const {
  const Node& node = in_.step().nodes[id];
  throw PassError("chunk.no-part",
                  fmt::format("'{}' ({}) is placed {} and cannot be cut into parts", in_.text(node.name),
                              print_type(*in_.context, node.type), print_placement(seen_by(user, id))),
                  site_of(in_, in_.step().nodes[user]), "select roots that contain what makes this value");
}

}  // namespace epweave
