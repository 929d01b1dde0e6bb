#include "passes/async_tp/async_tp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "base/counted.h"
#include "base/nearest_name.h"
#include "ir/graph.h"
#include "passes/async_tp/find_fusions.h"
#include "passes/async_tp/write_fusions.h"

namespace epweave {
namespace {

std::set<StringId> find_groups(const Graph& graph, const std::vector<std::string>& axes) {
  std::set<StringId> groups;
  std::set<std::string_view> known;
  for (const std::string& axis : axes) {
    bool is_found = false;
    for (const ProcessGroup& group : graph.groups) {
      const bool is_of_one_axis = group.axes && group.axes->size() == 1;
      if (is_of_one_axis) known.insert(graph.text(group.axes->front()));
      const bool is_along = is_of_one_axis ? graph.text(group.axes->front()) == axis
                                           : !group.axes && graph.text(group.description) == "mesh_" + axis;
      if (!is_along && !(group.split_from && groups.contains(group.split_from))) continue;
      groups.insert(group.name);
      is_found = true;
    }
    if (is_found) continue;
    const std::vector<std::string_view> names(known.begin(), known.end());
    const std::string_view near = nearest_name(axis, names);
    throw PassError("async-tp.axis", fmt::format("no process group lies along axis '{}'", axis), Site{},
                    names.empty() ? "export the graph with the axes of its process groups"
                                  : fmt::format("give one of {}{}", fmt::join(names, ", "),
                                                near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  return groups;
}

std::vector<std::string> list_notes(const Graph& graph, const Fusions& found) {
  std::size_t products = 0;
  for (const GatherFusion& gather : found.gathers) products += gather.nodes.products.size();
  std::vector<std::string> notes;
  if (found.gathers.empty() && found.scatters.empty())
    notes.push_back(found.missed.empty()
                        ? "unused: nothing is fused: the axes have no all-gather and no reduce-scatter"
                        : fmt::format("unused: nothing is fused: not one of {}; -v says why",
                                      counted(found.missed.size(), "collective")));
  else
    notes.push_back(fmt::format("{} fused with {}, {} with {} product",
                                counted(found.gathers.size(), "all-gather"), counted(products, "product"),
                                counted(found.scatters.size(), "reduce-scatter"),
                                found.scatters.size() == 1 ? "its" : "their"));
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  std::map<std::string_view, std::size_t> index;
  by_reason.reserve(found.missed.size());
  for (const auto& [launch, reason] : found.missed) {
    const auto [at, is_new] = index.try_emplace(reason, by_reason.size());
    if (is_new) by_reason.emplace_back(reason, std::vector<std::string>());
    by_reason[at->second].second.push_back(fmt::format("%{}", graph.text(graph.step().nodes[launch].name)));
  }
  for (const auto& [reason, launches] : by_reason)
    notes.push_back(fmt::format("not fused: {}: {}", fmt::join(launches, ", "), reason));
  const bool fuses = !found.gathers.empty() || !found.scatters.empty();
  if (fuses && found.are_looked_up)
    notes.push_back(
        "groups that are looked up are named as on the file's rank, as fused calls take a name: "
        "specialize before it runs");
  if (found.others != 0)
    notes.push_back(fmt::format("{} of other groups left alone", counted(found.others, "collective")));
  return notes;
}

}  // namespace

PassResult async_tp(const Graph& graph, const AsyncTpOptions& options) {
  const std::set<StringId> groups = find_groups(graph, options.axes);
  const Fusions found = find_fusions(graph, groups);
  PassResult result{graph};
  if (!found.gathers.empty() || !found.scatters.empty()) write_fusions(result.graph, found);
  result.notes = list_notes(graph, found);
  return result;
}

}  // namespace epweave
