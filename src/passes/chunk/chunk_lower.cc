#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "analysis/element_call.h"
#include "ir/walk.h"
#include "ops/type_rules.h"
#include "passes/chunk/chunk_attention.h"
#include "passes/chunk/chunk_joins.h"
#include "passes/chunk/chunk_plan.h"
#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_storage.h"
#include "passes/chunk/chunk_strides.h"
#include "passes/chunk/chunk_symbols.h"
#include "passes/chunk/chunk_views.h"
#include "passes/chunk/chunk_whole_values.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {
namespace {

// One forward walk with two memoised accessors:
//
//   not divided:  whole[node]   = the node with arg -> whole(arg)
//   divided:      part[node][k] = a copy with arg -> part(arg, k), for each k
//
//   whole(v)    Split(d) -> cat(parts, d)   Partial -> add(parts)   Local -> refused
//   part(v, k)  Whole -> whole(v)           Split(d) from outside -> slice of whole(v)
//
// Joins and splits are written at first demand, so they stand in front of their first user and
// nothing needless is written. Rows of the input's node table keep their ids; new nodes are
// appended to it.
class Lowering {
 public:
  // `strided`: values whose joins must have the strides that they have (JoinStrides).
  Lowering(const Graph& graph, const ChunkPlan& plan, const IdSet<NodeId>& strided)
      : in_(graph),
        plan_(plan),
        placements_(plan.placements),
        symbols_(graph, plan),
        out_(symbols_.declare()),
        writer_(graph, plan, symbols_, out_),
        sizes_(graph, out_, plan, writer_),
        joins_(graph, plan, writer_, sizes_),
        attention_(graph, plan, out_, writer_, sizes_),
        views_(graph, placements_, writer_.facts()),
        strides_(graph, out_, placements_, writer_, strided),
        storage_(graph, placements_),
        made_of_sizes_(find_made_of_sizes(graph, placements_)) {}

  // What else must have been in `strided`, once it has run: then the graph is none.
  const std::vector<NodeId>& missed_strides() const { return strides_.missed(); }

  Graph run() {
    for (const auto [id, node] : walk_all(*in_.context, in_.step())) {
      if (is_in_parts(placements_, id)) {
        write_parts(id);
      } else {
        write_whole(id);
      }
    }
    sizes_.place_behind_inputs();
    out_.step().order = std::move(writer_.order());
    std::vector<NodeId> candidates = std::move(numbers_in_parts_);
    for (NodeId view : views_.joined_above())
      for (const Arg& part : parts_of(view)) candidates.push_back(part.as_node());
    drop_unused(out_, NodeId(in_.step().nodes.size()), std::move(candidates), writer_.take_uses());
    if (writer_.may_mention_divided_symbols()) symbols_.require_unmentioned(out_);
    symbols_.drop_from(out_);
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t kNoParts = UINT32_MAX;

  Context& context() { return *out_.context; }

  // What stands for the whole of a value, and when it was written. Times count the nodes written so
  // far.
  struct Whole {
    NodeId node;
    std::uint32_t time = 0;
  };
  // The parts of a region's value, in parts_, and when they were written.
  struct Parts {
    std::uint32_t begin = kNoParts;
    std::uint32_t time = 0;
  };
  // The parts of a whole value: nodes, or numbers for sizes.
  struct Pieces {
    std::size_t time = 0;
    std::vector<Arg> args;
  };
  // The value, dimension (-1: a number), blocks, and who shares them.
  using PiecesKey = std::tuple<std::uint32_t, int, std::uint32_t, std::uint32_t>;

  // ------------------------------------------------------------------------- the walk

  void write_whole(NodeId id) {
    const Node& original = in_.step().nodes[id];
    const bool has_accesses = placements_.region[id] && takes_divided(in_, placements_, id);
    std::size_t leaf = 0;
    bool needs_type = false;
    auto take = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId input = arg.as_node();
      const Access access = has_accesses ? placements_.access(id, leaf) : Access();
      ++leaf;
      if (access.kind == Access::Kind::kAny && needs_join(input, id) && !is_wanted_whole(input))
        return part(input, 0, id);
      const NodeId taken = whole(input, id);
      needs_type |= strides_.is_retyped(input);
      return Arg::node(taken);
    };
    const ArgRange args = context().args.map(original.args, take);
    const ArgRange kwargs = context().args.map(original.kwargs, take);
    if (args != original.args) out_.step().nodes[id].args = args;
    if (kwargs != original.kwargs) out_.step().nodes[id].kwargs = kwargs;
    const TypeId type = needs_type ? strides_.retype(id) : original.type;
    writer_.keep(id, type);
    if (needs_type) strides_.check_reader(id, id);
    if (const NodeId addressed = strides_.find_addressed(id))
      strides_.require_shows(id, whole_[addressed].node);
    const auto count_use = [&](NodeId taken) { writer_.count_use(taken); };
    context().args.for_each_node(args, count_use);
    context().args.for_each_node(kwargs, count_use);
    set_whole(id, id, type);
    storage_.write_whole(id, writer_.time());
  }

  // That `made`, of the given type, stands for the whole value from now on.
  void set_whole(NodeId id, NodeId made, TypeId type) {
    whole_.at(id) = {made, static_cast<std::uint32_t>(writer_.time())};
    strides_.note_whole(id, type);
  }

  bool needs_join(NodeId id, NodeId user) const {
    return placements_.has_parts_for(id, placements_.region[user]) && !whole_[id].node;
  }
  bool is_wanted_whole(NodeId id) {
    if (!wanted_whole_) wanted_whole_ = find_wanted_whole(in_, placements_);
    return wanted_whole_->contains(id);
  }
  // What a node of a region takes a value for.
  const Placement& seen_by(NodeId user, NodeId input) const {
    return placements_.seen_from(input, placements_.region[user]);
  }
  void write_parts(NodeId id) {
    if (attention_.has_summands(id)) return write_sums(id);
    for (std::size_t k = 0; k < plan_.division(placements_.region[id]).count(); ++k) {
      // Arguments first: what they demand stands in front of the part.
      const Node& original = in_.step().nodes[id];
      std::size_t leaf = 0;
      auto take = [&](Arg arg) {
        // Token counts in there are the whole's.
        if (arg.is(ArgKind::kSymbolic))
          return Arg::symbolic(symbols_.with_twins(writer_.facts(), arg.as_expr(), k));
        return arg.is_node() ? argument(id, arg.as_node(), leaf++, k) : arg;
      };
      const ArgRange args = context().args.map(original.args, take);
      const ArgRange kwargs = context().args.map(original.kwargs, take);
      Node node = writer_.make_part(id, k);
      node.args = args;
      node.kwargs = kwargs;
      attention_.adapt(id, k, node);
      const NodeId made = writer_.append(std::move(node));
      strides_.require_shows_alike(id, made);
      parts_of(id)[k] = Arg::node(made);
    }
    parts_at_.at(id).time = static_cast<std::uint32_t>(writer_.time());
    storage_.write_parts(id, writer_.time());
  }

  // The gradient of keys or values, of which each part of the call gives summands for all parts
  // before it, too.
  void write_sums(NodeId id) {
    const std::span<Arg> calls = parts_of(tuple_of(*in_.context, in_.step().nodes[id]));
    const std::vector<NodeId> sums = attention_.write_sums(id, std::vector<Arg>(calls.begin(), calls.end()));
    for (std::size_t k = 0; k < sums.size(); ++k) parts_of(id)[k] = Arg::node(sums[k]);
    parts_at_.at(id).time = static_cast<std::uint32_t>(writer_.time());
  }

  Arg argument(NodeId user, NodeId input, std::size_t leaf, std::size_t k) {
    const Access access = placements_.access(user, leaf);
    switch (access.kind) {
      case Access::Kind::kWhole:
        return Arg::node(whole(input, user));
      case Access::Kind::kSlice:
        return slice(input, access, k, user);
      case Access::Kind::kPrefix:
        return prefix(input, access, k, user);
      case Access::Kind::kChain:
        return k == 0 ? Arg::node(whole(input, user)) : parts_of(user)[k - 1];
      case Access::Kind::kAny:
      case Access::Kind::kPart:
        break;
    }
    return seen_by(user, input).is_divided() ? part(input, k, user) : Arg::node(whole(input, user));
  }

  // ------------------------------------------------------------------------- accessors

  // The parts of a region's value.
  std::span<Arg> parts_of(NodeId id) {
    const std::size_t count = plan_.division(placements_.region[id]).count();
    std::uint32_t& begin = parts_at_.at(id).begin;
    if (begin == kNoParts) {
      begin = static_cast<std::uint32_t>(parts_.size());
      parts_.resize(parts_.size() + count);
    }
    return {parts_.data() + begin, count};
  }

  // Part k of a divided value. `user` is the node that wants it, in a region.
  Arg part(NodeId id, std::size_t k, NodeId user) {
    if (placements_.has_parts_for(id, placements_.region[user])) {
      storage_.require_fresh_parts(id, parts_at_[id].time, user);
      return parts_of(id)[k];
    }
    const Placement& placement = seen_by(user, id);
    const TypeId type = in_.step().nodes[id].type;
    if (type && context().types[type].kind == TypeKind::kScalar) return part_of_number(id, k, user);
    if (!placement.is(PlacementKind::kSplit)) fail_part(id, user);
    return slice(id, {Access::Kind::kSlice, static_cast<std::int16_t>(placement.dim), placement.blocks}, k,
                 user);
  }
  [[noreturn]] void fail_part(NodeId id, NodeId user) {
    const Node& node = in_.step().nodes[id];
    throw PassError("chunk.no-part",
                    fmt::format("'{}' ({}) is placed {} and cannot be cut into parts", out_.text(node.name),
                                print_type(context(), node.type), print_placement(seen_by(user, id))),
                    site_of(in_, in_.step().nodes[user]), "select roots that contain what makes this value");
  }

  // The parts of a value that has none for the user's region are made once for all regions that
  // hand over parts to it, or, where values are rejoined between regions, for each region.
  std::uint32_t sharers(NodeId user) const {
    const RegionId region = placements_.region[user];
    return plan_.join == JoinMode::kRegions ? region.index() : placements_.regions[region.index()].group;
  }
  // Parts 0 to k of a value that nothing writes in place.
  Arg prefix(NodeId id, const Access& access, std::size_t k, NodeId user) {
    if (k == 0) return part(id, 0, user);
    const PrefixKey key{id, k, sharers(user)};
    if (const auto known = prefixes_.find(key); known != prefixes_.end()) return known->second;
    std::vector<Arg> parts;
    for (std::size_t j = 0; j <= k; ++j) parts.push_back(part(id, j, user));
    const NodeId joined = joins_.concatenate_prefix(
        {.origin = id, .region = placements_.region[user], .dim = access.dim}, parts);
    return prefixes_[key] = Arg::node(joined);
  }
  Arg part_of_number(NodeId id, std::size_t k, NodeId user) {
    if (!seen_by(user, id).is_partial()) fail_part(id, user);
    const ExprId extent = in_.context->types[in_.step().nodes[id].type].expr;
    return piece({id.index(), -1, 0, sharers(user)}, id, k, [&] {
      numbers_in_parts_.push_back(id);
      const auto known = sizes_.of_extent(extent, placements_.region[user]);
      return known ? *known : sizes_.of_number(whole(id, user), {id, user});
    });
  }
  Arg slice(NodeId id, const Access& access, std::size_t k, NodeId user) {
    return piece({id.index(), access.dim, access.blocks.index(), sharers(user)}, id, k, [&] {
      return joins_.cut(
          {.whole = whole(id, user), .origin = id, .user = user, .dim = access.dim, .blocks = access.blocks});
    });
  }
  // Made anew where the value was written since.
  template <class Cut>
  Arg piece(const PiecesKey& key, NodeId id, std::size_t k, Cut&& cut) {
    const auto found = pieces_.find(key);
    if (found != pieces_.end() && found->second.time >= storage_.last_write(id)) return found->second.args[k];
    // Demanding the whole may make other pieces: fill in through a fresh look-up.
    std::vector<Arg> made = cut();
    return (pieces_[key] = {writer_.time(), std::move(made)}).args[k];
  }

  // What a call is made from, if it is made again, comes first; that may be a long chain.
  NodeId whole(NodeId id, NodeId user) {
    if (const NodeId known = find_whole(id, user)) return known;
    struct Demand {
      NodeId id;
      std::string_view reason;  // to make it again, once that is found
    };
    std::vector<Demand> open{{id, {}}};
    while (!open.empty()) {
      const Demand top = open.back();
      if (find_whole(top.id, user)) {
        open.pop_back();
      } else if (!top.reason.empty()) {
        const NodeId made = write_again(top.id, top.reason);
        set_made(top.id, made);
        strides_.check_reader(top.id, made);
      } else {
        if (is_in_parts(placements_, top.id))
          storage_.require_fresh_parts(top.id, parts_at_[top.id].time, user);
        const std::string_view reason = reason_to_write_again(top.id);
        if (reason.empty()) {
          set_made(top.id, join(top.id, user));
          strides_.note_join(top.id);
          continue;
        }
        open.back().reason = reason;
        const std::size_t begin = open.size();
        for_each_input(*in_.context, in_.step().nodes[top.id], [&](NodeId input) {
          open.push_back({input, {}});
        });
        std::reverse(open.begin() + static_cast<std::ptrdiff_t>(begin), open.end());
      }
    }
    return whole_[id].node;
  }
  void set_made(NodeId id, NodeId made) { set_whole(id, made, out_.step().nodes[made].type); }
  // The whole value, if it is there and shows what was last written.
  NodeId find_whole(NodeId id, NodeId user) {
    const Whole known = whole_[id];
    return known.node && storage_.is_fresh_whole(id, known.time, user) ? known.node : NodeId();
  }
  // Why the whole of a divided value is not a join of its parts; empty if it is.
  std::string_view reason_to_write_again(NodeId id) {
    if (storage_.last_write(id) != 0) return {};
    const bool is_of_sizes = made_of_sizes_.contains(id) || is_size_arithmetic(in_, placements_, id);
    if (is_of_sizes && !storage_.reads_written(id))
      return "made of sizes only: wanted whole as well as in parts";
    return views_.is_joined_above(id) ? "a view: the value that it shows is joined" : std::string_view();
  }

  // The wholes of its inputs are there.
  NodeId write_again(NodeId id, std::string_view reason) {
    const Node& original = in_.step().nodes[id];
    auto take = [&](Arg arg) { return arg.is_node() ? Arg::node(whole_[arg.as_node()].node) : arg; };
    const ArgRange args = context().args.map(original.args, take);
    const ArgRange kwargs = context().args.map(original.kwargs, take);
    Node node = writer_.make_again(id, reason);
    node.args = args;
    node.kwargs = kwargs;
    return writer_.append_whole(std::move(node), id);
  }

  NodeId join(NodeId id, NodeId user) {
    const Placement& placement = placements_.placement[id];
    switch (placement.kind) {
      case PlacementKind::kSplit:
        return strides_.keeps(id) ? concatenate_in_order(id)
                                  : joins_.concatenate(id, parts_of(id), placement);
      case PlacementKind::kPartial:
        return joins_.add(id, parts_of(id));
      case PlacementKind::kCarried:
        return parts_of(id).back().as_node();
      default:
        break;
    }
    const Node& node = in_.step().nodes[id];
    const Node& wanted_by = in_.step().nodes[user];
    throw PassError(
        "chunk.local-wanted-whole",
        fmt::format(
            "'{}' ({}) has its rows in an order of its part's own (placed {}), and '{}' ({}) wants it whole",
            out_.text(node.name), out_.text(node.target), print_placement(placement),
            out_.text(wanted_by.name), out_.text(wanted_by.target)),
        site_of(in_, node),
        "select roots that contain both, or write the rows back to token order inside the module");
  }

  NodeId concatenate_in_order(NodeId id) {
    const TensorType& type = *tensor_of(*in_.context, in_.step().nodes[id].type);
    return joins_.concatenate_in_order(id, parts_of(id), *find_memory_order(writer_.facts(), type));
  }

  const Graph& in_;
  const ChunkPlan& plan_;
  const Placements& placements_;
  const PartSymbols symbols_;
  Graph out_;
  ChunkWriter writer_;
  PartSizes sizes_;
  PartJoins joins_;
  PartAttention attention_;
  ViewJoins views_;
  JoinStrides strides_;
  PartedStorage storage_;
  SideTable<NodeId, Whole> whole_;
  SideTable<NodeId, Parts> parts_at_;
  std::vector<Arg> parts_;
  std::map<PiecesKey, Pieces> pieces_;
  // The value, the last part, and who shares them.
  using PrefixKey = std::tuple<NodeId, std::size_t, std::uint32_t>;
  std::map<PrefixKey, Arg> prefixes_;
  std::vector<NodeId> numbers_in_parts_;  // from outside: the whole ones may have no user left
  const IdSet<NodeId> made_of_sizes_;
  std::optional<IdSet<NodeId>> wanted_whole_;  // once something asks
};

}  // namespace

Graph lower_chunks(const Graph& graph, const ChunkPlan& plan) {
  for (IdSet<NodeId> strided;;) {
    Lowering lowering(graph, plan, strided);
    Graph chunked = lowering.run();
    if (lowering.missed_strides().empty()) return chunked;
    for (NodeId id : lowering.missed_strides()) strided.insert(id);
  }
}

}  // namespace epweave
