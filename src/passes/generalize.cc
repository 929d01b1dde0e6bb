#include "passes/generalize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "cost/extents.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/coordinates.h"
#include "passes/pieces.h"
#include "passes/rank_devices.h"
#include "passes/rank_elements.h"

namespace epweave {
namespace {

using Numbers = std::vector<std::int64_t>;

// --------------------------------------------------------------------------- the job

// Keys of info that may differ between the ranks of a job.
bool may_differ(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"rank", "device", "trace_seconds", "passes_run", "name"};
  return std::ranges::find(kKeys, key) != std::end(kKeys) || key == kRankGroupsKey || key == kRankAgnosticKey;
}

// What one of them records of the job, and the other does not or otherwise.
std::optional<std::string_view> find_other_info(const Graph& a, const Graph& b) {
  const Context& context = *a.context;
  if (!a.info.is(ArgKind::kDict)) return std::nullopt;
  const auto items = context.args.children(a.info);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!items[i].is(ArgKind::kText) || may_differ(context.text(items[i].as_name()))) continue;
    const Arg* other = find_entry(context, b.info, context.text(items[i].as_name()));
    if (other == nullptr || !context.args.equal(items[i + 1], *other))
      return context.text(items[i].as_name());
  }
  return std::nullopt;
}

void require_same_info(const Graph& a, const Graph& b, Rank rank) {
  auto key = find_other_info(a, b);
  if (!key) key = find_other_info(b, a);
  if (key)
    throw InputError(fmt::format("rank {}'s graph is of another job: its info '{}' differs from rank {}'s",
                                 rank, *key, own_rank(a)));
}

std::vector<World> read_worlds(const std::vector<Graph>& graphs) {
  std::vector<World> worlds;
  for (const Graph& graph : graphs) {
    worlds.push_back(read_world(graph));
    const World& world = worlds.back();
    if (worlds.size() > 1 && world.size != worlds[0].size)
      throw InputError(fmt::format("rank {}'s graph is of a world of {} ranks, rank {}'s of one of {}",
                                   world.file_rank, world.size, worlds[0].file_rank, worlds[0].size));
    for (std::size_t i = 0; i + 1 < worlds.size(); ++i)
      if (worlds[i].file_rank == world.file_rank)
        throw InputError(fmt::format("two graphs are of rank {}; give each rank once", world.file_rank));
    require_same_info(graphs[0], graph, world.file_rank);
  }
  return worlds;
}

// --------------------------------------------------------------------------- axes

class Axes {
 public:
  Axes(const Graph& graph, const World& world, const std::vector<Rank>& ranks)
      : ranks_(ranks), size_(world.size) {
    for (const auto [id, node] : walk(graph.step())) {
      if (node.kind != NodeKind::kPlaceholder) break;
      const auto mesh = recorded_mesh(*graph.context, node);
      const auto strides = mesh ? strides_of(*mesh) : std::nullopt;
      for (std::size_t d = 0; strides && d < mesh->axes.size(); ++d)
        add(std::string(graph.text(mesh->axes[d])), (*strides)[d], mesh->shape[d]);
    }
    for (const Mesh& mesh : world.meshes) {
      std::uint32_t stride = world.size;
      for (std::size_t d = 0; d < mesh.axes.size(); ++d) {
        stride /= std::max(mesh.shape[d], 1U);
        add(mesh.axes[d], stride, mesh.shape[d]);
      }
    }
    // A group that names its axis, where no mesh is recorded.
    for (const ProcessGroup& group : graph.groups)
      if (const auto rule = find_group_rule(group.ranks, world.size);
          rule && group.axes && group.axes->size() == 1)
        add(std::string(graph.text(group.axes->front())), rule->stride, rule->extent);
    for (GeneralizeAxis& axis : all_) observe(axis);
  }

  const std::vector<GeneralizeAxis>& all() const { return all_; }
  static std::int64_t coordinate(const GeneralizeAxis& axis, Rank rank) {
    return rank / axis.stride % axis.extent;
  }

  Numbers coordinates(const GeneralizeAxis& axis) const {
    Numbers numbers;
    for (Rank rank : ranks_) numbers.push_back(coordinate(axis, rank));
    return numbers;
  }

  // With how many numbers follow each; where that is a guess, the rank that would show the last
  // place of which nothing is known.
  std::vector<GeneralizeAxis> count(const std::vector<std::uint32_t>& numbers) const {
    std::vector<GeneralizeAxis> counted = all_;
    for (std::size_t a = 0; a < counted.size(); ++a) {
      GeneralizeAxis& axis = counted[a];
      axis.numbers = numbers[a];
      if (axis.is_extrapolated()) axis.next = rank_at(axis, last_unseen(axis));
    }
    return counted;
  }

  // Pairs of axes along which some rank differs from the first given one at once, but none given.
  GeneralizePairs find_unseen_pairs() const {
    std::vector<Rank> all(size_);
    std::iota(all.begin(), all.end(), Rank{0});
    GeneralizePairs pairs;
    std::vector<std::size_t> shown(size_);  // by each rank
    for (std::size_t a = 0; a < all_.size(); ++a) {
      for (std::size_t b = a + 1; b < all_.size(); ++b) {
        const auto shows = [&](Rank rank) { return is_away(rank, a) && is_away(rank, b); };
        if (!all_[a].is_observed || !all_[b].is_observed || std::ranges::any_of(ranks_, shows) ||
            std::ranges::none_of(all, shows))
          continue;
        pairs.unseen.emplace_back(all_[a].name, all_[b].name);
        for (Rank rank : all) shown[rank] += shows(rank) ? 1U : 0U;
      }
    }
    pairs.next = static_cast<Rank>(std::ranges::max_element(shown) - shown.begin());
    return pairs;
  }

 private:
  bool is_away(Rank rank, std::size_t axis) const {
    return coordinate(all_[axis], rank) != coordinate(all_[axis], ranks_[0]);
  }

  void add(std::string name, std::uint32_t stride, std::uint32_t extent) {
    if (extent < 2 || stride == 0 || size_ % (stride * extent) != 0) return;
    const bool is_known = std::ranges::any_of(
        all_, [&](const GeneralizeAxis& a) { return a.stride == stride && a.extent == extent; });
    if (!is_known) all_.push_back({.name = std::move(name), .stride = stride, .extent = extent, .next = {}});
  }

  std::int64_t last_unseen(const GeneralizeAxis& axis) const {
    const std::set<std::int64_t> seen = places(axis);
    std::int64_t place = axis.extent - std::int64_t{1};
    while (seen.contains(place)) --place;
    return place;
  }
  // The first given rank, moved along the axis.
  Rank rank_at(const GeneralizeAxis& axis, std::int64_t place) const {
    const std::int64_t moved = (place - coordinate(axis, ranks_[0])) * std::int64_t{axis.stride};
    return static_cast<Rank>(std::int64_t{ranks_[0]} + moved);
  }

  std::set<std::int64_t> places(const GeneralizeAxis& axis) const {
    const Numbers numbers = coordinates(axis);
    return {numbers.begin(), numbers.end()};
  }

  void observe(GeneralizeAxis& axis) const {
    axis.seen = static_cast<std::uint32_t>(places(axis).size());
    axis.is_observed = axis.seen > 1;
    if (axis.is_observed) return;
    const std::int64_t own = coordinate(axis, ranks_[0]);
    axis.next = own == 0 ? ranks_[0] + axis.stride : ranks_[0] - static_cast<Rank>(own) * axis.stride;
  }

  std::vector<GeneralizeAxis> all_;
  const std::vector<Rank>& ranks_;
  std::uint32_t size_;
};

// --------------------------------------------------------------------------- numbers as functions
// of coordinates

Count minus(Count a, Count b) {
  return plus(a, times(b, -1));
}
// None if it is not whole, too.
Count quotient(Count a, std::int64_t b) {
  if (b == -1) return times(a, b);
  if (!a || b == 0 || *a % b != 0) return std::nullopt;
  return *a / b;
}

// offset + the sum of scale * coordinate.
struct Affine {
  std::int64_t offset = 0;
  std::vector<std::pair<std::size_t, std::int64_t>> terms;  // axis, scale

  friend auto operator<=>(const Affine&, const Affine&) = default;
  // As PlaceWriter writes it; none if a number on the way does not fit.
  Count at(const Axes& axes, Rank rank) const {
    Count value = 0;
    for (const auto& [axis, scale] : terms)
      value = plus(value, times(scale, Axes::coordinate(axes.all()[axis], rank)));
    return plus(value, offset);
  }
  std::string print(const Axes& axes) const {
    std::string text = offset != 0 ? std::to_string(offset) : "";
    for (const auto& [axis, scale] : terms)
      text += fmt::format("{}{}c_{}", text.empty() ? "" : " + ",
                          scale == 1 ? "" : fmt::format("{} * ", scale), axes.all()[axis].name);
    return text;
  }
};

// Which functions of one axis, or else of two, have these values on the given ranks, and one that
// fits on each rank.
class AffineSolver {
 public:
  AffineSolver(const Axes& axes, const std::vector<Rank>& ranks, std::uint32_t world_size)
      : axes_(axes), ranks_(ranks), world_size_(world_size) {}

  struct Answer {
    std::optional<Affine> function;
    std::string why;  // if there is none
    std::optional<Rank> next;
  };

  Answer solve(const Numbers& values) const {
    std::vector<Affine> fits = fit_one(values);
    if (fits.empty()) fits = fit_two(values);
    if (fits.empty()) return {{}, "no affine function of the coordinates has these values", {}};
    for (std::size_t i = 1; i < fits.size(); ++i)
      for (Rank rank = 0; rank < world_size_; ++rank)
        if (fits[0].at(axes_, rank) != fits[i].at(axes_, rank))
          return {{},
                  fmt::format("the given ranks cannot tell {} from {}", fits[0].print(axes_),
                              fits[i].print(axes_)),
                  rank};
    return {fits[0], {}, {}};
  }

 private:
  bool fits(const Affine& function, const Numbers& values) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (function.at(axes_, ranks_[i]) != Count(values[i])) return false;
    for (Rank rank = 0; rank < world_size_; ++rank)
      if (!function.at(axes_, rank)) return false;
    return true;
  }

  std::vector<Affine> fit_one(const Numbers& values) const {
    std::vector<Affine> found;
    for (std::size_t a = 0; a < axes_.all().size(); ++a) {
      const Numbers c = axes_.coordinates(axes_.all()[a]);
      const auto other = std::ranges::find_if(c, [&](std::int64_t x) { return x != c[0]; });
      if (other == c.end()) continue;
      const Count change = minus(values[static_cast<std::size_t>(other - c.begin())], values[0]);
      const Count scale = quotient(change, *other - c[0]);
      const Count offset = minus(values[0], times(scale, c[0]));
      if (!offset || *scale == 0) continue;
      const Affine function{*offset, {{a, *scale}}};
      if (fits(function, values)) found.push_back(function);
    }
    return found;
  }

  // Two axes whose coordinates the given ranks tell apart: from three ranks by Cramer's rule.
  std::vector<Affine> fit_two(const Numbers& values) const {
    std::vector<Affine> found;
    for (std::size_t a = 0; a < axes_.all().size(); ++a)
      for (std::size_t b = a + 1; b < axes_.all().size(); ++b)
        if (const auto function = fit_pair(a, b, values)) found.push_back(*function);
    return found;
  }
  std::optional<Affine> fit_pair(std::size_t a, std::size_t b, const Numbers& values) const {
    const Numbers ca = axes_.coordinates(axes_.all()[a]), cb = axes_.coordinates(axes_.all()[b]);
    for (std::size_t i = 1; i < values.size(); ++i) {
      for (std::size_t j = i + 1; j < values.size(); ++j) {
        const std::int64_t a1 = ca[i] - ca[0], b1 = cb[i] - cb[0];
        const std::int64_t a2 = ca[j] - ca[0], b2 = cb[j] - cb[0];
        const Count v1 = minus(values[i], values[0]), v2 = minus(values[j], values[0]);
        const std::int64_t det = a1 * b2 - a2 * b1;
        if (det == 0) continue;
        const Count x = quotient(minus(times(v1, b2), times(v2, b1)), det);
        const Count y = quotient(minus(times(v2, a1), times(v1, a2)), det);
        const Count offset = minus(minus(values[0], times(x, ca[0])), times(y, cb[0]));
        if (!offset || *x == 0 || *y == 0) return std::nullopt;
        Affine function{*offset, {{a, *x}, {b, *y}}};
        if (fits(function, values)) return function;
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  const Axes& axes_;
  const std::vector<Rank>& ranks_;
  std::uint32_t world_size_;
};

// --------------------------------------------------------------------------- new nodes

// Functions of coordinates, at the front of the step; each made once.
class PlaceWriter {
 public:
  PlaceWriter(Graph& graph, const Axes& axes, std::uint32_t world_size)
      : axes_(axes), coordinates_(graph, world_size, "generalize") {}

  // A node whose value is the function's on each rank.
  NodeId write(const Affine& function) {
    if (const auto known = functions_.find(function); known != functions_.end()) return known->second;
    NodeId value;
    for (const auto& [axis, scale] : function.terms) {
      NodeId term;
      if (function.terms.size() > 1 || function.offset != 0) {
        term = write({0, {{axis, scale}}});
      } else {
        const GeneralizeAxis& of = axes_.all()[axis];
        term = coordinates_.coordinate(of.name, {of.stride, of.extent});
        if (scale != 1) term = coordinates_.number("operator.mul", term, Arg::integer(scale));
      }
      value = value ? coordinates_.number("operator.add", value, Arg::node(term)) : term;
    }
    if (function.offset != 0)
      value = coordinates_.number("operator.add", value, Arg::integer(function.offset));
    return functions_[function] = value;
  }

  void place() { coordinates_.place(); }
  NodeId add(const Node& node, const std::string& name) { return coordinates_.add(node, name); }

 private:
  const Axes& axes_;
  CoordinateWriter coordinates_;
  std::map<Affine, NodeId> functions_;
};

// --------------------------------------------------------------------------- differences

class Merger {
 public:
  Merger(const std::vector<Graph>& graphs, std::vector<World> worlds, Repair repair)
      : graphs_(graphs),
        context_(*graphs[0].context),
        worlds_(std::move(worlds)),
        ranks_(ranks_of(worlds_)),
        repair_(repair),
        axes_(graphs[0], worlds_[0], ranks_),
        numbers_of_axis_(axes_.all().size()),
        solver_(axes_, ranks_, worlds_[0].size),
        made_(graphs[0]),
        devices_(graphs.size(), RankDevices(context_)),
        writer_(made_, axes_, worlds_[0].size) {}

  Generalization run() {
    result_.ranks = ranks_;
    compare_bodies();
    if (!result_.structure) {
      insert_elements();
      repair_numbers();
    }
    result_.axes = axes_.count(numbers_of_axis_);
    result_.pairs = axes_.find_unseen_pairs();
    if (result_.unexplained.empty() && !result_.structure) finish();
    return std::move(result_);
  }

 private:
  static std::vector<Rank> ranks_of(const std::vector<World>& worlds) {
    std::vector<Rank> ranks;
    for (const World& world : worlds) ranks.push_back(world.file_rank);
    return ranks;
  }

  // One leaf of the trees of all ranks.
  using Leaves = std::vector<Arg>;
  struct Place {
    NodeId node;
    std::string argument;
    bool is_group = false;  // the argument names a group
  };

  void compare_bodies() {
    for (std::size_t g = 1; g < graphs_.size(); ++g) {
      if (graphs_[g].bodies.size() != graphs_[0].bodies.size())
        return differ(g, "has another number of nested graphs");
      if (graphs_[g].inputs.size() != graphs_[0].inputs.size() ||
          graphs_[g].outputs.size() != graphs_[0].outputs.size())
        return differ(g, "has another number of inputs or outputs");
      if (auto what = find_other_role(g)) return differ(g, *what);
      if (auto what = find_other_symbol(g)) return differ(g, *what);
    }
    for (std::size_t b = 0; b < graphs_[0].bodies.size() && !result_.structure; ++b) compare_body(b);
  }

  void differ(std::size_t graph, std::string_view what) {
    result_.structure = fmt::format("rank {}'s graph {}", ranks_[graph], what);
  }

  // Stages of a pipeline may be one program of other parameters.
  std::optional<std::string> find_other_role(std::size_t g) const {
    const Graph &base = graphs_[0], &other = graphs_[g];
    for (std::size_t i = 0; i < base.inputs.size(); ++i) {
      const InputRole &x = base.inputs[i], &y = other.inputs[i];
      if (x.role != y.role || x.fqn != y.fqn || x.which != y.which || !context_.args.equal(x.more, y.more))
        return fmt::format("has {} as input {}, rank {}'s {}{}", print_role(y.role, y.fqn ? y.fqn : y.which),
                           i, ranks_[0], print_role(x.role, x.fqn ? x.fqn : x.which),
                           x.fqn == y.fqn && x.which == y.which ? ", of which other facts are recorded" : "");
    }
    for (std::size_t i = 0; i < base.outputs.size(); ++i) {
      const OutputRole &x = base.outputs[i], &y = other.outputs[i];
      if (x.role != y.role || x.fqn != y.fqn)
        return fmt::format("returns {} as output {}, rank {}'s {}", print_role(y.role, y.fqn), i, ranks_[0],
                           print_role(x.role, x.fqn));
    }
    return std::nullopt;
  }
  std::string print_role(StringId role, StringId name) const {
    return fmt::format("{}{}{}", role ? context_.text(role) : "a value", name ? " " : "",
                       name ? context_.text(name) : "");
  }
  std::optional<std::string> find_other_symbol(std::size_t g) const {
    const Graph &base = graphs_[0], &other = graphs_[g];
    if (base.symbols.size() != other.symbols.size()) return "has another number of symbols";
    for (std::size_t i = 0; i < base.symbols.size(); ++i) {
      const Symbol &x = base.symbols[i], &y = other.symbols[i];
      if (x.name != y.name)
        return fmt::format("has symbol {} where rank {}'s has {}", context_.text(y.name), ranks_[0],
                           context_.text(x.name));
      if (x.lower != y.lower || x.upper != y.upper || x.replaced_by != y.replaced_by)
        return fmt::format("has another range of symbol {} than rank {}'s", context_.text(x.name), ranks_[0]);
    }
    return std::nullopt;
  }

  void compare_body(std::size_t b) {
    const Body& base = graphs_[0].bodies[b];
    for (std::size_t g = 1; g < graphs_.size(); ++g) {
      const Body& body = graphs_[g].bodies[b];
      const std::size_t count = std::min(body.order.size(), base.order.size());
      for (std::size_t i = 0; i < count; ++i) {
        const Node& x = base.nodes[base.order[i]];
        const Node& y = body.nodes[body.order[i]];
        if (x.kind != y.kind || x.target != y.target || x.args.count != y.args.count ||
            x.kwargs.count != y.kwargs.count || x.module != y.module)
          return differ(
              g, fmt::format("has %{} ({}{}{}) where rank {}'s has %{} ({}{}{})", context_.text(y.name),
                             context_.text(y.target), y.module ? ", " : "", context_.text(y.module),
                             ranks_[0], context_.text(x.name), context_.text(x.target), x.module ? ", " : "",
                             context_.text(x.module)));
      }
      if (body.order.size() != base.order.size())
        return differ(g, fmt::format("has {} nodes where rank {}'s has {}", body.order.size(), ranks_[0],
                                     base.order.size()));
      positions_.resize(graphs_.size());
    }
    if (graphs_.size() > 1) compare_nodes(b);
  }

  void compare_nodes(std::size_t b) {
    for (std::size_t g = 0; g < graphs_.size(); ++g) {
      const Body& body = graphs_[g].bodies[b];
      positions_[g] = SideTable<NodeId, std::uint32_t>();
      for (std::uint32_t i = 0; i < body.order.size(); ++i) positions_[g].at(body.order[i]) = i;
    }
    body_ = b;
    const Body& base = graphs_[0].bodies[b];
    std::vector<const Node*> nodes(graphs_.size());
    for (std::size_t i = 0; i < base.order.size(); ++i) {
      for (std::size_t g = 0; g < graphs_.size(); ++g)
        nodes[g] = &graphs_[g].bodies[b].nodes[graphs_[g].bodies[b].order[i]];
      compare_node(base.order[i], nodes);
    }
  }

  void compare_node(NodeId id, const std::vector<const Node*>& nodes) {
    const OpInfo* op = made_.bodies[body_].nodes[id].op;  // merging adds nodes: no reference stays
    const auto group = op != nullptr ? op->find_param("group_name") : std::nullopt;
    std::vector<ArgRange> args, kwargs;
    Leaves attributes;
    for (const Node* node : nodes) {
      args.push_back(node->args);
      kwargs.push_back(node->kwargs);
      attributes.push_back(node->attr);
    }
    const ArgRange merged = merge_positional(id, op, args, group);
    const ArgRange merged_keywords = merge_keywords(id, kwargs);
    made_.bodies[body_].nodes[id].args = merged;
    made_.bodies[body_].nodes[id].kwargs = merged_keywords;
    compare_attributes(attributes, {id, "value", false}, nodes[0]->type);
    compare_types(id, nodes);
  }

  // A constant of the graph: no coordinate can stand in it.
  void compare_attributes(const Leaves& attributes, const Place& place, TypeId type) {
    if (attributes[0].is(ArgKind::kMesh) || attributes[0].is(ArgKind::kProcessGroup)) {
      merge(attributes, place);
      return;
    }
    for (std::size_t g = 1; g < attributes.size(); ++g) {
      const Arg attribute = context_.args.map(attributes[g], [&](Arg leaf) {
        return leaf.is(ArgKind::kTypeRef) ? Arg::type_ref(devices_[g].rename(leaf.as_type(), type)) : leaf;
      });
      if (!context_.args.equal(attribute, attributes[0]))
        return refuse(place, attributes, "a constant of the graph differs, in which no coordinate can stand");
    }
  }

  ArgRange merge_positional(NodeId id, const OpInfo* op, const std::vector<ArgRange>& ranges,
                            std::optional<std::size_t> group) {
    std::vector<Arg> merged;
    bool is_changed = false;
    for (std::uint32_t i = 0; i < ranges[0].count; ++i) {
      const bool is_param = op != nullptr && i < op->params.size();
      merged.push_back(
          merge(leaves_at(ranges, i),
                {id, is_param ? std::string(op->params[i].name) : std::to_string(i), group && *group == i}));
      is_changed |= !(merged.back() == context_.args[ranges[0]][i]);
    }
    return is_changed ? context_.args.add(merged) : ranges[0];
  }

  ArgRange merge_keywords(NodeId id, const std::vector<ArgRange>& ranges) {
    std::vector<Arg> merged;
    bool is_changed = false;
    for (std::uint32_t i = 0; i < ranges[0].count; ++i) {
      const Arg key = context_.args[ranges[0]][i - i % 2];
      const std::string name = key.is(ArgKind::kText) ? std::string(context_.text(key.as_name())) : "?";
      merged.push_back(merge(leaves_at(ranges, i), {id, name, name == "group_name" && i % 2 == 1}));
      is_changed |= !(merged.back() == context_.args[ranges[0]][i]);
    }
    return is_changed ? context_.args.add(merged) : ranges[0];
  }

  Leaves leaves_at(const std::vector<ArgRange>& ranges, std::uint32_t i) const {
    Leaves leaves;
    for (ArgRange range : ranges) leaves.push_back(context_.args[range][i]);
    return leaves;
  }

  bool is_same(const Leaves& leaves) const {
    for (std::size_t g = 1; g < leaves.size(); ++g) {
      if (leaves[g].kind() != leaves[0].kind()) return false;
      if (leaves[g].is_node()) {
        if (positions_[g][leaves[g].as_node()] != positions_[0][leaves[0].as_node()]) return false;
      } else if (!leaves[g].is_tree() && !(leaves[g] == leaves[0])) {
        return false;
      }
    }
    return true;
  }

  // What stands for all ranks' leaves; the first rank's where that is so or nothing explains the
  // difference.
  Arg merge(const Leaves& leaves, const Place& place) {
    const Arg first = leaves[0];
    const bool is_all_mesh = std::ranges::all_of(leaves, [](Arg a) { return a.is(ArgKind::kMesh); });
    if (is_all_mesh) return merge_mesh(leaves, place);
    if (first.is_tree()) return merge_tree(leaves, place);
    const bool is_named_group = place.is_group && first.is(ArgKind::kText);
    if (is_same(leaves) && !is_named_group && !is_all_device(leaves)) return first;
    const bool is_all_int = std::ranges::all_of(leaves, [](Arg a) { return a.is_int(); });
    const bool is_all_text = std::ranges::all_of(leaves, [&](Arg a) {
      return a.kind() == first.kind() && (a.is(ArgKind::kText) || a.is(ArgKind::kProcessGroup));
    });
    if (is_all_text && (place.is_group || first.is(ArgKind::kProcessGroup)))
      return merge_group(leaves, place);
    if (is_all_int) return merge_numbers(leaves, place);
    if (is_all_device(leaves)) return merge_devices(leaves, place);
    if (std::ranges::all_of(leaves, [](Arg a) { return a.is_node(); })) return merge_elements(leaves, place);
    refuse(place, leaves, "nothing explains the difference");
    return first;
  }

  Arg merge_tree(const Leaves& leaves, const Place& place) {
    const Arg first = leaves[0];
    for (Arg leaf : leaves)
      if (leaf.kind() != first.kind() || leaf.children().count != first.children().count)
        return refuse(place, leaves, "its form differs"), first;
    std::vector<ArgRange> ranges;
    for (Arg leaf : leaves) ranges.push_back(leaf.children());
    std::vector<Arg> merged;
    bool is_changed = false;
    for (std::uint32_t i = 0; i < ranges[0].count; ++i) {
      merged.push_back(
          merge(leaves_at(ranges, i), {place.node, fmt::format("{}[{}]", place.argument, i), false}));
      is_changed |= !(merged.back() == context_.args[ranges[0]][i]);
    }
    return is_changed ? context_.args.add_tree(first.kind(), merged) : first;
  }

  Arg merge_mesh(const Leaves& leaves, const Place& place) {
    const auto base = read_mesh(context_, leaves[0]);
    bool differs = false;
    for (std::size_t g = 1; g < leaves.size(); ++g) {
      differs |= !context_.args.equal(leaves[g], leaves[0]);
      const auto other = read_mesh(context_, leaves[g]);
      const auto moved = base ? mesh_through(*base, {ranks_[0], ranks_[g]}) : std::nullopt;
      if (!moved || !other || moved->ranks != other->ranks || moved->axes != other->axes ||
          moved->shape != other->shape)
        return refuse(place, leaves, "it is not the mesh of the same axes through each rank"), leaves[0];
    }
    if (differs) explain(place, "mesh", print_axes(*base));
    return leaves[0];
  }

  std::string print_axes(const MeshValue& mesh) const {
    std::string text;
    for (StringId axis : mesh.axes)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", context_.text(axis));
    return fmt::format("mesh of {} through the rank", text);
  }

  // The rows that the ranks name: the group of one axis on each, always the same pairs, and one
  // communicator where ranks are members of one.
  Arg merge_group(const Leaves& leaves, const Place& place) {
    std::vector<const ProcessGroup*> rows;
    for (std::size_t g = 0; g < leaves.size(); ++g) rows.push_back(find_row(graphs_[g], leaves[g].as_name()));
    if (std::ranges::find(rows, nullptr) != rows.end())
      return refuse(place, leaves, "the group is not in the table"), leaves[0];
    const auto rule = find_group_rule(rows[0]->ranks, worlds_[0].size);
    for (std::size_t g = 1; g < rows.size(); ++g) {
      const bool holds_rank = std::ranges::find(rows[g]->ranks, ranks_[g]) != rows[g]->ranks.end();
      const bool is_of_axis =
          rule ? rule->members(ranks_[g]) == rows[g]->ranks : rows[g]->ranks.size() == rows[0]->ranks.size();
      if (!holds_rank || !is_of_axis)
        return refuse(place, leaves, "the groups are not those of one axis"), leaves[0];
      if (auto why = why_other_group(rows, g)) return refuse(place, leaves, *std::move(why)), leaves[0];
    }
    for (std::size_t g = 1; g < rows.size(); ++g) {
      names_.emplace(std::pair(g, rows[0]->name), rows[g]->name);
      first_names_.emplace(std::pair(g, rows[g]->name), rows[0]->name);
    }
    if (!is_same(leaves)) explain(place, "group", fmt::format("group of {}", print_group(*rows[0])));
    return leaves[0];
  }

  // Why one rank's row is not what the first rank's is there: names of the two are one to one.
  std::optional<std::string> why_other_group(const std::vector<const ProcessGroup*>& rows,
                                             std::size_t g) const {
    if (const auto known = names_.find({g, rows[0]->name}); known != names_.end()) {
      if (known->second == rows[g]->name) return std::nullopt;
      return fmt::format("rank {}'s group {} has two names on rank {}, {} before", ranks_[0],
                         context_.text(rows[0]->name), ranks_[g], context_.text(known->second));
    }
    for (std::size_t other = 0; other < g; ++other)
      if (rows[other]->ranks == rows[g]->ranks && !is_one_communicator(rows, other, g))
        return fmt::format("group {} of rank {} and {} of rank {} are two groups of the same ranks",
                           context_.text(rows[other]->name), ranks_[other], context_.text(rows[g]->name),
                           ranks_[g]);
    if (const auto known = first_names_.find({g, rows[g]->name}); known != first_names_.end())
      return fmt::format("two groups of rank {}, {} and before {}, have one name on rank {}, {}", ranks_[0],
                         context_.text(rows[0]->name), context_.text(known->second), ranks_[g],
                         context_.text(rows[g]->name));
    return std::nullopt;
  }

  // Of two rows with the same members. Ranks that name groups apart pair the k-th with these
  // members, as verify_ranks does.
  bool is_one_communicator(const std::vector<const ProcessGroup*>& rows, std::size_t a, std::size_t b) const {
    if (rows[a]->name == rows[b]->name) return true;
    const auto has = [&](std::size_t g, const ProcessGroup& row) {
      const ProcessGroup* same = find_row(graphs_[g], row.name);
      return same != nullptr && same->ranks == row.ranks;
    };
    if (has(a, *rows[b]) || has(b, *rows[a])) return false;
    const auto count_before = [&](std::size_t g) {
      return std::count_if(graphs_[g].groups.data(), rows[g],
                           [&](const ProcessGroup& row) { return row.ranks == rows[g]->ranks; });
    };
    return count_before(a) == count_before(b);
  }

  static const ProcessGroup* find_row(const Graph& graph, StringId name) {
    for (const ProcessGroup& row : graph.groups)
      if (row.name == name) return &row;
    return nullptr;
  }
  std::string print_group(const ProcessGroup& group) const {
    if (group.axes && !group.axes->empty()) return std::string(context_.text(group.axes->front()));
    const std::string_view description = context_.text(group.description);
    return std::string(description.starts_with("mesh_") ? description.substr(5) : description);
  }

  static bool is_all_device(const Leaves& leaves) {
    return std::ranges::all_of(leaves, [](Arg a) { return a.is(ArgKind::kDevice); });
  }

  // Also of equal ones: another node may show that the rank calls the device otherwise.
  Arg merge_devices(const Leaves& leaves, const Place& place) {
    for (std::size_t g = 1; g < leaves.size(); ++g)
      if (!devices_[g].pair(leaves[0].as_name(), leaves[g].as_name()))
        return refuse(place, leaves, "elsewhere the ranks' devices are paired otherwise"), leaves[0];
    if (!is_same(leaves)) explain(place, "device", print_device(leaves[0].as_name()));
    return leaves[0];
  }
  std::string print_device(StringId device) const {
    return fmt::format("{} device of the rank", device_kind(context_.text(device)));
  }

  Arg merge_numbers(const Leaves& leaves, const Place& place) {
    Numbers values;
    for (Arg leaf : leaves) values.push_back(leaf.as_int());
    if (body_ != 0)
      return refuse(place, leaves, "it is in a nested graph, which has no coordinates"), leaves[0];
    AffineSolver::Answer answer = solver_.solve(values);
    if (!answer.function) {
      if (answer.next)
        undecided_.push_back({place, leaves, std::move(answer)});
      else
        refuse(place, leaves, answer.why);
      return leaves[0];
    }
    count(*answer.function);
    explain(place, "coordinate", answer.function->print(axes_));
    return Arg::node(writer_.write(*answer.function));
  }

  // It is found from the given ranks alone, where what repair_number writes is proved for all.
  void count(const Affine& function) {
    for (const auto& [axis, scale] : function.terms) ++numbers_of_axis_[axis];
  }

  // Equal pieces of one value, by a coordinate.
  Arg merge_elements(const Leaves& leaves, const Place& place) {
    std::vector<TakenPiece> pieces;
    for (std::size_t g = 0; g < leaves.size(); ++g) {
      const Body& body = graphs_[g].bodies[body_];
      const auto piece = find_piece(context_, body, body.nodes[leaves[g].as_node()]);
      if (!piece || (g > 0 && positions_[g][piece->of] != positions_[0][pieces[0].of]))
        return refuse(place, leaves, "it reads another value"), leaves[0];
      pieces.push_back(*piece);
    }
    const std::optional<Choice> choice = body_ == 0 ? find_choice(pieces, leaves[0].as_node()) : std::nullopt;
    if (!choice) return refuse(place, leaves, "the elements are not equal pieces of one value"), leaves[0];
    const AffineSolver::Answer answer = solver_.solve(choice->indices);
    if (!answer.function) return refuse(place, leaves, answer.why, answer.next), leaves[0];
    for (Rank rank = 0; rank < worlds_[0].size; ++rank)
      if (const std::int64_t index = *answer.function->at(axes_, rank); index < 0 || index >= choice->count)
        return refuse(place, leaves,
                      fmt::format("it would be element {}, which is {} on rank {}, of a split into {}",
                                  answer.function->print(axes_), index, rank, choice->count),
                      rank),
               leaves[0];
    count(*answer.function);
    const TakenPiece& piece = pieces[0];
    Affine start = *answer.function;
    start.offset *= piece.size();
    for (auto& [axis, scale] : start.terms) scale *= piece.size();
    Affine end = start;
    end.offset += piece.size();
    explain(place, "element", fmt::format("slice of dimension {} from {}", piece.dim, start.print(axes_)));
    return Arg::node(slice_of(leaves[0].as_node(), piece, {writer_.write(start), writer_.write(end)}));
  }

  // Which each is of the equal pieces that the value is made of, and how many these are.
  struct Choice {
    Numbers indices;
    std::int64_t count = 0;
  };
  std::optional<Choice> find_choice(const std::vector<TakenPiece>& pieces, NodeId taken) const {
    const TakenPiece& first = pieces[0];
    const TensorType* whole = tensor_of(context_, graphs_[0].bodies[body_].nodes[first.of].type);
    const std::int64_t size = first.size();
    if (whole == nullptr || size == 0) return std::nullopt;
    const auto extent = context_.exprs.constant(whole->sizes[static_cast<std::size_t>(first.dim)]);
    if (!extent || *extent % size != 0) return std::nullopt;
    Choice choice{{}, *extent / size};
    const Body& body = graphs_[0].bodies[body_];
    if (tuple_element(context_, body, body.nodes[taken])) {
      const auto count = count_even_pieces(context_, body, body.nodes[taken]);
      if (!count) return std::nullopt;
      choice.count = *count;
    }
    for (const TakenPiece& piece : pieces) {
      if (piece.dim != first.dim || piece.size() != size || piece.start % size != 0) return std::nullopt;
      choice.indices.push_back(piece.start / size);
    }
    return choice;
  }

  // The call with which ranks take such pieces: the split, or the slice that takes the last, whose
  // end tracers spell otherwise.
  const Node* find_call(NodeId element, const TakenPiece& piece) const {
    const Body& body = graphs_[0].bodies[body_];
    if (const auto tuple = tuple_element(context_, body, body.nodes[element]))
      return &body.nodes[tuple->tuple];
    const TensorType* whole = tensor_of(context_, body.nodes[piece.of].type);
    const auto extent = context_.exprs.constant(whole->sizes[static_cast<std::size_t>(piece.dim)]);
    if (!extent) return nullptr;
    const TakenPiece last{piece.of, piece.dim, *extent - piece.size(), *extent};
    const Node* found = nullptr;
    for (const auto [id, node] : walk(context_, body)) {
      if (find_piece(context_, body, node) != last) continue;
      found = &node;
      if (positions_[0][id] >= positions_[0][element]) break;  // the first behind it, else the last before
    }
    return found;
  }

  NodeId slice_of(NodeId element, const TakenPiece& piece, std::pair<NodeId, NodeId> bounds) {
    const auto key = std::tuple(element, bounds.first, bounds.second);
    if (const auto known = slices_.find(key); known != slices_.end()) return known->second;
    Node node = made_.step().nodes[element];
    node.target = made_.intern("aten.slice.Tensor");
    const Arg args[] = {Arg::node(piece.of), Arg::integer(piece.dim), Arg::node(bounds.first),
                        Arg::node(bounds.second)};
    node.args = context_.args.add(args);
    node.kwargs = {};
    node.provenance = {};
    if (const Node* call = find_call(element, piece)) node.extra = describe_element(made_, node.extra, *call);
    const std::string name(made_.text(node.name));
    const NodeId id = writer_.add(node, fmt::format("{}_of_rank", name));
    Node& made = made_.step().nodes[id];
    // A piece of the element's sizes and strides; where it begins is a function of the coordinates.
    Type type = context_.types[made.type];
    const TensorType* whole = tensor_of(context_, made_.step().nodes[piece.of].type);
    if (whole != nullptr) {
      const auto at = static_cast<std::size_t>(piece.dim);
      const Type& start = context_.types[made_.step().nodes[bounds.first].type];
      ExprId offset = context_.exprs.mul(start.expr, whole->strides[at]);
      if (whole->offset) offset = context_.exprs.add(whole->offset, offset);
      type.tensor.offset = offset;
      made.type = context_.types.intern(std::move(type));
    }
    slices_[key] = id;
    inserted_.emplace_back(element, id);
    return id;
  }

  // Behind the element that the first rank reads.
  void insert_elements() {
    writer_.place();
    if (inserted_.empty()) return;
    std::map<NodeId, std::vector<NodeId>> behind;
    for (const auto& [element, slice] : inserted_) behind[element].push_back(slice);
    std::vector<NodeId> order;
    for (NodeId id : made_.step().order) {
      order.push_back(id);
      if (const auto found = behind.find(id); found != behind.end())
        order.insert(order.end(), found->second.begin(), found->second.end());
    }
    made_.step().order = std::move(order);
  }

  void compare_types(NodeId id, const std::vector<const Node*>& nodes) {
    const TypeId first = nodes[0]->type;
    const bool is_mesh =
        recorded_mesh(context_, *nodes[0]).has_value();  // of equal ones, one may not be the rank's
    std::vector<TypeId> types{first};
    for (std::size_t g = 1; g < nodes.size(); ++g) types.push_back(devices_[g].rename(nodes[g]->type, first));
    const auto is_first = [&](TypeId type) { return type == first; };
    if (is_mesh || !std::ranges::all_of(types, is_first)) return compare_values(id, nodes, types);
    // Those of calls follow from their operands'.
    const bool is_renamed =
        !std::ranges::all_of(nodes, [&](const Node* node) { return node->type == first; });
    if (is_renamed && nodes[0]->kind != NodeKind::kCall)
      explain({id, "type", false}, "device", print_device(find_device(context_, first)));
  }

  // `types`: by the first rank's names of devices.
  void compare_values(NodeId id, const std::vector<const Node*>& nodes, const std::vector<TypeId>& types) {
    Leaves values;
    std::vector<std::string> texts;
    for (const Node* node : nodes) {
      const bool is_value = node->type && context_.types[node->type].kind == TypeKind::kValue;
      if (is_value) values.push_back(context_.types[node->type].value);
      texts.push_back(node->type ? print_type(context_, node->type) : "none");
    }
    const Place place{id, "type", false};
    if (values.size() == nodes.size() &&
        std::ranges::all_of(values, [](Arg a) { return a.is(ArgKind::kMesh); })) {
      merge_mesh(values, place);
    } else if (values.size() == nodes.size() && values[0].is(ArgKind::kProcessGroup)) {
      merge_group(values, place);
    } else if (body_ != 0 || !merge_offsets(id, types)) {
      refuse_with(place, std::move(texts), "its size or type differs, for which no symbol stands", {});
    }
  }

  // Views of the same form that begin at a place of the rank's, also within a tuple: whether
  // functions of the coordinates say where.
  bool merge_offsets(NodeId id, const std::vector<TypeId>& types) {
    // Inputs stand in front of the coordinates.
    if (made_.step().nodes[id].kind != NodeKind::kCall) return false;
    const auto type = merge_offsets(types);
    if (type) made_.step().nodes[id].type = *type;
    return type.has_value();
  }

  std::optional<TypeId> merge_offsets(const std::vector<TypeId>& types) {
    if (std::ranges::all_of(types, [&](TypeId type) { return type == types[0]; })) return types[0];
    if (std::ranges::find(types, TypeId()) != types.end()) return std::nullopt;
    const Type first = context_.types[types[0]];
    if (first.kind == TypeKind::kTensor) return merge_offset(types);
    if (first.kind != TypeKind::kTuple && first.kind != TypeKind::kList) return std::nullopt;
    Type merged = first;
    for (std::size_t i = 0; i < first.elements.size(); ++i) {
      std::vector<TypeId> elements;
      for (TypeId of : types) {
        const Type& other = context_.types[of];
        if (other.kind != first.kind || other.elements.size() != first.elements.size()) return std::nullopt;
        elements.push_back(other.elements[i]);
      }
      const auto element = merge_offsets(elements);
      if (!element) return std::nullopt;
      merged.elements[i] = *element;
    }
    return context_.types.intern(std::move(merged));
  }

  std::optional<TypeId> merge_offset(const std::vector<TypeId>& types) {
    Numbers offsets;
    Type type = context_.types[types[0]];
    const ExprId none = type.tensor.offset;
    for (TypeId of : types) {
      const TensorType* tensor = tensor_of(context_, of);
      if (tensor == nullptr) return std::nullopt;
      const Count offset = tensor->offset ? context_.exprs.constant(tensor->offset) : Count(0);
      if (!offset) return std::nullopt;
      offsets.push_back(*offset);
      Type other = context_.types[of];
      other.tensor.offset = none;
      if (context_.types.intern(std::move(other)) != types[0]) return std::nullopt;
    }
    const AffineSolver::Answer answer = solver_.solve(offsets);
    if (!answer.function) return std::nullopt;
    const NodeId place = writer_.write(*answer.function);
    type.tensor.offset = context_.types[made_.step().nodes[place].type].expr;
    return context_.types.intern(std::move(type));
  }

  // Numbers that the ranks given do not show to differ, and that must.
  void repair_numbers() {
    body_ = 0;  // the step, of which these are
    const RankLiterals literals = find_rank_literals(made_, ranks_[0]);
    bool is_changed = false;
    for (const RankLiteral& literal : literals.proved)
      if (literal.value.is_int() && !refused_.contains(literal.node))
        is_changed |= is_undecided(literal) ? decide(literal) : repair_number(literal);
    for (const Undecided& number : undecided_)
      refuse(number.place, number.leaves, number.answer.why, number.answer.next);
    for (const RankLiteral& literal : literals.similar)
      result_.unproved.push_back(fmt::format("%{}: {} looks like {}",
                                             made_.text(made_.step().nodes[literal.node].name),
                                             literal.value.as_int(), print_expression(made_, literal)));
    if (is_changed) write_repairs();
  }

  auto find_undecided(const RankLiteral& literal) {
    return std::ranges::find_if(undecided_, [&](const Undecided& number) {
      return number.place.node == literal.node && number.leaves[0] == literal.value;
    });
  }
  bool is_undecided(const RankLiteral& literal) { return find_undecided(literal) != undecided_.end(); }
  // Of a number that follows one of several axes, as far as the given ranks show: the proof says
  // which.
  bool decide(const RankLiteral& literal) {
    const auto known = find_undecided(literal);
    RankLiteral decided = literal;
    std::erase_if(decided.axes, [&](const RankAxis& axis) { return !fits(literal, axis, known->leaves); });
    if (decided.axes.size() != 1 || decided.is_shared) return false;
    if (repair_ == Repair::kNo) {
      known->answer.why += "; --repair tells by the lookup";
      return false;
    }
    const auto axis = find_axis(decided);
    if (!axis) return false;
    const Affine function{decided.offset, {{*axis, decided.scale}}};
    explain(known->place, "coordinate", function.print(axes_));
    repaired_.emplace_back(std::move(decided), function);
    undecided_.erase(known);
    return true;
  }
  bool fits(const RankLiteral& literal, const RankAxis& axis, const Leaves& leaves) const {
    for (std::size_t g = 0; g < leaves.size(); ++g)
      if (literal.offset + literal.scale * axis.coordinate(ranks_[g]) != leaves[g].as_int()) return false;
    return true;
  }

  // Whether the number is to be replaced.
  bool repair_number(RankLiteral literal) {
    const Place place{literal.node, "other", false};
    const Leaves leaves(ranks_.size(), literal.value);
    const std::string all = print_expression(made_, literal);
    for (Rank rank : ranks_) {
      const std::string here = print_values(literal, rank);
      std::erase_if(literal.axes, [&](const RankAxis& axis) {
        return literal.offset + literal.scale * axis.coordinate(rank) != literal.value.as_int();
      });
      if (!literal.axes.empty()) continue;
      refuse(place, leaves, fmt::format("it must be {}, which is {} on rank {}", all, here, rank));
      return false;
    }
    const auto axis = find_axis(literal);
    if (!axis) {
      refuse(place, leaves, fmt::format("it must be {}, of an axis that no mesh of the job has", all));
    } else if (literal.axes.size() > 1) {
      refuse(
          place, leaves,
          fmt::format("it must be {}; the given ranks do not show which", print_expression(made_, literal)),
          axes_.all()[*axis].next);
    } else if (literal.is_shared) {
      refuse(place, leaves,
             fmt::format("it must be {} as a bound of a shard, and what it gives serves something else, too",
                         print_expression(made_, literal)),
             axes_.all()[*axis].next);
    } else if (repair_ == Repair::kNo) {
      refuse(place, leaves,
             fmt::format("it must be {}; --repair writes that", print_expression(made_, literal)),
             axes_.all()[*axis].next);
    } else {
      const Affine function{literal.offset, {{*axis, literal.scale}}};
      explain(place, "coordinate", function.print(axes_));
      repaired_.emplace_back(std::move(literal), function);
      return true;
    }
    return false;
  }

  std::optional<std::size_t> find_axis(const RankLiteral& literal) const {
    const RankAxis& first = literal.axes.front();
    for (std::size_t a = 0; a < axes_.all().size(); ++a)
      if (axes_.all()[a].stride == first.stride && axes_.all()[a].extent == first.extent) return a;
    return std::nullopt;
  }

  void write_repairs() {
    PlaceWriter writer(made_, axes_, worlds_[0].size);
    for (const auto& [literal, function] : repaired_) {
      const NodeId value = writer.write(function);
      Node& node = made_.step().nodes[literal.node];
      std::vector<Arg> args(context_.args[node.args].begin(), context_.args[node.args].end());
      args[literal.argument] = Arg::node(value);
      node.args = context_.args.add(args);
    }
    writer.place();
  }

  void finish() {
    list_groups();
    set_info(made_, kRankAgnosticKey, Arg::boolean(true));
    result_.graph = std::move(made_);
  }

  // Every group of the other ranks that a rule does not name: {"23": [["24", [1, 3]]]}.
  void list_groups() {
    std::vector<Arg> entries;
    for (const ProcessGroup& base : graphs_[0].groups) {
      std::map<StringId, std::vector<Rank>> listed;
      for (std::size_t g = 1; g < graphs_.size(); ++g)
        if (const ProcessGroup* row = counterpart(base, g); row != nullptr && row->name != base.name)
          listed.emplace(row->name, row->ranks);
      if (listed.empty()) continue;
      std::vector<std::pair<std::vector<Rank>, StringId>> rows;
      for (const auto& [name, ranks] : listed) rows.emplace_back(ranks, name);
      std::ranges::sort(rows, {}, [](const auto& row) { return row.first; });
      std::vector<Arg> list;
      for (const auto& [ranks, name] : rows) {
        std::vector<Arg> members;
        for (Rank rank : ranks) members.push_back(Arg::integer(rank));
        const Arg pair[] = {Arg::text(name), context_.args.intern_tree(ArgKind::kList, members)};
        list.push_back(context_.args.intern_tree(ArgKind::kList, pair));
      }
      entries.push_back(Arg::text(base.name));
      entries.push_back(context_.args.intern_tree(ArgKind::kList, list));
    }
    if (!entries.empty()) set_info(made_, kRankGroupsKey, context_.args.intern_tree(ArgKind::kDict, entries));
  }

  // The row of another rank's table: what a launch names there, else the row in the same place with
  // the same description.
  const ProcessGroup* counterpart(const ProcessGroup& base, std::size_t g) const {
    if (const auto known = names_.find({g, base.name}); known != names_.end())
      return find_row(graphs_[g], known->second);
    const auto at = static_cast<std::size_t>(&base - graphs_[0].groups.data());
    if (at >= graphs_[g].groups.size()) return nullptr;
    const ProcessGroup& row = graphs_[g].groups[at];
    if (first_names_.contains({g, row.name})) return nullptr;
    return row.description == base.description && row.ranks.size() == base.ranks.size() ? &row : nullptr;
  }

  void explain(const Place& place, std::string kind, std::string expression) {
    result_.explained.push_back({std::string(graphs_[0].text(made_.bodies[body_].nodes[place.node].name)),
                                 place.argument, std::move(kind), std::move(expression)});
  }

  void refuse(const Place& place, const Leaves& leaves, std::string why, std::optional<Rank> next = {}) {
    std::vector<std::string> values;
    for (std::size_t g = 0; g < leaves.size(); ++g) values.push_back(print_leaf(g, leaves[g]));
    refuse_with(place, std::move(values), std::move(why), next);
  }
  void refuse_with(const Place& place, std::vector<std::string> values, std::string why,
                   std::optional<Rank> next) {
    if (body_ == 0) refused_.insert(place.node);
    result_.unexplained.push_back({site_of(made_, made_.bodies[body_].nodes[place.node]), place.argument,
                                   std::move(why), std::move(values), next});
  }

  // Of a constant tensor, the first of a long list.
  std::string print_numbers(Arg values) const {
    constexpr std::size_t kShown = 8;
    if (!values.is_list()) return print_leaf(0, values);
    std::string text;
    const auto items = context_.args.children(values);
    for (std::size_t i = 0; i < std::min<std::size_t>(items.size(), kShown); ++i)
      text += (i == 0 ? "" : ", ") + print_numbers(items[i]);
    return fmt::format("[{}{}]", text, items.size() > kShown ? ", .." : "");
  }

  std::string print_leaf(std::size_t g, Arg leaf) const {
    if (leaf.is_int()) return std::to_string(leaf.as_int());
    if (leaf.is(ArgKind::kReal)) return fmt::format("{}", leaf.as_real());
    if (leaf.is(ArgKind::kBool)) return leaf.as_bool() ? "True" : "False";
    if (leaf.is_none()) return "None";
    if (leaf.is_node() && g < graphs_.size())
      return fmt::format("%{}", context_.text(graphs_[g].bodies[body_].nodes[leaf.as_node()].name));
    if (const auto mesh = read_mesh(context_, leaf)) return fmt::format("mesh of ranks {}", mesh->ranks);
    if (leaf.is(ArgKind::kTensor)) return print_numbers(context_.args.children(leaf)[2]);
    if (leaf.is_tree()) return fmt::format("{} items", leaf.children().count);
    if (leaf.is(ArgKind::kSymbolic)) return std::string(context_.exprs.text(leaf.as_expr()));
    return leaf.kind() >= ArgKind::kText ? std::string(context_.text(leaf.as_name())) : "?";
  }

  const std::vector<Graph>& graphs_;
  Context& context_;
  std::vector<World> worlds_;
  std::vector<Rank> ranks_;
  Repair repair_;
  Axes axes_;
  std::vector<std::uint32_t> numbers_of_axis_;
  AffineSolver solver_;
  Graph made_;
  std::vector<RankDevices> devices_;  // of each rank
  PlaceWriter writer_;
  Generalization result_;
  std::size_t body_ = 0;
  std::vector<SideTable<NodeId, std::uint32_t>> positions_;     // of each graph's nodes, in the body compared
  std::map<std::pair<std::size_t, StringId>, StringId> names_;  // of the first rank's groups on another
  std::map<std::pair<std::size_t, StringId>, StringId> first_names_;  // on the first rank, of another's
  std::map<std::tuple<NodeId, NodeId, NodeId>, NodeId> slices_;  // by the first rank's element, and bounds
  std::vector<std::pair<NodeId, NodeId>> inserted_;              // element, slice
  struct Undecided {
    Place place;
    Leaves leaves;
    AffineSolver::Answer answer;
  };
  std::vector<Undecided> undecided_;  // numbers that follow one of several axes
  std::vector<std::pair<RankLiteral, Affine>> repaired_;
  IdSet<NodeId> refused_;  // of the step: nodes with something unexplained
};

}  // namespace

Generalization generalize(const std::vector<Graph>& graphs, Repair repair) {
  return Merger(graphs, read_worlds(graphs), repair).run();
}

}  // namespace epweave
