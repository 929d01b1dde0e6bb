#include "passes/mark_eager_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/eager_chunks.h"
#include "base/counted.h"

namespace epweave {
namespace {

// What is missing in the notes of a node, or nothing.
std::string find_gap(const Graph& graph, const ChunkInfo& notes) {
  if (!notes.region) return "no module (chunked_region_fqn)";
  const std::string_view role = graph.text(notes.role);
  static constexpr std::array kRoles = {"body", "split_boundary", "chunk_input", "materialization"};
  if (std::ranges::find(kRoles, role) == kRoles.end())
    return "no role that is known (chunked_region_role: body, split_boundary, materialization)";
  if (role == "body" && !notes.part) return "no number of the part (chunk_id)";
  return {};
}

}  // namespace

PassResult mark_eager_chunks(const Graph& graph) {
  PassResult result{graph};
  const StringId pass = graph.intern("mark-eager-chunks"), eager = graph.intern("eager");
  const StringId reason = graph.intern("notes of the eager chunker made chunk fields");
  std::size_t count = 0;
  IdSet<StringId> modules;
  std::size_t module_count = 0;
  for (NodeId id : graph.step().order) {
    Node& node = result.graph.step().nodes[id];
    auto notes = find_eager_notes(*graph.context, node);
    if (!notes || node.chunk.role) continue;
    if (const std::string gap = find_gap(graph, *notes); !gap.empty())
      throw PassError(
          "mark-eager-chunks.incomplete",
          fmt::format("the notes of the eager chunker on '{}' have {}", graph.text(node.name), gap),
          site_of(graph, node),
          "trace the step again with torchtitan's eager chunker, or drop the notes of this node");
    notes->producer = eager;
    node.chunk = *notes;
    append_provenance(
        *graph.context, node,
        {.pass = pass, .role = ProvenanceRole::kKept, .origins = origins_of(node), .reason = reason});
    ++count;
    if (modules.insert(notes->region)) ++module_count;
  }
  if (count > 0)
    result.notes.push_back(fmt::format("{} in {}", counted(count, "node"), counted(module_count, "module")));
  return result;
}

}  // namespace epweave
