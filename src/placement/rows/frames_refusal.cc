#include "placement/rows/frames_refusal.h"

#include <fmt/format.h>

#include "ops/indexed_dims.h"
#include "placement/rows/row_ops.h"

namespace epweave {
namespace {

std::string_view name_of(const Graph& graph, NodeId id) {
  return graph.text(graph.step().nodes[id].name);
}

[[noreturn]] void decline(const Graph& graph, NodeId id, std::string_view rule, std::string_view why,
                          std::string remedy) {
  const Node& node = graph.step().nodes[id];
  throw PassError(std::string(rule),
                  fmt::format("{} cannot run on parts of the tokens: {}", graph.text(node.target), why),
                  site_of(graph, node), std::move(remedy));
}

// Of a pick or a write of rows along one dimension.
NodeId index_of(const Graph& graph, NodeId id) {
  return only_positions(*graph.context, graph.step().nodes[id]).as_node();
}

bool picks(const Graph& graph, NodeId id) {
  return row_op_of(graph.step().nodes[id]) == RowOp::kPick;
}

}  // namespace

void decline_other_order(const Graph& graph, NodeId id, NodeId ordered, NodeId moved) {
  decline(graph, id, "chunk.mixed-orders",
          fmt::format("it pairs the rows of '{}', which are in the order of the tokens, with those of '{}', "
                      "which were put into another order",
                      name_of(graph, ordered), name_of(graph, moved)),
          fmt::format("bring '{}' back into the order of the tokens before, or select roots that leave this "
                      "operation outside",
                      name_of(graph, moved)));
}

void decline_two_orders(const Graph& graph, NodeId id, NodeId one, NodeId other) {
  const std::string_view a = name_of(graph, one), b = name_of(graph, other);
  decline(graph, id, "chunk.mixed-orders",
          fmt::format("it pairs the rows of '{}', which were put into one order, with those of '{}', which "
                      "were put into another. A part pairs others than the whole",
                      a, b),
          fmt::format("pick, send and place the rows of '{}' and '{}' by the same numbers, or select roots "
                      "that leave this operation outside",
                      a, b));
}

void decline_unproved_rows(const Graph& graph, NodeId user, NodeId at) {
  const std::string_view index = name_of(graph, index_of(graph, at)), needed = name_of(graph, user);
  if (picks(graph, at))
    decline(
        graph, at, "chunk.unproved-rows",
        fmt::format("nothing shows that '{}' names each row once, and '{}' needs the rows of the same "
                    "tokens as in the whole",
                    index, needed),
        fmt::format("pick rows by the order that a sort gives, put them back by index_put_ of '{}' into a "
                    "new_empty of as many rows, or select roots that leave this operation outside",
                    index));
  decline(
      graph, at, "chunk.unproved-rows",
      fmt::format("nothing shows that '{}' puts each row back to where it was picked, and '{}' needs the "
                  "rows of the same tokens as in the whole",
                  index, needed),
      "write rows to the numbers by which they were picked, into a new_empty or zeros of as many rows, or "
      "select roots that leave this operation outside");
}

void decline_regrouped_rows(const Graph& graph, NodeId id, NodeId source) {
  const std::string_view name = name_of(graph, source);
  decline(graph, id, "chunk.regrouped-rows",
          fmt::format("it makes rows of several rows of '{}', which are in an order of their part's own. "
                      "Neighbours in a part are not neighbours in the whole",
                      name),
          fmt::format("bring '{}' back into the order of the tokens before its rows are regrouped: pick rows "
                      "by the sorted order (rows[argsort(order)]), or write them to the order of as many "
                      "rows of new memory (new = empty_like(rows); new[order] = rows)",
                      name));
}

void decline_counted_rows(const Graph& graph, NodeId id, NodeId counted, NodeId in_blocks) {
  decline(graph, id, "chunk.counted-rows",
          fmt::format("it takes rows of '{}' and '{}' together. The second is made of 0, 1, .., which a part "
                      "counts on from one block of the first to the next, where the whole has other rows "
                      "between",
                      name_of(graph, in_blocks), name_of(graph, counted)),
          "count within each block, or select roots that leave this operation outside");
}

void decline_split_sizes(const Graph& graph, NodeId id, std::string_view why) {
  decline(graph, id, "chunk.split-sizes",
          fmt::format("{}. A part would send rows to other ranks than the whole", why),
          "split by the counts of what the rows are sorted by, or select roots that leave the exchange "
          "outside");
}

}  // namespace epweave
