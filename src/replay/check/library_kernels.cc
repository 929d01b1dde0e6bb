#include "replay/check/library_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/effects.h"
#include "replay/check/sum_check.h"

namespace epweave::replay {

ProductTable::ProductTable(const RunResult& run) {
  for (const RankResult& rank : run.ranks) {
    auto& products = of_rank_.emplace_back();
    for (const LibraryProduct& product : rank.products) products[product.node].push_back(&product);
  }
}

const std::vector<const LibraryProduct*>& ProductTable::at(Rank rank, NodeId node) const {
  static const std::vector<const LibraryProduct*> none;
  const auto found = of_rank_[rank].find(node);
  return found == of_rank_[rank].end() ? none : found->second;
}

std::vector<NodeId> ProductTable::nodes(Rank rank) const {
  std::vector<NodeId> found;
  for (const auto& [node, products] : of_rank_[rank]) found.push_back(node);
  return found;
}

std::optional<KernelChange> find_kernel_change(const ProductTable& a, const ProductTable& b, Rank rank,
                                               const Group& group) {
  using Algorithms = std::set<std::pair<std::string, std::vector<std::uint64_t>>>;
  std::map<std::int64_t, Algorithms> in_a, in_b;  // by group of a grouped product
  const auto list = [](const std::vector<const LibraryProduct*>& products, auto& algorithms, auto& texts) {
    for (const LibraryProduct* product : products) {
      algorithms[product->group].emplace(product->algorithm, product->bits);
      std::string text = fmt::format("{}: {}", product->shape, product->algorithm);
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
    }
  };
  KernelChange change{rank, 0, {}, {}, {}};
  list(a.at(rank, group.whole), in_a, change.a);
  for (const NodeId value : group.values)
    if (value) list(b.at(rank, value), in_b, change.b);
  // A group that only one of them has rows of is no algorithm's doing.
  const bool is_changed = std::any_of(in_b.begin(), in_b.end(), [&](const auto& of_b) {
    const auto of_a = in_a.find(of_b.first);
    return of_a != in_a.end() && of_a->second != of_b.second;
  });
  if (!is_changed) return std::nullopt;
  return change;
}

Reached find_reached(const Graph& graph, const IdSet<NodeId>& roots) {
  const Body& body = graph.step();
  const Context& context = *graph.context;
  Reached found{find_regrouped(graph, roots).reached, {}, {}};
  const Effects effects(graph, body);
  IdSet<NodeId> written;
  for (const NodeId id : body.order) {
    if (!found.nodes.contains(id)) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) written.insert(access.storage);
  }
  // A value that shares memory with what was written is reached, whichever node names it.
  const auto is_reached = [&](NodeId id) {
    return found.nodes.contains(id) || written.contains(effects.storage_of(id));
  };
  for (const NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (node.kind == NodeKind::kPlaceholder) {
      const bool is_tensor = !node.type || tensor_of(context, node.type) != nullptr;
      found.inputs.push_back(is_tensor ? std::optional(written.contains(effects.storage_of(id)))
                                       : std::nullopt);
    } else if (node.kind == NodeKind::kOutput) {
      const Arg all = context.args[node.args][0];
      const std::span<const Arg> outputs = all.is_list() ? context.args.children(all) : std::span(&all, 1);
      for (const Arg output : outputs) {
        bool any = false;  // of a list or dict
        context.args.for_each_node(output, [&](NodeId node_id) { any = any || is_reached(node_id); });
        found.outputs.push_back(any);
      }
    }
  }
  return found;
}

}  // namespace epweave::replay
