#include "compare/rebase.h"

#include <algorithm>

#include "compare/lineage.h"

namespace epweave {
namespace {

class Rebaser {
 public:
  Rebaser(const Graph& b, const Graph& c) : b_(b), result_(c) {
    for (NodeId id : b.step().order) {
      const Node& node = b.step().nodes[id];
      by_name_.at(node.name) = id;
      const Lineage lineage = find_lineage(node);
      if (!lineage.is_whole()) continue;
      for (StringId origin : lineage.origins) whole_.at(origin) = node.name;
    }
  }

  Graph run() {
    result_.origins.clear();
    for (NodeId id : b_.step().order) {
      const Node& node = b_.step().nodes[id];
      result_.origins.push_back({node.name, node.target});
    }
    for (NodeId id : result_.step().order) rebase(result_.step().nodes[id]);
    return std::move(result_);
  }

 private:
  void rebase(Node& node) {
    const Lineage lineage = find_lineage(node);
    Provenance record{.role = lineage.role, .part = lineage.part, .parts = lineage.parts};
    if (const Node* same = find_same(node, lineage)) {
      record = {.role = ProvenanceRole::kKept, .origins = {same->name}};
      if (lineage.is_whole()) add_origins(lineage, record);
      if (record.origins.size() > 1) record.role = ProvenanceRole::kMerged;
    } else {
      add_origins(lineage, record);
    }
    record.pass = node.provenance.empty() ? StringId() : node.provenance.back().pass;
    node.provenance = result_.context->own(std::vector<Provenance>{std::move(record)});
  }

  // The node of B that is the same thing of A, under the same name; a whole node also under
  // another.
  const Node* find_same(const Node& node, const Lineage& lineage) const {
    if (lineage.origins.empty()) return nullptr;
    NodeId id = by_name_[node.name];
    if (!id && lineage.is_whole()) id = by_name_[whole_[lineage.origins.front()]];
    if (!id) return nullptr;
    const Node& other = b_.step().nodes[id];
    const Lineage before = find_lineage(other);
    const bool is_same = before.is_whole() == lineage.is_whole() && !before.origins.empty() &&
                         before.origins.front() == lineage.origins.front() && before.part == lineage.part &&
                         before.parts == lineage.parts && (before.is_whole() || before.role == lineage.role);
    return is_same ? &other : nullptr;
  }

  void add_origins(const Lineage& lineage, Provenance& record) const {
    std::vector<StringId> names(record.origins.begin(), record.origins.end());
    for (StringId origin : lineage.origins) {
      const StringId name = whole_[origin];
      if (name && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    record.origins = result_.context->own(names);
  }

  const Graph& b_;
  Graph result_;
  SideTable<StringId, NodeId> by_name_;
  SideTable<StringId, StringId> whole_;  // of a node of A: the node of B that is it
};

}  // namespace

bool share_origins(const Graph& b, const Graph& c) {
  return !b.origins.empty() && std::ranges::equal(b.origins, c.origins, [](const Origin& x, const Origin& y) {
    return x.name == y.name && x.target == y.target;
  });
}

Graph rebase_provenance(const Graph& b, const Graph& c) {
  return Rebaser(b, c).run();
}

}  // namespace epweave
