#include "analysis/rank_literals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "analysis/collectives.h"
#include "analysis/packed_gathers.h"
#include "analysis/returned_values.h"
#include "analysis/shard_bounds.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/indexed_dims.h"
#include "ops/mapping.h"
#include "ops/mesh_calls.h"
#include "ops/number_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

using Axis = RankAxis;  // of a parameter's mesh

// A dimension holds `local` of `global` places: the shard of a parameter's dimension along some of
// these axes.
struct Shard {
  std::int64_t local = 0, global = 0;
  std::vector<Axis> axes;  // that may be among them
};

// By dimension; none: not a shard.
using ShardedDims = std::vector<std::optional<Shard>>;
using ShardedValue = std::vector<ShardedDims>;  // each tensor of a tuple

// The axis along which the shard is cut: all that it could be.
std::vector<Axis> fitting_axes(const Shard& shard) {
  std::vector<Axis> found;
  for (const Axis& axis : shard.axes)
    if (shard.local * axis.extent == shard.global) found.push_back(axis);
  return found;
}

// --------------------------------------------------------------------------- which dimensions are
// shards

Arg write_shard(Context& context, const std::optional<Shard>& shard) {
  if (!shard) return Arg::none();
  std::vector<Arg> axes;
  for (const Axis& axis : shard->axes) {
    const Arg row[] = {Arg::text(axis.name), Arg::integer(axis.stride), Arg::integer(axis.extent)};
    axes.push_back(context.args.intern_tree(ArgKind::kList, row));
  }
  const Arg row[] = {Arg::integer(shard->local), Arg::integer(shard->global),
                     context.args.intern_tree(ArgKind::kList, axes)};
  return context.args.intern_tree(ArgKind::kList, row);
}

// Its items, if it is a list of that many.
std::span<const Arg> items_of(const Context& context, Arg list, std::size_t count) {
  if (!list.is_list()) return {};
  const auto items = context.args.children(list);
  return items.size() == count ? items : std::span<const Arg>();
}

std::optional<Shard> read_shard(const Context& context, Arg record) {
  const auto row = items_of(context, record, 3);
  if (row.empty() || !row[0].is_int() || !row[1].is_int() || !row[2].is_list()) return std::nullopt;
  Shard shard{row[0].as_int(), row[1].as_int(), {}};
  if (shard.local < 1 || shard.global <= shard.local || shard.global % shard.local != 0) return std::nullopt;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  for (Arg item : context.args.children(row[2])) {
    const auto axis = items_of(context, item, 3);
    if (axis.empty() || !axis[0].is(ArgKind::kText) || !axis[1].is_int() || !axis[2].is_int())
      return std::nullopt;
    const std::int64_t stride = axis[1].as_int(), extent = axis[2].as_int();
    if (stride < 1 || stride > kMost || extent < 2 || extent > kMost) return std::nullopt;
    shard.axes.push_back(
        {axis[0].as_name(), static_cast<std::uint32_t>(stride), static_cast<std::uint32_t>(extent)});
  }
  return shard;
}

constexpr std::string_view kShardsKey = "shards", kPlacesKey = "places", kTablesKey = "sharded_tables";

class ShardFinder {
 public:
  ShardFinder(const Graph& graph, Facts& facts)
      : graph_(graph), context_(*graph.context), facts_(facts), packed_(graph) {
    read_parameters();
    read_recorded();
    for (const auto [id, node] : walk(context_, graph.step()))
      if (node.kind == NodeKind::kCall) visit(id, node);
  }

  // Of a tensor's dimension.
  const Shard* find(NodeId id, std::int64_t dim) const {
    const auto found = values_.find(id);
    if (found == values_.end() || found->second.size() != 1) return nullptr;
    const ShardedDims& dims = found->second.front();
    if (dim < 0) dim += static_cast<std::int64_t>(dims.size());
    if (dim < 0 || dim >= static_cast<std::int64_t>(dims.size())) return nullptr;
    const auto& shard = dims[static_cast<std::size_t>(dim)];
    return shard ? &*shard : nullptr;
  }
  // Along which the parameters are cut, and local extents.
  const std::vector<Shard>& all() const { return all_; }

  // As inputs of another graph record it; none: nothing is known.
  std::optional<Arg> describe(NodeId id) const {
    const auto found = values_.find(id);
    if (found == values_.end() || found->second.size() != 1) return std::nullopt;
    std::vector<Arg> dims;
    for (const auto& shard : found->second.front()) dims.push_back(write_shard(*graph_.context, shard));
    return graph_.context->args.intern_tree(ArgKind::kList, dims);
  }

 private:
  std::map<StringId, NodeId> list_placeholders() const {
    const Body& step = graph_.step();
    std::map<StringId, NodeId> placeholders;
    for (NodeId id : step.order) {
      if (step.nodes[id].kind != NodeKind::kPlaceholder) break;
      placeholders.emplace(step.nodes[id].name, id);
    }
    return placeholders;
  }

  // What the graph that these inputs are saved values of knew (describe_shards).
  void read_recorded() {
    std::map<StringId, NodeId> placeholders;
    for (const InputRole& input : graph_.inputs) {
      const Arg* recorded = find_entry(context_, input.more, kShardsKey);
      if (recorded == nullptr) continue;
      if (placeholders.empty()) placeholders = list_placeholders();
      const auto at = placeholders.find(input.name);
      const TensorType* tensor =
          at != placeholders.end() ? tensor_of(context_, graph_.step().nodes[at->second].type) : nullptr;
      if (tensor == nullptr) continue;
      ShardedDims dims;
      for (Arg dim : items_of(context_, *recorded, tensor->rank())) dims.push_back(read_shard(context_, dim));
      for (const auto& shard : dims)
        if (shard) all_.push_back(*shard);
      if (!dims.empty()) keep(at->second, {std::move(dims)});
    }
  }

  void read_parameters() {
    std::map<StringId, std::vector<Axis>> axes;  // by parameter
    const Body& step = graph_.step();
    const std::map<StringId, Rules> reduced = list_reduced();
    const std::map<StringId, NodeId> placeholders = list_placeholders();
    for (const InputRole& input : graph_.inputs)
      if (const auto at = placeholders.find(input.name); at != placeholders.end())
        if (const auto mesh = recorded_mesh(context_, step.nodes[at->second]))
          axes[input.fqn] = axes_of(*mesh);
    for (auto& [fqn, all] : axes)
      if (const auto rules = reduced.find(fqn); rules != reduced.end())
        for (const GroupRule& rule : rules->second) erase_axis(all, rule);
    for (const InputRole& input : graph_.inputs) {
      const auto at = placeholders.find(input.name);
      const Arg* global = find_entry(context_, input.more, "global_shape");
      if (at == placeholders.end() || global == nullptr || !global->is_list()) continue;
      const TensorType* tensor = tensor_of(context_, step.nodes[at->second].type);
      if (tensor != nullptr && axes.contains(input.fqn))
        add_parameter(at->second, *tensor, *global, axes[input.fqn]);
    }
  }

  using Rules = std::vector<GroupRule>;

  // By parameter: the groups whose ranks all get one gradient, as it is summed whole over them.
  // These ranks hold one shard.
  std::map<StringId, Rules> list_reduced() {
    std::map<NodeId, Rules> reduced;
    for (const auto [id, node] : walk(context_, graph_.step()))
      if (node.kind == NodeKind::kCall && node.op != nullptr && keeps_shares(*node.op))
        if (Rules rules = rules_of_result(node, reduced); !rules.empty()) reduced[id] = std::move(rules);
    std::map<StringId, Rules> found;
    const StringId grad = graph_.intern("grad");
    const std::vector<NodeId> returned = list_outputs(graph_);
    for (std::size_t i = 0; i < returned.size() && i < graph_.outputs.size(); ++i)
      if (graph_.outputs[i].role == grad && reduced.contains(returned[i]))
        found[graph_.outputs[i].fqn] = reduced[returned[i]];
    return found;
  }

  // Calls after which ranks that had one value still have one: they choose no part of it, which
  // could be each rank's own.
  static bool keeps_shares(const OpInfo& op) {
    return keeps_each(op.family) || op.family == OpFamily::kAllReduce ||
           op.family == OpFamily::kReduceScatter;
  }

  // Those of all its operands, and its own. A reduce-scatter gives each rank of its group another
  // share.
  Rules rules_of_result(const Node& node, const std::map<NodeId, Rules>& reduced) {
    std::optional<Rules> common;
    for_each_input(context_, node, [&](NodeId input) {
      const TypeId type = graph_.step().nodes[input].type;
      if (type && context_.types[type].kind == TypeKind::kValue) return;  // a group
      const auto known = reduced.find(input);
      Rules rules = known == reduced.end() ? Rules() : known->second;
      if (common) std::erase_if(rules, [&](const GroupRule& rule) { return !has_rule(*common, rule); });
      common = std::move(rules);
    });
    Rules rules = common.value_or(Rules());
    if (node.op->family == OpFamily::kReduceScatter) {
      const auto own = rule_of_call(node);
      std::erase_if(rules, [&](const GroupRule& rule) { return !own || !is_apart(rule, *own); });
    }
    if (node.op->family == OpFamily::kAllReduce)
      if (const auto own = rule_of_call(node)) rules.push_back(*own);
    return rules;
  }
  // Whether ranks that differ along the one have one place along the other.
  static bool is_apart(const GroupRule& x, const GroupRule& y) {
    return x.stride % (y.stride * y.extent) == 0 || y.stride % (x.stride * x.extent) == 0;
  }
  static bool has_rule(const Rules& rules, const GroupRule& wanted) {
    return std::ranges::any_of(
        rules, [&](const GroupRule& r) { return r.stride == wanted.stride && r.extent == wanted.extent; });
  }

  static void erase_axis(std::vector<Axis>& axes, const GroupRule& rule) {
    std::erase_if(axes, [&](const Axis& a) { return a.stride == rule.stride && a.extent == rule.extent; });
  }

  static std::vector<Axis> axes_of(const MeshValue& mesh) {
    std::vector<Axis> axes;
    const auto strides = strides_of(mesh);
    for (std::size_t d = 0; strides && d < mesh.axes.size(); ++d)
      if (mesh.shape[d] > 1) axes.push_back({mesh.axes[d], (*strides)[d], mesh.shape[d]});
    return axes;
  }

  void add_parameter(NodeId id, const TensorType& tensor, Arg global, const std::vector<Axis>& axes) {
    const auto extents = context_.args.children(global);
    if (extents.size() != tensor.rank()) return;
    ShardedDims dims(tensor.rank());
    bool is_cut = false;
    for (std::size_t d = 0; d < tensor.rank(); ++d) {
      const auto local = context_.exprs.constant(tensor.sizes[d]);
      if (!local || !extents[d].is_int() || *local < 1 || extents[d].as_int() <= *local ||
          extents[d].as_int() % *local != 0)
        continue;
      dims[d] = Shard{*local, extents[d].as_int(), axes};
      all_.push_back(*dims[d]);
      is_cut = true;
    }
    if (is_cut) values_[id] = {std::move(dims)};
  }

  void visit(NodeId id, const Node& node) {
    if (node.op == nullptr) return;
    if (const auto piece = packed_.visit(id))
      return gather(id, piece->tensor, graph_.step().nodes[piece->launch]);
    const OpFamily family = node.op->family;
    const bool is_copy = is_wait(node) || family == OpFamily::kLike || family == OpFamily::kIndexPut;
    if (family == OpFamily::kElement) return take_element(id, node);
    if (is_copy) return copy(id, node);
    if (family != OpFamily::kAllGather) return map(id, node);
    if (const Arg from = arg_of(context_, node, 0); from.is_node()) gather(id, from.as_node(), node);
  }

  const ShardedValue* operand(const Node& node, std::size_t position) const {
    const Arg arg = arg_of(context_, node, position);
    const auto found = arg.is_node() ? values_.find(arg.as_node()) : values_.end();
    return found == values_.end() ? nullptr : &found->second;
  }

  // As large as the first operand, place by place.
  void copy(NodeId id, const Node& node) {
    const ShardedValue* from = operand(node, 0);
    if (from == nullptr || from->size() != 1) return;
    const TensorType* tensor = tensor_of(context_, node.type);
    if (tensor != nullptr && tensor->rank() == from->front().size()) values_[id] = ShardedValue(*from);
  }

  void take_element(NodeId id, const Node& node) {
    const ShardedValue* from = operand(node, 0);
    const Arg index = arg_of(context_, node, 1);
    if (from == nullptr || !index.is_int() || index.as_int() < 0 ||
        index.as_int() >= static_cast<std::int64_t>(from->size()))
      return;
    keep(id, {ShardedDims((*from)[static_cast<std::size_t>(index.as_int())])});
  }

  // Shards along the group's axis are put together along the first dimension.
  void gather(NodeId id, NodeId from, const Node& launch) {
    const auto found = values_.find(from);
    const auto rule = rule_of_call(launch);
    if (found == values_.end() || found->second.size() != 1 || !rule) return;
    ShardedDims dims = found->second.front();
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (!dims[d]) continue;
      erase_axis(dims[d]->axes, *rule);
      if (d == 0) dims[d]->local *= rule->extent;
      if (dims[d]->local >= dims[d]->global) dims[d].reset();
    }
    keep(id, {std::move(dims)});
  }

  std::optional<GroupRule> rule_of_call(const Node& node) {
    const auto position = node.op->find_param("group_name");
    const Arg* group = position ? find_arg(context_, node, *position, "group_name") : nullptr;
    return group != nullptr ? rule_of(*group) : std::nullopt;
  }

  std::optional<GroupRule> rule_of(Arg group) {
    if (world_size_ == 0) world_size_ = read_world(graph_).size;
    const ProcessGroup* row = graph_.find_group(recorded_group(context_, graph_.step(), group));
    return row == nullptr ? std::nullopt : find_group_rule(row->ranks, world_size_);
  }

  void map(NodeId id, const Node& node) {
    bool is_concerned = false;
    for_each_input(context_, node, [&](NodeId input) { is_concerned |= values_.contains(input); });
    if (!is_concerned) return;
    const auto mapped = mapped_node(graph_, node, facts_);
    if (!mapped) return;
    const CallMapping mapping = map_dimensions(mapped->call);
    if (!mapping.is_known()) return;
    ShardedValue made;
    for (std::size_t r = 0; r < mapping.result_count(); ++r) made.emplace_back(mapping.result_rank(r));
    for (std::size_t t = 0; t < mapped->operands.size() && t < mapping.operand_count(); ++t) {
      const auto found = values_.find(mapped->operands[t]);
      if (found == values_.end() || found->second.size() != 1) continue;
      for (std::size_t d = 0; d < mapping.operand_rank(t) && d < found->second.front().size(); ++d)
        if (const auto& shard = found->second.front()[d])
          hand_on(mapping, *shard, mapping.operand(t, d), made);
    }
    keep(id, std::move(made));
  }

  static void hand_on(const CallMapping& mapping, const Shard& shard, std::span<const Factor> factors,
                      ShardedValue& made) {
    if (factors.empty() ||
        std::ranges::any_of(factors, [&](Factor f) { return mapping.use(f) == FactorUse::kIndexed; }))
      return;
    for (std::size_t r = 0; r < made.size(); ++r)
      for (std::size_t d = 0; d < made[r].size(); ++d)
        if (std::ranges::equal(mapping.result(r, d), factors)) made[r][d] = shard;
  }

  void keep(NodeId id, ShardedValue value) {
    const bool is_cut = std::ranges::any_of(value, [](const ShardedDims& dims) {
      return std::ranges::any_of(dims, [](const auto& shard) { return shard.has_value(); });
    });
    if (is_cut) values_[id] = std::move(value);
  }

  const Graph& graph_;
  const Context& context_;
  Facts& facts_;
  std::uint32_t world_size_ = 0;
  PackedGathers packed_;
  std::map<NodeId, ShardedValue> values_;
  std::vector<Shard> all_;
};

// --------------------------------------------------------------------------- lookups

// Of a value that moves another one's elements or changes each in its place.
NodeId source_of(const Context& context, const Body& body, NodeId at) {
  const Node& node = body.nodes[at];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const Arg from = arg_of(context, node, 0);
  return keeps_each(node.op->family) && from.is_node() && holds_whole_numbers(context, body, from.as_node())
             ? from.as_node()
             : NodeId();
}

bool is_number(const Context& context, const Body& body, Arg arg) {
  if (arg.is_int() || arg.is(ArgKind::kSymbolic)) return true;
  if (!arg.is_node()) return false;
  const TypeId type = body.nodes[arg.as_node()].type;
  return type && context.types[type].kind == TypeKind::kScalar;
}

bool shifts(const Context& context, const Body& body, NodeId at) {
  const Node& node = body.nodes[at];
  return node.kind == NodeKind::kCall && node.op != nullptr && is_shift(number_use_of(*node.op)) &&
         is_number(context, body, arg_of(context, node, 1));
}

// What shifts the ids before they are positions: behind what keeps each element in its place.
NodeId find_shift(const Context& context, const Body& body, NodeId at) {
  while (at && !shifts(context, body, at)) at = source_of(context, body, at);
  return at;
}

// Positions along a dimension of a table.
struct Lookup {
  NodeId call, positions;
  Shard shard;
};

// In a table of which nothing says that it is a shard.
struct PlainLookup {
  NodeId positions;
  std::int64_t rows = 0;
};

class LookupFinder {
 public:
  LookupFinder(const Graph& graph, const ShardFinder& shards)
      : context_(*graph.context), body_(graph.step()), shards_(shards) {
    read_recorded(graph);
    for (const auto [id, node] : walk(context_, graph.step()))
      if (node.op != nullptr) visit(id, node);
    for (NodeId id : backwards_) add_backward(id, graph.step().nodes[id]);
  }
  const std::vector<Lookup>& all() const { return found_; }
  const std::vector<PlainLookup>& plain() const { return plain_; }
  // Of embeddings, by module.
  const std::vector<std::pair<StringId, Shard>>& tables() const { return tables_; }

 private:
  // What the whole step looks up in its other half, and in which tables (SplitShards).
  void read_recorded(const Graph& graph) {
    const Arg* tables = find_entry(context_, graph.info, kTablesKey);
    if (tables != nullptr && tables->is_list())
      for (Arg item : context_.args.children(*tables)) {
        const auto row = items_of(context_, item, 2);
        const auto shard = row.empty() ? std::nullopt : read_shard(context_, row[1]);
        if (shard && row[0].is(ArgKind::kText)) tables_.emplace_back(row[0].as_name(), *shard);
      }
    std::vector<NodeId> returned;
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      const Arg* places = find_entry(context_, graph.outputs[i].more, kPlacesKey);
      const auto shard = places != nullptr ? read_shard(context_, *places) : std::nullopt;
      if (!shard) continue;
      if (returned.empty()) returned = list_outputs(graph);
      if (i < returned.size() && returned[i] && body_.nodes[returned[i]].op != nullptr)
        found_.push_back({returned[i], returned[i], *shard});
    }
  }

  void visit(NodeId id, const Node& node) {
    if (node.op->family == OpFamily::kEmbeddingBackward) return backwards_.push_back(id);
    for (const IndexedDim& indexed : list_indexed_dims(context_, node)) {
      if (const Shard* shard = shards_.find(indexed.table, indexed.dim)) {
        found_.push_back({id, indexed.positions, *shard});
        if (node.op->family == OpFamily::kEmbedding) tables_.emplace_back(node.module, *shard);
      } else if (const auto rows = indexed_extent(context_, body_, indexed); rows && *rows > 1) {
        plain_.push_back({indexed.positions, *rows});
      }
    }
  }

  Arg named(const Node& node, std::string_view param) const {
    const auto position = node.op->find_param(param);
    return position ? arg_of(context_, node, *position) : Arg::none();
  }

  // The gradient of a table of that module with as many rows.
  void add_backward(NodeId id, const Node& node) {
    const Arg rows = named(node, "num_weights"), positions = named(node, "indices");
    for (const auto& [module, shard] : tables_)
      if (module == node.module && rows.is_int() && rows.as_int() == shard.local && positions.is_node())
        return found_.push_back({id, positions.as_node(), shard});
  }

  const Context& context_;
  const Body& body_;
  const ShardFinder& shards_;
  std::vector<PlainLookup> plain_;
  std::vector<std::pair<StringId, Shard>> tables_;
  std::vector<NodeId> backwards_;
  std::vector<Lookup> found_;
};

// --------------------------------------------------------------------------- numbers

class LiteralFinder {
 public:
  LiteralFinder(const Graph& graph, std::uint32_t rank)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        rank_(rank),
        facts_(graph),
        shards_(graph, facts_),
        lookups_(graph, shards_) {}

  RankLiterals find() {
    if (!lookups_.all().empty()) prove();
    if (!shards_.all().empty()) find_similar();
    find_like_rows();
    return take();
  }

 private:
  // Made when they are first asked for: most graphs look nothing up in a shard.
  const IdNumbers& number_ids() {
    if (!effects_) effects_.emplace(context_, body_);
    if (!ids_) ids_.emplace(graph_, *effects_);
    return *ids_;
  }

  void prove() {
    const IdNumbers& numbers = number_ids();
    const NodeLists users = list_users(context_, body_);
    std::vector<BoundedLookup> shifted;
    for (const Lookup& lookup : lookups_.all()) {
      const NodeId shift = find_shift(context_, body_, lookup.positions);
      if (!shift) {
        prove_missing(numbers, users, lookup);
        continue;
      }
      const NodeId from = arg_of(context_, body_.nodes[shift], 0).as_node();
      const std::vector<Axis> axes = fitting_axes(lookup.shard);
      if (axes.empty() || !comes_from_inputs(from)) continue;
      const bool is_added = number_use_of(*body_.nodes[shift].op) == NumberUse::kAdded;
      const std::int64_t rows = lookup.shard.local;
      add_proved(shift, numbers[from], axes, {0, is_added ? -rows : rows});
      shifted.push_back({lookup.call, lookup.positions, shift, numbers[from], rows, lookup.shard.global});
      auto& known = places_[numbers[from]];
      if (std::ranges::none_of(known, [&](const Place& k) {
            return k.axes.front().name == axes.front().name && k.rows == rows;
          }))
        known.push_back({axes, rows});
    }
    prove_bounds(numbers, users, shifted);
  }

  // Ids that this rank's bounds of the shard say to be of the whole table, and that choose its rows
  // as they are. On the first rank nothing shows it.
  void prove_missing(const IdNumbers& numbers, const NodeLists& users, const Lookup& lookup) {
    NodeId from = lookup.positions;
    while (const NodeId next = source_of(context_, body_, from)) from = next;
    const Place place{fitting_axes(lookup.shard), lookup.shard.local};
    if (place.axes.empty() || !comes_from_inputs(from)) return;
    const auto is_right = [&](NodeId id, std::optional<BoundSide> side) {
      const RankLiteral bound = make_bound(id, place, side.value_or(BoundSide::kLower));
      return side && bound.value.is_int() && bound.values_at(rank_) == std::set{bound.value.as_int()} &&
             bound.value.as_int() != bound.offset;
    };
    std::set<BoundSide> sides;
    for (const ShardBound& bound : find_shard_bounds(
             graph_, numbers, users,
             {{lookup.call, lookup.positions, from, numbers[from], place.rows, lookup.shard.global}},
             is_right))
      if (bound.is_proved && is_right(bound.comparison, bound.side)) sides.insert(*bound.side);
    if (sides.size() != 2) return;
    RankLiteral missing{.node = lookup.call, .axes = place.axes, .scale = place.rows};
    missing.value = Arg::integer(0);
    missing.is_missing = true;
    add_proved(std::move(missing), numbers[from]);
  }

  void prove_bounds(const IdNumbers& numbers, const NodeLists& users, std::vector<BoundedLookup> lookups) {
    std::erase_if(lookups, [&](const BoundedLookup& lookup) { return places_[lookup.ids].size() != 1; });
    const auto is_right = [&](NodeId id, std::optional<BoundSide> side) {
      const Arg number = arg_of(context_, body_.nodes[id], 1);
      const Place& place = places_[numbers[arg_of(context_, body_.nodes[id], 0).as_node()]].front();
      return !number.is_int() ||
             (side && make_bound(id, place, *side).values_at(rank_).contains(number.as_int()));
    };
    std::vector<RankLiteral> others;
    for (const ShardBound& bound : find_shard_bounds(graph_, numbers, users, lookups, is_right)) {
      const Place& place = places_[bound.ids].front();
      RankLiteral made =
          make_bound(bound.comparison, place, bound.side.value_or(guess_side(bound.comparison, place)));
      made.is_shared = bound.is_shared;
      if (bound.is_proved)
        add_proved(std::move(made), bound.ids);
      else if (made.value.is_int())
        others.push_back(std::move(made));
    }
    for (RankLiteral& other : others)
      if (is_known_.insert(other.node)) found_.push_back(std::move(other));
  }

  // Where ids are looked up: axes that it may be along, and rows.
  struct Place {
    std::vector<Axis> axes;
    std::int64_t rows = 0;
  };

  RankLiteral make_bound(NodeId id, const Place& place, BoundSide side) const {
    const std::int64_t border = side == BoundSide::kUpper ? place.rows : 0;
    return make(id, place.axes, {border + number_of_bound_0(number_use_of(*body_.nodes[id].op)), place.rows});
  }

  // Of a comparison that nothing combines with another one: by this rank's own bounds, along
  // whichever of the axes.
  BoundSide guess_side(NodeId id, const Place& place) const {
    const RankLiteral lower = make_bound(id, place, BoundSide::kLower);
    return lower.value.is_int() && lower.values_at(rank_).contains(lower.value.as_int()) ? BoundSide::kLower
                                                                                         : BoundSide::kUpper;
  }

  // Whether the ids are an input's, chosen, moved and masked, but not computed.
  bool comes_from_inputs(NodeId at) const {
    for (std::size_t steps = 0; steps < body_.order.size(); ++steps) {
      const Node& node = body_.nodes[at];
      if (node.kind == NodeKind::kPlaceholder) return true;
      if (node.kind != NodeKind::kCall || node.op == nullptr || is_shift(number_use_of(*node.op)))
        return false;
      // The operand with as many elements: where(mask, ids, 0).
      NodeId next;
      for_each_input(context_, node, [&](NodeId input) {
        const TypeId type = body_.nodes[input].type;
        const bool is_tuple = type && !context_.types[type].elements.empty();
        const TensorType* tensor = tensor_of(context_, type);
        const bool is_ids =
            is_tuple || (tensor != nullptr && is_integral(tensor->dtype) && tensor->rank() != 0);
        if (!next && is_ids) next = input;
      });
      if (!next) return false;
      at = next;
    }
    return false;
  }

  // `ids`: the value number of what is looked up.
  void add_proved(NodeId id, NodeId ids, const std::vector<Axis>& axes,
                  std::pair<std::int64_t, std::int64_t> expression) {
    add_proved(make(id, axes, expression), ids);
  }
  void add_proved(RankLiteral literal, NodeId ids) {
    if (!is_known_.insert(literal.node)) return;
    found_.push_back(std::move(literal));
    found_.back().is_proved = true;
    const auto next = static_cast<std::uint32_t>(lookups_of_.size());
    const std::tuple key(ids, body_.nodes[found_.back().node].module, std::abs(found_.back().scale));
    found_.back().lookup = lookups_of_.try_emplace(key, next).first->second;
  }

  RankLiteral make(NodeId id, std::vector<Axis> axes,
                   std::pair<std::int64_t, std::int64_t> expression) const {
    return {.node = id,
            .argument = 1,
            .value = arg_of(context_, body_.nodes[id], 1),
            .axes = std::move(axes),
            .scale = expression.second,
            .offset = expression.first};
  }

  // Shifts and bounds of whole numbers by what would be this rank's place among a parameter's
  // shards.
  void find_similar() {
    std::map<std::int64_t, std::pair<Axis, std::pair<std::int64_t, std::int64_t>>> looks;
    for (const Shard& shard : shards_.all()) {
      for (const Axis& axis : shard.axes) {
        if (shard.global % axis.extent != 0) continue;
        const std::int64_t rows = shard.global / axis.extent;
        const std::int64_t place = rows * axis.coordinate(rank_);
        looks.emplace(place, std::pair(axis, std::pair<std::int64_t, std::int64_t>(0, rows)));
        looks.emplace(place + rows, std::pair(axis, std::pair<std::int64_t, std::int64_t>(rows, rows)));
      }
    }
    looks.erase(0);  // the most frequent number of all
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || number_use_of(*node.op) == NumberUse::kNone) continue;
      const Arg operand = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
      if (!number.is_int() || !operand.is_node() || !holds_whole_numbers(context_, body_, operand.as_node()))
        continue;
      const auto look = looks.find(number.as_int());
      if (look == looks.end() || !is_known_.insert(id)) continue;
      found_.push_back(make(id, {look->second.first}, look->second.second));
    }
  }

  // Shifts of ids by a multiple of the rows that they then choose among, and bounds of the same ids
  // by that number and by as many rows more.
  void find_like_rows() {
    std::vector<std::pair<NodeId, std::int64_t>> shifts;  // and rows
    for (const PlainLookup& lookup : lookups_.plain())
      if (const NodeId shift = find_shift(context_, body_, lookup.positions);
          shift && is_multiple(shift, lookup.rows))
        shifts.emplace_back(shift, lookup.rows);
    if (shifts.empty()) return;
    const IdNumbers& numbers = number_ids();
    std::map<std::pair<NodeId, std::int64_t>, std::int64_t> rows_of;  // by ids and bound
    for (const auto& [shift, rows] : shifts) {
      const Node& node = body_.nodes[shift];
      const NodeId ids = numbers[arg_of(context_, node, 0).as_node()];
      const std::int64_t place = std::abs(arg_of(context_, node, 1).as_int());
      for (const std::int64_t bound : {place, place + rows}) rows_of.emplace(std::pair(ids, bound), rows);
      if (is_known_.insert(shift)) found_.push_back(make(shift, {}, {0, rows}));
    }
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || !is_bound(number_use_of(*node.op))) continue;
      const Arg operand = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
      if (!number.is_int() || !operand.is_node()) continue;
      const std::int64_t bound = number.as_int() - number_of_bound_0(number_use_of(*node.op));
      const auto rows = rows_of.find({numbers[operand.as_node()], bound});
      if (rows != rows_of.end() && is_known_.insert(id)) found_.push_back(make(id, {}, {0, rows->second}));
    }
  }
  // Whether the ids of an input are shifted down by a multiple of that number, or by 0.
  bool is_multiple(NodeId shift, std::int64_t rows) const {
    const Node& node = body_.nodes[shift];
    const Arg from = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
    if (!number.is_int() || number.as_int() % rows != 0 || !from.is_node()) return false;
    const bool is_down = (number_use_of(*node.op) == NumberUse::kAdded) == (number.as_int() < 0);
    return (is_down || number.as_int() == 0) && comes_from_inputs(from.as_node());
  }

  RankLiterals take() {
    const auto positions = find_positions(body_, body_.order);
    std::ranges::sort(found_, {}, [&](const RankLiteral& literal) { return positions[literal.node]; });
    RankLiterals result;
    for (RankLiteral& literal : found_)
      (literal.is_proved ? result.proved : result.similar).push_back(std::move(literal));
    return result;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  std::uint32_t rank_;
  Facts facts_;
  ShardFinder shards_;
  LookupFinder lookups_;
  std::map<NodeId, std::vector<Place>> places_;  // by number of the ids
  std::optional<Effects> effects_;
  std::optional<IdNumbers> ids_;
  IdSet<NodeId> is_known_;
  std::vector<RankLiteral> found_;
  // By ids, module and rows: numbers of code that looks ids up in one shard.
  std::map<std::tuple<NodeId, StringId, std::int64_t>, std::uint32_t> lookups_of_;
};

}  // namespace

std::set<std::int64_t> RankLiteral::values_at(std::uint32_t rank) const {
  std::set<std::int64_t> values;
  for (const RankAxis& axis : axes) values.insert(offset + scale * axis.coordinate(rank));
  return values;
}

std::string print_expression(const Graph& graph, const RankLiteral& literal) {
  if (literal.axes.empty()) return fmt::format("an offset of a shard of {} rows", literal.scale);
  std::string text;
  for (const RankAxis& axis : literal.axes) {
    if (!text.empty()) text += " or ";
    if (literal.offset != 0) text += fmt::format("{} + ", literal.offset);
    if (literal.scale != 1) text += fmt::format("{} * ", literal.scale);
    text += fmt::format("c_{}", graph.text(axis.name));
  }
  return text;
}

std::string print_values(const RankLiteral& literal, std::uint32_t rank) {
  return fmt::format("{}", fmt::join(literal.values_at(rank), " or "));
}

RankLiterals find_rank_literals(const Graph& graph, std::uint32_t rank) {
  return LiteralFinder(graph, rank).find();
}

SplitShards describe_shards(const Graph& graph, std::span<const NodeId> saved) {
  SplitShards described;
  Context& context = *graph.context;
  Facts facts(graph);
  const ShardFinder shards(graph, facts);
  if (shards.all().empty()) return described;
  const LookupFinder lookups(graph, shards);
  if (lookups.all().empty()) return described;
  IdSet<NodeId> is_saved;
  for (NodeId id : saved) {
    is_saved.insert(id);
    if (const auto record = shards.describe(id)) described.values.at(id) = record;
  }
  for (const Lookup& lookup : lookups.all()) {
    const NodeId shift = find_shift(context, graph.step(), lookup.positions);
    for (NodeId at = lookup.positions; shift && at; at = source_of(context, graph.step(), at)) {
      if (is_saved.contains(at)) described.places.at(at) = write_shard(context, lookup.shard);
      if (at == shift) break;
    }
  }
  std::vector<Arg> tables;
  for (const auto& [module, shard] : lookups.tables()) {
    const Arg row[] = {Arg::text(module), write_shard(context, shard)};
    tables.push_back(context.args.intern_tree(ArgKind::kList, row));
  }
  if (!tables.empty()) described.tables = context.args.intern_tree(ArgKind::kList, tables);
  return described;
}

}  // namespace epweave
