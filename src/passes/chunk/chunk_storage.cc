#include "passes/chunk/chunk_storage.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/bind.h"
#include "ops/op.h"
#include "passes/chunk/chunk_whole_values.h"

namespace epweave {
namespace {

template <class Visit>
void for_each_written(const Graph& graph, NodeId id, Visit&& visit) {
  const Node& node = graph.step().nodes[id];
  if (node.op == nullptr || !node.op->writes) return;
  for (std::size_t i = 0; i < node.op->params.size(); ++i)
    if (node.op->params[i].is_written)
      graph.context->args.for_each_node(arg_of(*graph.context, node, i), visit);
}

}  // namespace

PartedStorage::Write PartedStorage::last(const LastWrites& writes, NodeId storage) {
  const Write* known = writes.find(storage);
  return known != nullptr ? *known : Write();
}

void PartedStorage::write_whole(NodeId id, std::size_t time) {
  for_each_written(graph_, id, [&](NodeId value) {
    const NodeId storage = effects_.storage_of(value);
    const Write write{time, id, value};
    // The join of a view is a copy: what it is a view of would not be written.
    if (is_copied_by_join(value) && !is_in_parts(placements_, storage)) fail_stale(storage, write, id);
    whole_.at(storage) = write;
  });
}

void PartedStorage::write_parts(NodeId id, std::size_t time) {
  for_each_written(graph_, id, [&](NodeId value) {
    parts_.at(effects_.storage_of(value)) = {time, id, value};
  });
}

std::size_t PartedStorage::last_write(NodeId id) const {
  const NodeId storage = effects_.storage_of(id);
  return std::max(last(whole_, storage).time, last(parts_, storage).time);
}

bool PartedStorage::reads_written(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  if (!reads_elements(node)) return false;
  bool found = false;
  for_each_input(*graph_.context, node, [&](NodeId input) { found = found || last_write(input) != 0; });
  return found;
}

void PartedStorage::require_fresh_parts(NodeId id, std::size_t made, NodeId user) const {
  if (placements_.of(id).is(PlacementKind::kCarried)) return;
  const Write write = last(whole_, effects_.storage_of(id));
  if (write.time > made) fail_stale(id, write, user);
}

bool PartedStorage::is_fresh_whole(NodeId id, std::size_t made, NodeId user) const {
  const NodeId storage = effects_.storage_of(id);
  const Write to_whole = last(whole_, storage), to_parts = last(parts_, storage);
  if (!is_in_parts(placements_, id)) {
    // A view of a join.
    if (to_parts.time > made && is_copied_by_join(storage)) fail_stale(id, to_parts, user);
    return true;
  }
  if (to_whole.time > made && to_whole.value != id) fail_stale(id, to_whole, user);
  return to_parts.time <= made;
}

bool PartedStorage::is_copied_by_join(NodeId id) const {
  return is_in_parts(placements_, id) && !placements_.of(id).is(PlacementKind::kCarried);
}

void PartedStorage::fail_stale(NodeId id, const Write& write, NodeId user) const {
  const auto name = [&](NodeId node) { return graph_.text(graph_.step().nodes[node].name); };
  throw PassError(
      "chunk.written-apart",
      fmt::format(
          "'{}' and its parts are stored apart, '{}' writes one of them in place, and '{}' needs the other",
          name(id), name(write.writer), name(user)),
      site_of(graph_, graph_.step().nodes[write.writer]),
      "use the form of the operation that makes a new value, or select roots that contain it");
}

}  // namespace epweave
