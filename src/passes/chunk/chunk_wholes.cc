#include "passes/chunk/chunk_wholes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ir/walk.h"
#include "passes/chunk/chunk_whole_values.h"

namespace epweave {

WholeAccess::WholeAccess(const Graph& graph, const ChunkPlan& plan, Graph& chunked, ChunkWriter& writer,
                         PartJoins& joins, JoinStrides& strides, const PartedStorage& storage,
                         ChunkedValues& values)
    : in_(graph),
      placements_(plan.placements),
      out_(chunked),
      writer_(writer),
      joins_(joins),
      strides_(strides),
      storage_(storage),
      values_(values),
      views_(graph, placements_, writer.facts()),
      made_of_sizes_(find_made_of_sizes(graph, placements_)) {}

// What a call is made from, if it is made again, comes first; that may be a long chain.
NodeId WholeAccess::whole(NodeId id, NodeId user) {
  if (const NodeId known = find(id, user)) return known;
  struct Demand {
    NodeId id;
    std::string_view reason;  // to make it again, once that is found
  };
  std::vector<Demand> open{{id, {}}};
  while (!open.empty()) {
    const Demand top = open.back();
    if (find(top.id, user)) {
      open.pop_back();
    } else if (!top.reason.empty()) {
      const NodeId made = write_again(top.id, top.reason);
      set_made(top.id, made);
      strides_.check_reader(top.id, made);
    } else {
      if (is_in_parts(placements_, top.id))
        storage_.require_fresh_parts(top.id, values_.parts_time(top.id), user);
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
  return values_.whole(id).node;
}

std::vector<NodeId> WholeAccess::list_needless_parts() {
  std::vector<NodeId> parts;
  for (const NodeId view : views_.joined_above())
    for (const Arg& part : values_.parts_of(view)) parts.push_back(part.as_node());
  return parts;
}

void WholeAccess::set_made(NodeId id, NodeId made) {
  values_.set_whole(id, made, writer_.time());
  strides_.note_whole(id, out_.step().nodes[made].type);
}

// The whole value, if it is there and shows what was last written.
NodeId WholeAccess::find(NodeId id, NodeId user) const {
  const ChunkedValues::Whole known = values_.whole(id);
  return known.node && storage_.is_fresh_whole(id, known.time, user) ? known.node : NodeId();
}

// Why the whole of a divided value is not a join of its parts; empty if it is.
std::string_view WholeAccess::reason_to_write_again(NodeId id) {
  if (storage_.last_write(id) != 0) return {};
  const bool is_of_sizes = made_of_sizes_.contains(id) || is_size_arithmetic(in_, placements_, id);
  if (is_of_sizes && !storage_.reads_written(id))
    return "made of sizes only: wanted whole as well as in parts";
  return views_.is_joined_above(id) ? "a view: the value that it shows is joined" : std::string_view();
}

// The wholes of its inputs are there.
NodeId WholeAccess::write_again(NodeId id, std::string_view reason) {
  const Node& original = in_.step().nodes[id];
  auto take = [&](Arg arg) { return arg.is_node() ? Arg::node(values_.whole(arg.as_node()).node) : arg; };
  const ArgRange args = out_.context->args.map(original.args, take);
  const ArgRange kwargs = out_.context->args.map(original.kwargs, take);
  Node node = writer_.make_again(id, reason);
  node.args = args;
  node.kwargs = kwargs;
  return writer_.append_whole(std::move(node), id);
}

NodeId WholeAccess::join(NodeId id, NodeId user) {
  const Placement& placement = placements_.placement[id];
  switch (placement.kind) {
    case PlacementKind::kSplit:
      return strides_.keeps(id) ? concatenate_in_order(id)
                                : joins_.concatenate(id, values_.parts_of(id), placement);
    case PlacementKind::kPartial:
      return joins_.add(id, values_.parts_of(id));
    case PlacementKind::kCarried:
      return values_.parts_of(id).back().as_node();
    default:
      fail_join(id, user);
  }
}

void WholeAccess::fail_join(NodeId id, NodeId user) const {
  const Node& node = in_.step().nodes[id];
  const Node& wanted_by = in_.step().nodes[user];
  throw PassError(
      "chunk.local-wanted-whole",
      fmt::format(
          "'{}' ({}) has its rows in an order of its part's own (placed {}), and '{}' ({}) wants it whole",
          out_.text(node.name), out_.text(node.target), print_placement(placements_.placement[id]),
          out_.text(wanted_by.name), out_.text(wanted_by.target)),
      site_of(in_, node),
      "select roots that contain both, or write the rows back to token order inside the module");
}

NodeId WholeAccess::concatenate_in_order(NodeId id) {
  const TensorType& type = *tensor_of(*in_.context, in_.step().nodes[id].type);
  return joins_.concatenate_in_order(id, values_.parts_of(id), *find_memory_order(writer_.facts(), type));
}

}  // namespace epweave
