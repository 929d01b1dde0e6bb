#include "analysis/graph_cost.h"

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/module_path.h"
#include "ir/op.h"

namespace epweave {
namespace {

class CostCounter {
 public:
  CostCounter(const Graph& graph, Extents& extents)
      : graph_(graph), context_(*graph.context), body_(graph.step()), extents_(extents) {}

  GraphCost run() {
    const std::vector<Launch> launches = find_launches(context_, body_);
    std::size_t next = 0;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      ModuleCost& module = module_of(node);
      ++module.calls;
      if (node.op == nullptr) {
        ++cost_.not_counted;
      } else if (is_launch(node)) {
        count_launch(launches[next++], module);
      } else {
        count_kernel(id, module);
      }
    }
    return std::move(cost_);
  }

 private:
  ModuleCost& module_of(const Node& node) {
    const std::string row = generic_module(cut_module(graph_.text(node.module)));
    const auto [found, is_new] = modules_.try_emplace(row, cost_.modules.size());
    if (is_new) cost_.modules.push_back({.module = row});
    return cost_.modules[found->second];
  }

  void count_launch(const Launch& launch, ModuleCost& module) {
    const Node& node = body_.nodes[launch.node];
    const std::string group(name_of_known_group(launch.group));
    const auto [found, is_new] = collectives_.try_emplace({group, node.target}, cost_.collectives.size());
    if (is_new) cost_.collectives.push_back({.group = group, .target = node.target});
    CollectiveCost& row = cost_.collectives[found->second];
    ++row.launches;
    ++module.collectives;
    const Count taken = operand_bytes(node), given = bytes_of(node.type);
    if (!taken || !given) {
      ++cost_.not_counted;
      return;
    }
    row.bytes += std::max(*taken, *given);
    module.collective_bytes += std::max(*taken, *given);
  }
  // A group that a node looks up in a mesh has a name where the value was recorded.
  std::string_view name_of_known_group(Arg group) const {
    if (group.is_node()) {
      const TypeId type = body_.nodes[group.as_node()].type;
      if (type && context_.types[type].kind == TypeKind::kValue &&
          context_.types[type].value.is(ArgKind::kProcessGroup))
        return context_.text(context_.types[type].value.as_name());
    }
    return name_of_group(context_, body_, group);
  }

  void count_kernel(NodeId id, ModuleCost& module) {
    const Node& node = body_.nodes[id];
    if (node.op->cost == CostClass::kFree || node.op->cost == CostClass::kWait) return;
    const Count flops = flops_of(node);
    const Count read = reads_elements(node) ? operand_bytes(node) : Count(0);
    const Count written = node.op->is_view ? Count(0) : bytes_of(node.type);
    if (!flops || !read || !written) {
      ++cost_.not_counted;
      return;
    }
    module.flops += *flops, cost_.flops += *flops;
    module.bytes += *read + *written, cost_.bytes += *read + *written;
  }

  // ------------------------------------------------------------------------- bytes

  Count bytes_of(TypeId id) {
    if (!id) return 0;
    const Type& type = context_.types[id];
    if (type.kind == TypeKind::kTensor)
      return times(extents_.elements(type.tensor), info(type.tensor.dtype).bytes);
    Count sum = 0;
    for (TypeId element : type.elements) sum = plus(sum, bytes_of(element));
    return sum;
  }
  Count operand_bytes(const Node& node) {
    Count sum = 0;
    for_each_input(context_, node, [&](NodeId input) { sum = plus(sum, bytes_of(body_.nodes[input].type)); });
    return sum;
  }

  // ------------------------------------------------------------------------- flops

  Count flops_of(const Node& node) {
    if (node.op->cost == CostClass::kMatmul) return matmul_flops(node);
    if (node.op->cost == CostClass::kAttention) return attention_flops(node);
    return 0;
  }

  const TensorType* operand(const Node& node, std::string_view name) const {
    const auto position = node.op->find_param(name);
    if (!position) return nullptr;
    const Arg* arg = find_arg(context_, node, *position, name);
    return arg != nullptr && arg->is_node() ? tensor_of(context_, body_.nodes[arg->as_node()].type) : nullptr;
  }
  const TensorType* first_operand(const Node& node, std::initializer_list<std::string_view> names) const {
    for (std::string_view name : names)
      if (const TensorType* found = operand(node, name)) return found;
    return nullptr;
  }

  // Each element of the left factor meets one row of the right one; of a stack of right factors with one left
  // factor for each (or of one right factor cut into groups) only its own.
  Count matmul_flops(const Node& node) {
    const TensorType* left = first_operand(node, {"batch1", "mat1", "self", "mat_a"});
    const TensorType* right = first_operand(node, {"batch2", "mat2", "mat_b", "vec", "tensor"});
    if (left == nullptr || right == nullptr || left->sizes.empty() || right->sizes.empty())
      return std::nullopt;
    Count flops = times(2, extents_.elements(*left));
    if (right->rank() == 1) return flops;
    flops = times(flops, extents_.number(right->sizes.back()));
    const bool is_cut = left->rank() == 3 && right->rank() == 2;  // _grouped_mm: columns by group
    if (!is_cut) return flops;
    const Count groups = extents_.number(left->sizes[0]);
    return flops && groups && *groups > 0 ? Count(*flops / *groups) : std::nullopt;
  }

  Count attention_flops(const Node& node) {
    const TensorType* query = operand(node, "query");
    const TensorType* key = operand(node, "key");
    const TensorType* value = operand(node, "value");
    if (query == nullptr || key == nullptr || value == nullptr) return std::nullopt;
    if (query->rank() != 4 || key->rank() != 4 || value->rank() != 4) return std::nullopt;
    Count flops = 2;  // [batch, heads, length, dim]
    for (std::size_t i = 0; i < 3; ++i) flops = times(flops, extents_.number(query->sizes[i]));
    flops = times(flops, extents_.number(key->sizes[2]));
    flops = times(flops, plus(extents_.number(query->sizes[3]), extents_.number(value->sizes[3])));
    const bool is_backward = graph_.text(node.target).find("backward") != std::string_view::npos;
    return flops && is_backward ? Count(*flops / 2 * 5) : flops;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Extents& extents_;
  GraphCost cost_;
  std::map<std::string, std::size_t> modules_;
  std::map<std::pair<std::string, StringId>, std::size_t> collectives_;
};

}  // namespace

GraphCost count_cost(const Graph& graph, Extents& extents) {
  return CostCounter(graph, extents).run();
}

}  // namespace epweave
