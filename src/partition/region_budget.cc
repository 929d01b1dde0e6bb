#include "partition/region_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/world.h"
#include "ir/walk.h"

namespace epweave {
namespace {

constexpr std::string_view kKey = "_region_activation_memory_budget";

std::optional<double> noted_budget(const Context& context, const Node& node) {
  const Arg* entry = node.extra != nullptr ? find_entry(context, node.extra->custom, kKey) : nullptr;
  if (entry == nullptr || !(entry->is(ArgKind::kReal) || entry->is_int())) return std::nullopt;
  return entry->is_int() ? static_cast<double>(entry->as_int()) : entry->as_real();
}

// A node that a pass made of none that the code calls: it notes nothing.
bool is_added(const Node& node) {
  return std::ranges::any_of(node.provenance, [](const Provenance& record) {
    return makes_nodes(record.role) && record.role != ProvenanceRole::kBody;
  });
}

[[noreturn]] void refuse(const Graph& graph, const Node& node, std::string_view problem) {
  throw PassError("partition.region-budget", std::string(problem), site_of(graph, node),
                  "wrap all of forward in one region_activation_memory_budget, or say --budget");
}

}  // namespace

std::optional<double> find_region_budget(const Graph& graph, const Joint& joint) {
  const Context& context = *graph.context;
  std::optional<double> budget;
  const Node* without = nullptr;
  for (const Body& body : graph.bodies)
    for (const auto [id, node] : walk(body)) {
      if (node.kind != NodeKind::kCall) continue;
      const std::optional<double> own = noted_budget(context, node);
      const bool is_covered = own || is_added(node) || (&body == &graph.step() && !joint.forward(id));
      if (!is_covered && without == nullptr) without = &node;
      if (own && budget && *own != *budget)
        refuse(graph, node,
               fmt::format("its region has a memory budget of {}, another of {}", *own, *budget));
      if (own) budget = own;
    }
  if (budget && without != nullptr)
    refuse(graph, *without,
           fmt::format("it is in no region with a memory budget, and other calls are in one of {}", *budget));
  if (budget && !(*budget >= 0 && *budget <= 1)) {
    throw PassError("partition.region-budget",
                    fmt::format("a region's memory budget is {}, and no share from 0 to 1", *budget), {},
                    "say --budget");
  }
  return budget;
}

}  // namespace epweave
