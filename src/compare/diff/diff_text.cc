#include "compare/diff/diff_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "analysis/module_path.h"
#include "base/counted.h"
#include "compare/diff/diff_summary.h"

namespace epweave {
namespace {

constexpr std::size_t kMaxLine = 160;
constexpr std::size_t kMaxNames = 4;
constexpr std::array<Change, kChangeKinds> kAllChanges = {
    Change::kDivided, Change::kAdded,    Change::kRemoved,   Change::kArguments,
    Change::kType,    Change::kMoved,    Change::kRejoined,  Change::kSpecialized,
    Change::kRenamed, Change::kMetadata, Change::kProvenance};

// Differences that do not make a readable listing longer.
bool is_quiet(const Changes& changes) {
  constexpr unsigned kQuiet =
      static_cast<unsigned>(Change::kSpecialized) | static_cast<unsigned>(Change::kRenamed) |
      static_cast<unsigned>(Change::kMetadata) | static_cast<unsigned>(Change::kProvenance);
  return (changes.bits() & ~kQuiet) == 0;
}

char mark_of(const Changes& changes) {
  if (changes.has(Change::kRemoved)) return '-';
  if (changes.has(Change::kAdded)) return '+';
  if (changes.has(Change::kDivided)) return '/';
  if (changes.has(Change::kArguments) || changes.has(Change::kType) || changes.has(Change::kRejoined))
    return '~';
  return changes.has(Change::kMoved) ? '>' : '.';
}

const Node& node_of(const BodyDiff& body, const NodeDiff& diff) {
  return diff.a ? body.a->nodes[diff.a] : body.b->nodes[diff.b.front()];
}

std::string header(const DiffSides& sides, const GraphDiff& diff) {
  auto nodes = [](const Graph& graph) { return graph.bodies.empty() ? 0 : graph.step().order.size(); };
  std::string text = fmt::format("--- {}  {}\n+++ {}  {}\n", sides.name_a, counted(nodes(sides.a), "node"),
                                 sides.name_b, counted(nodes(sides.b), "node"));
  switch (diff.pairing) {
    case PairingKind::kProvenance: {
      text += "nodes paired by provenance; passes:";
      for (std::size_t i = sides.a.passes.size(); i < sides.b.passes.size(); ++i)
        text += fmt::format(" {}", sides.b.passes[i].name);
      return text + "\n";
    }
    case PairingKind::kNames:
      return text + "nodes paired by structure and name\n";
    case PairingKind::kStructure:
      return text + "nodes paired by structure\n";
  }
  return text;
}

class DiffPrinter {
 public:
  DiffPrinter(const DiffSides& sides, Listing listing)
      : sides_(sides), listing_(listing), lines_a_(sides.a), lines_b_(sides.b) {}

  std::string print(const GraphDiff& diff) {
    out_ = header(sides_, diff);
    out_ += "- removed   + added   / divided   ~ changed   > moved only   . other\n";
    print_tables(diff);
    std::size_t graphs = 0, nodes = 0;
    for (const BodyDiff& body : diff.bodies) {
      const bool is_loud =
          listing_ == Listing::kEverything || !body.name || body.a == nullptr || body.b == nullptr ||
          !std::ranges::all_of(body.nodes, [](const NodeDiff& d) { return is_quiet(d.changes); });
      if (is_loud) {
        print_body(body);
      } else {
        ++graphs, nodes += body.nodes.size();
      }
    }
    if (graphs != 0)
      out_ += fmt::format(". {} of {} that are otherwise the same\n", counted(nodes, "node"),
                          counted(graphs, "nested graph"));
    return std::move(out_);
  }

 private:
  // Symbols come and go by the hundred with each division.
  void print_tables(const GraphDiff& diff) {
    constexpr std::size_t kShown = 6;
    std::map<std::string, std::vector<const TableDiff*>> tables;
    for (const TableDiff& row : diff.tables) tables[row.table].push_back(&row);
    for (const auto& [table, rows] : tables) {
      out_ += fmt::format("\n@@ {} table @@\n", table);
      const bool cut = listing_ == Listing::kReadable && rows.size() > kShown;
      for (std::size_t i = 0; i < (cut ? kShown : rows.size()); ++i) {
        if (!rows[i]->before.empty()) out_ += fmt::format("- {}\n", cut_row(rows[i]->before));
        if (!rows[i]->after.empty()) out_ += fmt::format("+ {}\n", cut_row(rows[i]->after));
      }
      if (cut) out_ += fmt::format("  and {} more\n", rows.size() - kShown);
    }
  }

  std::string cut_row(const std::string& row) const {
    if (listing_ == Listing::kEverything || row.size() <= kMaxLine) return row;
    return fmt::format("{}...", row.substr(0, row.rfind(' ', kMaxLine) + 1));
  }

  void print_body(const BodyDiff& body) {
    if (body.a == nullptr || body.b == nullptr) {
      out_ += fmt::format("\n@@ nested graph {} @@\n{} {}\n", sides_.a.text(body.name),
                          body.a == nullptr ? '+' : '-',
                          counted((body.a == nullptr ? body.b : body.a)->order.size(), "node"));
      return;
    }
    std::map<unsigned, std::vector<const NodeDiff*>> quiet;
    std::string place = "\n";  // no module's name
    for (const NodeDiff& diff : body.nodes) {
      if (listing_ == Listing::kReadable && is_quiet(diff.changes)) {
        quiet[diff.changes.bits()].push_back(&diff);
        continue;
      }
      std::string here = module_of(sides_, body, diff);
      if (here.empty()) here = "outside modules";
      here += node_of(body, diff).is_backward() ? " backward" : "";
      if (body.name) here = fmt::format("graph {} {}", sides_.a.text(body.name), here);
      if (here != place) out_ += fmt::format("\n@@ {} @@\n", here);
      place = here;
      print_node(body, diff);
    }
    print_quiet(body, quiet);
  }

  void print_node(const BodyDiff& body, const NodeDiff& diff) {
    out_ += fmt::format("{} {}\n", mark_of(diff.changes),
                        diff.a ? lines_a_.print(*body.a, diff.a) : lines_b_.print(*body.b, diff.b.front()));
    if (diff.changes.has(Change::kDivided)) out_ += fmt::format("      {}\n", images(body, diff));
    if (diff.changes.has(Change::kRenamed))
      out_ += fmt::format("      renamed: {}\n", name_b(body, diff.b.front()));
    for (const std::string& detail : diff.details) out_ += fmt::format("      {}\n", detail);
    std::string also;
    for (Change change : {Change::kRejoined, Change::kMoved, Change::kSpecialized})
      if (diff.changes.has(change) && mark_of(diff.changes) != '>')
        also += fmt::format("{}{}", also.empty() ? "" : ", ", explain(change));
    if (!also.empty()) out_ += fmt::format("      {}\n", also);
  }
  static std::string_view explain(Change change) {
    if (change == Change::kRejoined) return "takes joined parts";
    if (change == Change::kMoved) return "moved";
    return "symbols became numbers";
  }

  std::string name_b(const BodyDiff& body, NodeId id) const {
    return fmt::format("%{}", sides_.b.text(body.b->nodes[id].name));
  }

  // "2 parts: %mm_chunk0 %mm_chunk1".
  std::string images(const BodyDiff& body, const NodeDiff& diff) const {
    std::string text, whole;
    std::size_t parts = 0;
    for (NodeId id : diff.b) {
      if (body.part[id] != kNoPart) {
        if (++parts <= kMaxNames) text += fmt::format(" {}", name_b(body, id));
      } else {
        whole += fmt::format(" {}", name_b(body, id));
      }
    }
    if (parts > kMaxNames) text += " ...";
    return fmt::format("{}:{}{}{}", counted(parts, "part"), text, whole.empty() ? "" : "; whole:", whole);
  }

  void print_quiet(const BodyDiff& body, const std::map<unsigned, std::vector<const NodeDiff*>>& quiet) {
    if (quiet.empty()) return;
    out_ += "\n@@ nodes that are otherwise the same @@\n";
    for (const auto& [bits, nodes] : quiet) {
      std::string what, names;
      for (Change change : kAllChanges)
        if ((bits & static_cast<unsigned>(change)) != 0)
          what += fmt::format("{}{}", what.empty() ? "" : ", ", name_of(change));
      for (std::size_t i = 0; i < std::min(nodes.size(), kMaxNames); ++i)
        names += fmt::format(" {}", name_b(body, nodes[i]->b.front()));
      out_ += fmt::format(". {}: {}:{}{}\n", counted(nodes.size(), "node"), what, names,
                          nodes.size() > kMaxNames ? " ..." : "");
      std::map<std::string, std::size_t> details;
      for (const NodeDiff* diff : nodes)
        for (const std::string& detail : diff->details) ++details[detail];
      for (const auto& [detail, times] : details) out_ += fmt::format("      {} x {}\n", times, detail);
    }
  }

  const DiffSides& sides_;
  Listing listing_;
  NodeLines lines_a_, lines_b_;
  std::string out_;
};

// ----------------------------------------------------------------------------- summary

std::string number(std::size_t n) {
  return n == 0 ? "." : std::to_string(n);
}

std::string print_table(std::string_view title, const std::map<std::string, DiffRow>& rows) {
  std::size_t width = title.size();
  for (const auto& [name, row] : rows)
    if (row.differs()) width = std::max(width, name.size());
  std::string text = fmt::format("\n{:<{}}  {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", title, width,
                                 "before", "after", "divided", "added", "removed", "changed", "moved");
  std::size_t same = 0;
  for (const auto& [name, row] : rows) {
    if (!row.differs()) {
      ++same;
      continue;
    }
    text += fmt::format("{:<{}}  {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", name, width,
                        number(row.before), number(row.after), number(row.divided), number(row.added),
                        number(row.removed), number(row.changed), number(row.moved));
  }
  if (same != 0) text += fmt::format("and {} without a difference\n", counted(same, "row"));
  return text;
}

std::string print_counts(const DiffSummary& summary) {
  std::string text = fmt::format("\n{:<20}{:>8}\n", "same", summary.same);
  for (std::size_t i = 0; i < kAllChanges.size(); ++i) {
    if (summary.counts[i] == 0) continue;
    text += fmt::format("{:<20}{:>8}", name_of(kAllChanges[i]), summary.counts[i]);
    if (kAllChanges[i] == Change::kDivided) text += fmt::format("   into {}", counted(summary.parts, "node"));
    if (kAllChanges[i] == Change::kRemoved && summary.merged != 0)
      text += fmt::format("   {} merged into others", summary.merged);
    text += "\n";
    if (kAllChanges[i] == Change::kAdded)
      for (const auto& [what, times] : summary.added)
        text += fmt::format("{:<20}{:>8}   {}\n", "", times, what);
  }
  for (const auto& [table, rows] : summary.tables)
    text += fmt::format("{:<20}{:>8}   {} added, {} removed, {} changed\n", table + " table",
                        rows.added + rows.removed + rows.changed, rows.added, rows.removed, rows.changed);
  return text;
}

}  // namespace

std::string NodeLines::head(const Body& body, NodeId id) {
  printer_.head(body, body.nodes[id]);
  std::string head = printer_.take();
  while (!head.empty() && (head.front() == ' ' || head.front() == '\n')) head.erase(0, 1);
  if (head.size() > kMaxLine) head = fmt::format("{}...)", head.substr(0, head.rfind(", ", kMaxLine) + 2));
  return head;
}

std::string NodeLines::type(TypeId type) {
  printer_.type(type);
  return printer_.take();
}

std::string NodeLines::print(const Body& body, NodeId id) {
  const Node& node = body.nodes[id];
  std::string line = head(body, id);
  if (node.type) line += fmt::format(" : {}", type(node.type));
  if (node.module) line += fmt::format("  @{}", graph_.text(node.module));
  return line;
}

std::string module_of(const DiffSides& sides, const BodyDiff& body, const NodeDiff& diff) {
  const Node& node = node_of(body, diff);
  const std::string_view module = (diff.a ? sides.a : sides.b).text(node.module);
  return std::string(cut_module(node.chunk.region && !diff.a ? sides.b.text(node.chunk.region) : module));
}

std::string print_diff(const DiffSides& sides, const GraphDiff& diff, Listing listing) {
  return diff.is_same() ? "" : DiffPrinter(sides, listing).print(diff);
}

std::string print_diff_summary(const DiffSides& sides, const GraphDiff& diff) {
  const DiffSummary summary = summarize_diff(sides.a, sides.b, diff);
  return header(sides, diff) + print_counts(summary) + print_table("op", summary.ops) +
         print_table("module", summary.modules);
}

}  // namespace epweave
