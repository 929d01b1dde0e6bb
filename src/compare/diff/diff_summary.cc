#include "compare/diff/diff_summary.h"

#include <fmt/format.h>

#include "analysis/module_path.h"
#include "compare/lineage.h"

namespace epweave {
namespace {

// "layers.3.moe" and "layers.4.moe" in one row.
std::string module_row(std::string_view module) {
  const std::string row = generic_module(cut_module(module));
  return row.empty() ? "(no module)" : row;
}

std::string op_row(const Graph& graph, const Node& node) {
  if (node.kind == NodeKind::kPlaceholder) return "(input)";
  if (node.kind == NodeKind::kGetAttr) return "(attribute)";
  return node.kind == NodeKind::kOutput ? "(output)" : std::string(graph.text(node.target));
}

class Summarizer {
 public:
  Summarizer(const Graph& a, const Graph& b) : a_(a), b_(b) {}

  DiffSummary run(const GraphDiff& diff) {
    for (const Body& body : a_.bodies) count_nodes(a_, body, &DiffRow::before);
    for (const Body& body : b_.bodies) count_nodes(b_, body, &DiffRow::after);
    summary_.same = diff.same_nested;
    for (const BodyDiff& body : diff.bodies) {
      summary_.same += body.same;
      for (const NodeDiff& node : body.nodes) count_entry(body, node);
    }
    for (const TableDiff& row : diff.tables) {
      DiffSummary::RowCounts& rows = summary_.tables[row.table];
      ++(row.before.empty() ? rows.added : row.after.empty() ? rows.removed : rows.changed);
    }
    return std::move(summary_);
  }

 private:
  void count_nodes(const Graph& graph, const Body& body, std::size_t DiffRow::*column) {
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      ++(summary_.ops[op_row(graph, node)].*column);
      ++(summary_.modules[module_row(graph.text(node.module))].*column);
    }
  }

  void count_entry(const BodyDiff& body, const NodeDiff& diff) {
    const Graph& graph = diff.a ? a_ : b_;
    const Node& node = diff.a ? body.a->nodes[diff.a] : body.b->nodes[diff.b.front()];
    for (std::size_t i = 0; i < summary_.counts.size(); ++i)
      summary_.counts[i] += diff.changes.has(static_cast<Change>(1U << i));
    if (diff.changes.has(Change::kDivided)) summary_.parts += diff.b.size();
    if (diff.changes.has(Change::kRemoved)) summary_.merged += diff.about.valid();
    if (diff.changes.has(Change::kAdded)) {
      const Lineage lineage = find_lineage(node);
      const std::string op = op_row(graph, node);
      ++summary_.added[lineage.is_whole() ? op : fmt::format("{} ({})", name_of(lineage.role), op)];
    }
    count_changes(diff.changes, summary_.ops[op_row(graph, node)]);
    count_changes(diff.changes, summary_.modules[module_row(graph.text(node.module))]);
  }

  static void count_changes(const Changes& changes, DiffRow& row) {
    row.divided += changes.has(Change::kDivided);
    row.added += changes.has(Change::kAdded);
    row.removed += changes.has(Change::kRemoved);
    row.changed += changes.has(Change::kArguments) || changes.has(Change::kType);
    row.moved += changes.has(Change::kMoved);
  }

  const Graph& a_;
  const Graph& b_;
  DiffSummary summary_;
};

}  // namespace

DiffSummary summarize_diff(const Graph& a, const Graph& b, const GraphDiff& diff) {
  return Summarizer(a, b).run(diff);
}

}  // namespace epweave
