#include "analysis/sharded_dims.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/placeholders.h"
#include "analysis/returned_values.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"

namespace epweave {

std::span<const Arg> items_of(const Context& context, Arg list, std::size_t count) {
  if (!list.is_list()) return {};
  const auto items = context.args.children(list);
  return items.size() == count ? items : std::span<const Arg>();
}

std::vector<RankAxis> fitting_axes(const ShardedDim& shard) {
  std::vector<RankAxis> found;
  for (const RankAxis& axis : shard.axes)
    if (shard.local * axis.extent == shard.global) found.push_back(axis);
  return found;
}

Arg write_shard(Context& context, const std::optional<ShardedDim>& shard) {
  if (!shard) return Arg::none();
  std::vector<Arg> axes;
  for (const RankAxis& axis : shard->axes) {
    const Arg row[] = {Arg::text(axis.name), Arg::integer(axis.stride), Arg::integer(axis.extent)};
    axes.push_back(context.args.intern_tree(ArgKind::kList, row));
  }
  const Arg row[] = {Arg::integer(shard->local), Arg::integer(shard->global),
                     context.args.intern_tree(ArgKind::kList, axes)};
  return context.args.intern_tree(ArgKind::kList, row);
}

std::optional<ShardedDim> read_shard(const Context& context, Arg record) {
  const auto row = items_of(context, record, 3);
  if (row.empty() || !row[0].is_int() || !row[1].is_int() || !row[2].is_list()) return std::nullopt;
  ShardedDim shard{row[0].as_int(), row[1].as_int(), {}};
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

ShardFinder::ShardFinder(const Graph& graph, Facts& facts)
    : graph_(graph), context_(*graph.context), facts_(facts), packed_(graph) {
  read_parameters();
  read_recorded();
  for (const auto [id, node] : walk(context_, graph.step()))
    if (node.kind == NodeKind::kCall) visit(id, node);
}

const ShardedDim* ShardFinder::find(NodeId id, std::int64_t dim) const {
  const auto found = values_.find(id);
  if (found == values_.end() || found->second.size() != 1) return nullptr;
  const ShardedDims& dims = found->second.front();
  if (dim < 0) dim += static_cast<std::int64_t>(dims.size());
  if (dim < 0 || dim >= static_cast<std::int64_t>(dims.size())) return nullptr;
  const auto& shard = dims[static_cast<std::size_t>(dim)];
  return shard ? &*shard : nullptr;
}

std::optional<Arg> ShardFinder::describe(NodeId id) const {
  const auto found = values_.find(id);
  if (found == values_.end() || found->second.size() != 1) return std::nullopt;
  std::vector<Arg> dims;
  for (const auto& shard : found->second.front()) dims.push_back(write_shard(*graph_.context, shard));
  return graph_.context->args.intern_tree(ArgKind::kList, dims);
}

void ShardFinder::read_recorded() {
  std::map<StringId, NodeId> placeholders;
  for (const InputRole& input : graph_.inputs) {
    const Arg* recorded = find_entry(context_, input.more, kShardsKey);
    if (recorded == nullptr) continue;
    if (placeholders.empty()) placeholders = list_placeholders(graph_);
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

void ShardFinder::read_parameters() {
  std::map<StringId, std::vector<RankAxis>> axes;  // by parameter
  const Body& step = graph_.step();
  const std::map<StringId, Rules> reduced = list_reduced();
  const std::map<StringId, NodeId> placeholders = list_placeholders(graph_);
  for (const InputRole& input : graph_.inputs)
    if (const auto at = placeholders.find(input.name); at != placeholders.end())
      if (const auto mesh = recorded_mesh(context_, step.nodes[at->second])) axes[input.fqn] = axes_of(*mesh);
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

std::map<StringId, ShardFinder::Rules> ShardFinder::list_reduced() {
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

bool ShardFinder::keeps_shares(const OpInfo& op) {
  return keeps_each(op.family) || op.family == OpFamily::kAllReduce || op.family == OpFamily::kReduceScatter;
}

ShardFinder::Rules ShardFinder::rules_of_result(const Node& node, const std::map<NodeId, Rules>& reduced) {
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

bool ShardFinder::is_apart(const GroupRule& x, const GroupRule& y) {
  return x.stride % (y.stride * y.extent) == 0 || y.stride % (x.stride * x.extent) == 0;
}

bool ShardFinder::has_rule(const Rules& rules, const GroupRule& wanted) {
  return std::ranges::any_of(
      rules, [&](const GroupRule& r) { return r.stride == wanted.stride && r.extent == wanted.extent; });
}

void ShardFinder::erase_axis(std::vector<RankAxis>& axes, const GroupRule& rule) {
  std::erase_if(axes, [&](const RankAxis& a) { return a.stride == rule.stride && a.extent == rule.extent; });
}

std::vector<RankAxis> ShardFinder::axes_of(const MeshValue& mesh) {
  std::vector<RankAxis> axes;
  const auto strides = strides_of(mesh);
  for (std::size_t d = 0; strides && d < mesh.axes.size(); ++d)
    if (mesh.shape[d] > 1) axes.push_back({mesh.axes[d], (*strides)[d], mesh.shape[d]});
  return axes;
}

void ShardFinder::add_parameter(NodeId id, const TensorType& tensor, Arg global,
                                const std::vector<RankAxis>& axes) {
  const auto extents = context_.args.children(global);
  if (extents.size() != tensor.rank()) return;
  ShardedDims dims(tensor.rank());
  bool is_cut = false;
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    const auto local = context_.exprs.constant(tensor.sizes[d]);
    if (!local || !extents[d].is_int() || *local < 1 || extents[d].as_int() <= *local ||
        extents[d].as_int() % *local != 0)
      continue;
    dims[d] = ShardedDim{*local, extents[d].as_int(), axes};
    all_.push_back(*dims[d]);
    is_cut = true;
  }
  if (is_cut) values_[id] = {std::move(dims)};
}

void ShardFinder::visit(NodeId id, const Node& node) {
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

const ShardedValue* ShardFinder::operand(const Node& node, std::size_t position) const {
  const Arg arg = arg_of(context_, node, position);
  const auto found = arg.is_node() ? values_.find(arg.as_node()) : values_.end();
  return found == values_.end() ? nullptr : &found->second;
}

void ShardFinder::copy(NodeId id, const Node& node) {
  const ShardedValue* from = operand(node, 0);
  if (from == nullptr || from->size() != 1) return;
  const TensorType* tensor = tensor_of(context_, node.type);
  if (tensor != nullptr && tensor->rank() == from->front().size()) values_[id] = ShardedValue(*from);
}

void ShardFinder::take_element(NodeId id, const Node& node) {
  const ShardedValue* from = operand(node, 0);
  const Arg index = arg_of(context_, node, 1);
  if (from == nullptr || !index.is_int() || index.as_int() < 0 ||
      index.as_int() >= static_cast<std::int64_t>(from->size()))
    return;
  keep(id, {ShardedDims((*from)[static_cast<std::size_t>(index.as_int())])});
}

void ShardFinder::gather(NodeId id, NodeId from, const Node& launch) {
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

std::optional<GroupRule> ShardFinder::rule_of_call(const Node& node) {
  const auto position = node.op->find_param("group_name");
  const Arg* group = position ? find_arg(context_, node, *position, "group_name") : nullptr;
  return group != nullptr ? rule_of(*group) : std::nullopt;
}

std::optional<GroupRule> ShardFinder::rule_of(Arg group) {
  if (world_size_ == 0) world_size_ = read_world(graph_).size;
  const ProcessGroup* row = graph_.find_group(recorded_group(context_, graph_.step(), group));
  return row == nullptr ? std::nullopt : find_group_rule(row->ranks, world_size_);
}

void ShardFinder::map(NodeId id, const Node& node) {
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
      if (const auto& shard = found->second.front()[d]) hand_on(mapping, *shard, mapping.operand(t, d), made);
  }
  keep(id, std::move(made));
}

void ShardFinder::hand_on(const CallMapping& mapping, const ShardedDim& shard,
                          std::span<const Factor> factors, ShardedValue& made) {
  if (factors.empty() ||
      std::ranges::any_of(factors, [&](Factor f) { return mapping.use(f) == FactorUse::kIndexed; }))
    return;
  for (std::size_t r = 0; r < made.size(); ++r)
    for (std::size_t d = 0; d < made[r].size(); ++d)
      if (std::ranges::equal(mapping.result(r, d), factors)) made[r][d] = shard;
}

void ShardFinder::keep(NodeId id, ShardedValue value) {
  const bool is_cut = std::ranges::any_of(value, [](const ShardedDims& dims) {
    return std::ranges::any_of(dims, [](const auto& shard) { return shard.has_value(); });
  });
  if (is_cut) values_[id] = std::move(value);
}

}  // namespace epweave
