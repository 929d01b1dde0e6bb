#include "compare/rebase.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/collectives.h"
#include "compare/lineage.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// What a node is of A: all of it, a part, or what cuts or joins parts.
using Thing = std::tuple<std::uint32_t, ProvenanceRole, std::uint32_t, std::uint32_t>;

Thing thing_of(const Lineage& lineage) {
  return {lineage.origins.empty() ? 0 : lineage.origins.front().index() + 1,
          lineage.is_whole() ? ProvenanceRole::kKept : lineage.role, lineage.part,
          lineage.is_whole() ? 0 : lineage.parts};
}

class Rebaser {
 public:
  Rebaser(const Graph& b, const Graph& c) : b_(b), result_(c) {
    for (NodeId id : b.step().order) {
      const Node& node = b.step().nodes[id];
      by_name_.at(node.name) = id;
      const Lineage lineage = find_lineage(node);
      if (lineage.role == ProvenanceRole::kMaterialize)
        for (StringId origin : lineage.origins) joined_.at(origin) = node.name;
      if (find_copy_record(node) == nullptr) {
        if (!lineage.is_whole()) continue;
        for (StringId origin : lineage.origins) whole_.at(origin) = node.name;
      } else if (lineage.is_whole()) {
        for (StringId origin : lineage.origins) copies_.at(origin).push_back(node.name);
      }
    }
    // An input that `extract` added in place of what computed the value.
    for (const InputRole& input : b.inputs)
      if (const NodeId id = by_name_[input.name])
        for (StringId origin : find_lineage(b.step().nodes[id]).origins)
          if (!whole_[origin]) whole_.at(origin) = input.name;
    // What is only computed again.
    for (std::uint32_t i = 0; i < copies_.size(); ++i)
      if (const StringId origin(i); !whole_[origin] && !copies_[origin].empty())
        whole_.at(origin) = copies_[origin].front();
  }

  Graph run() {
    result_.origins.clear();
    for (NodeId id : b_.step().order) {
      const Node& node = b_.step().nodes[id];
      result_.origins.push_back({node.name, node.target});
    }
    find_replaced();
    for (NodeId id : result_.step().order) rebase(id);
    return std::move(result_);
  }

 private:
  // What B made and C has not, and what C takes in its place: the same call takes either.
  void find_replaced() {
    const Body& body = result_.step();
    for (NodeId id : body.order) in_c_.insert(body.nodes[id].name);
    if (std::ranges::all_of(b_.step().order,
                            [&](NodeId id) { return in_c_.contains(b_.step().nodes[id].name); }))
      return;
    for (NodeId id : body.order) {
      const NodeId same = by_name_[body.nodes[id].name];
      if (same && is_same_call(b_.step().nodes[same], body.nodes[id])) pairs_.emplace_back(same, id);
    }
    while (!pairs_.empty()) {
      const auto [in_b, in_c] = pairs_.back();
      pairs_.pop_back();
      pair_inputs(b_.step().nodes[in_b], body.nodes[in_c]);
    }
  }

  // Of calls that are one.
  void pair_inputs(const Node& in_b, const Node& in_c) {
    std::vector<NodeId> before, after;
    for_each_input(*result_.context, in_b, [&](NodeId input) { before.push_back(input); });
    for_each_input(*result_.context, in_c, [&](NodeId input) { after.push_back(input); });
    if (before.size() != after.size()) return;
    for (std::size_t i = 0; i < after.size(); ++i) {
      const Node &gone = b_.step().nodes[before[i]], &taken = result_.step().nodes[after[i]];
      if (in_c_.contains(gone.name)) continue;
      const bool is_memory = is_new(after[i]) && is_merged_memory(taken);
      if (is_memory && find_lineage(gone).role != ProvenanceRole::kAdded && absorb(before[i], after[i]))
        continue;
      const Node& moved = b_.step().nodes[is_moved(after[i]) ? find_moved(before[i], after[i]) : before[i]];
      if (is_new(after[i]) || moves_copy(after[i], moved)) {
        replaced_.at(after[i]) = moved.name;
        if (is_moved(after[i])) absorb(before[i], after[i]);
      } else if (absorb(before[i], after[i]) && gone.target == taken.target) {
        pairs_.emplace_back(before[i], after[i]);
      }
    }
  }

  // A node of B that C merged into one of its own, and what it is a view of, if that is gone, too.
  bool absorb(NodeId gone, NodeId taken) {
    const bool is_absorbed =
        absorbs(result_.step().nodes[taken], b_.step().nodes[gone]) && seen_.insert({gone, taken}).second;
    if (!is_absorbed) return false;
    absorbed_.at(taken).push_back(gone);
    for (NodeId shown = shown_by(gone); shown; shown = shown_by(shown)) {
      const Node& node = b_.step().nodes[shown];
      const bool is_own = find_lineage(node).role == ProvenanceRole::kAdded;
      if (!is_own && !in_c_.contains(node.name) && absorbs(result_.step().nodes[taken], node) &&
          seen_.insert({shown, taken}).second)
        absorbed_.at(taken).push_back(shown);
    }
    return true;
  }

  // What C moved of what a node of B shows; else the node.
  NodeId find_moved(NodeId gone, NodeId taken) const {
    const NameList moved = find_maker(result_.step().nodes[taken])->origins;
    NodeId found = gone;
    for (NodeId shown = gone; shown; shown = shown_by(shown)) {
      const NameList origins = find_lineage(b_.step().nodes[shown]).origins;
      const bool is_gone = !in_c_.contains(b_.step().nodes[shown].name);
      if (is_gone && !origins.empty() && std::ranges::find(moved, origins.front()) != moved.end())
        found = shown;
    }
    return found;
  }

  // Of a view, or a wait, in B.
  NodeId shown_by(NodeId in_b) const {
    const Node& node = b_.step().nodes[in_b];
    const Arg shown = arg_of(*b_.context, node, 0);
    if (node.op == nullptr || !(node.op->is_view || is_wait(node)) || !shown.is_node()) return {};
    return shown.as_node();
  }

  // Whether C may have merged what B made, or has as a copy, into a node.
  static bool absorbs(const Node& in_c, const Node& gone) {
    const Lineage lineage = find_lineage(gone);
    if (lineage.role == ProvenanceRole::kAdded) return true;
    const NameList origins = origins_of(in_c);
    return !lineage.origins.empty() && std::ranges::any_of(in_c.provenance, [](const Provenance& r) {
      return r.role == ProvenanceRole::kMerged;
    }) && std::ranges::find(origins, lineage.origins.front()) != origins.end();
  }

  // Of two calls of one name: C may have given the name of a node that it has not to a call of its
  // own. A reshape may be written as another one.
  static bool is_same_call(const Node& in_b, const Node& in_c) {
    const bool is_one_op = in_b.target == in_c.target || (is_reshape(in_b) && is_reshape(in_c));
    return is_one_op && thing_of(find_lineage(in_b)) == thing_of(find_lineage(in_c));
  }

  // A tensor: of a split of its own, each piece says what it is. It may have the name of a node of
  // B that is gone.
  bool is_new(NodeId id) const {
    const Node& node = result_.step().nodes[id];
    const Lineage lineage = find_lineage(node);
    return lineage.role == ProvenanceRole::kAdded && tensor_of(*result_.context, node.type) != nullptr &&
           find_same(node, lineage) == nullptr;
  }

  // C's own, for a value of A.
  bool is_moved(NodeId id) const {
    const Node& node = result_.step().nodes[id];
    const Lineage lineage = find_lineage(node);
    return lineage.role == ProvenanceRole::kMaterialize && find_same(node, lineage) == nullptr;
  }

  // For the value of A that B has here as a copy: which of B's it is, its origins do not say.
  bool moves_copy(NodeId id, const Node& in_b) const {
    const Lineage copy = find_lineage(in_b), moved = find_lineage(result_.step().nodes[id]);
    return is_moved(id) && find_copy_record(in_b) != nullptr && copy.is_whole() && !copy.origins.empty() &&
           std::ranges::find(moved.origins, copy.origins.front()) != moved.origins.end();
  }

  void rebase(NodeId id) {
    Node& node = result_.step().nodes[id];
    const Lineage lineage = find_lineage(node);
    Provenance record{.role = lineage.role, .part = lineage.part, .parts = lineage.parts};
    if (const Node* same = find_same(node, lineage)) {
      record = {.role = ProvenanceRole::kKept, .origins = {same->name}};
      const NameList known = list_known(*same, absorbed_[id]);
      if (lineage.is_whole()) {
        add_origins(lineage, known, record);
      } else {
        add_merged(lineage, known, record);
      }
      add_absorbed(absorbed_[id], record);
      if (record.origins.size() > 1) record.role = ProvenanceRole::kMerged;
    } else if (const Node* copied =
                   find_copy_record(node) != nullptr ? find_copied(node, lineage) : nullptr) {
      record = {.role = ProvenanceRole::kBody, .origins = {copied->name}, .parts = 1};
      const NameList known = find_lineage(*copied).origins;
      lineage.is_whole() ? add_origins(lineage, known, record) : add_merged(lineage, known, record);
    } else if (is_merged_memory(node)) {
      return set_records(node, list_of_memory(node, id));
    } else if (const StringId replaced = replaced_[id]) {
      record = {.role = ProvenanceRole::kMaterialize, .origins = {replaced}};
      add_absorbed(absorbed_[id], record);
    } else if (const StringId divided = find_divided_copy(node, lineage)) {
      record.origins = {divided};
      copy_of_.at(id) = divided;
    } else {
      add_origins(lineage, {}, record);
      if (find_copy_record(node) != nullptr) return set_records(node, list_of_divided_copy(node, record));
    }
    set_records(node, {std::move(record)});
  }

  void set_records(Node& node, std::vector<Provenance> records) {
    for (Provenance& record : records)
      record.pass = node.provenance.empty() ? StringId() : node.provenance.back().pass;
    node.provenance = result_.context->own(std::move(records));
  }

  // Memory that C made, and that stands for what was merged into it: of that, B has what calls take
  // in its place, or else what joins or is it.
  std::vector<Provenance> list_of_memory(const Node& node, NodeId id) const {
    const Provenance& maker = *find_maker(node);
    Provenance made{.role = ProvenanceRole::kAdded}, merged{.role = ProvenanceRole::kMerged};
    add_origins({.role = maker.role, .origins = maker.origins}, {}, made);
    std::vector<StringId> names(made.origins.begin(), made.origins.end());
    const std::vector<NodeId>& taken = absorbed_[id];  // what is shown comes behind what shows it
    for (auto at = taken.rbegin(); at != taken.rend(); ++at) names.push_back(b_.step().nodes[*at].name);
    const bool is_taken = !taken.empty() || replaced_[id];
    if (replaced_[id]) names.push_back(replaced_[id]);
    for (StringId origin : origins_of(node)) {
      const bool is_made_of = std::ranges::find(maker.origins, origin) != maker.origins.end();
      const StringId name = joined_[origin] ? joined_[origin] : whole_[origin];
      if (!is_taken && !is_made_of && name) names.push_back(name);
    }
    merged.origins = result_.context->own(std::span<const StringId>(names));
    return {std::move(made), std::move(merged)};
  }

  // A part that is computed again, of what B has whole: in the order in which the passes came.
  std::vector<Provenance> list_of_divided_copy(const Node& node, const Provenance& part) const {
    const Provenance copy{.role = ProvenanceRole::kBody, .origins = part.origins, .parts = 1};
    const bool was_divided_first = is_copy_record(*find_maker(node));  // the copy's record at least
    return was_divided_first ? std::vector<Provenance>{part, copy} : std::vector<Provenance>{copy, part};
  }

  // The node of B that is the same thing of A, under the same name; a whole node also under
  // another.
  const Node* find_same(const Node& node, const Lineage& lineage) const {
    NodeId id = by_name_[node.name];
    if (lineage.origins.empty()) return find_same_of_none(node, id);
    if (!id && lineage.is_whole() && find_copy_record(node) == nullptr)
      id = by_name_[whole_[lineage.origins.front()]];
    if (!id) return nullptr;
    const Node& other = b_.step().nodes[id];
    const Lineage before = find_lineage(other);
    return !before.origins.empty() && thing_of(before) == thing_of(lineage) ? &other : nullptr;
  }

  // What was added for no node of A and is the call that B has under that name.
  const Node* find_same_of_none(const Node& node, NodeId id) const {
    if (!id) return nullptr;
    const Node& other = b_.step().nodes[id];
    return other.target == node.target && find_lineage(other).origins.empty() ? &other : nullptr;
  }

  // The node of B that a node of C, which B has not, computes again: of several that are the same
  // thing of A, as those that count a dimension's rows, the one whose name and call it has.
  const Node* find_copied(const Node& node, const Lineage& lineage) {
    if (lineage.origins.empty()) return nullptr;
    const auto found = things().find(thing_of(lineage));
    if (found == things().end()) return nullptr;
    const std::string_view name = b_.text(node.name);
    const Node* best = nullptr;
    for (NodeId id : found->second) {
      const Node& other = b_.step().nodes[id];
      if (other.target != node.target) continue;
      if (name.starts_with(b_.text(other.name)) &&
          (best == nullptr || b_.text(other.name).size() > b_.text(best->name).size()))
        best = &other;
    }
    return best != nullptr ? best : &b_.step().nodes[found->second.front()];
  }

  // The copy in B whose part the node is, or that it cuts or joins: what its operands say, or the
  // name that a part has kept.
  StringId find_divided_copy(const Node& node, const Lineage& lineage) const {
    if (lineage.origins.empty() || lineage.is_whole()) return {};
    const std::vector<StringId>& copies = copies_[lineage.origins.front()];
    if (copies.empty()) return {};
    if (std::ranges::find(copies, node.chunk.original_name) != copies.end()) return node.chunk.original_name;
    StringId found;
    for_each_input(*result_.context, node, [&](NodeId input) {
      const StringId name = copy_of_[input] ? copy_of_[input] : result_.step().nodes[input].name;
      if (!found && std::ranges::find(copies, name) != copies.end()) found = name;
    });
    return found ? found : find_copy_record(node) != nullptr ? copies.front() : StringId();
  }

  // What is all of the origins in B, but for those that the node was of already.
  void add_origins(const Lineage& lineage, const NameList& known, Provenance& record) const {
    std::vector<StringId> names(record.origins.begin(), record.origins.end());
    for (StringId origin : lineage.origins) {
      const StringId name = std::ranges::find(known, origin) == known.end() ? whole_[origin] : StringId();
      if (name && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    record.origins = result_.context->own(names);
  }

  // What of A a node of B is, and what C merged into it that B has.
  NameList list_known(const Node& same, const std::vector<NodeId>& absorbed) {
    const NameList own = find_lineage(same).origins;
    if (absorbed.empty()) return own;
    std::vector<StringId> all(own.begin(), own.end());
    for (NodeId id : absorbed) {
      const Lineage lineage = find_lineage(b_.step().nodes[id]);
      if (lineage.role != ProvenanceRole::kAdded)
        all.insert(all.end(), lineage.origins.begin(), lineage.origins.end());
    }
    return result_.context->own(std::span<const StringId>(all));
  }

  void add_absorbed(const std::vector<NodeId>& absorbed, Provenance& record) const {
    if (absorbed.empty()) return;
    std::vector<StringId> names(record.origins.begin(), record.origins.end());
    for (NodeId id : absorbed)
      if (const StringId name = b_.step().nodes[id].name; std::ranges::find(names, name) == names.end())
        names.push_back(name);
    record.origins = result_.context->own(names);
  }

  // The same part, or what joined or moved the values, in B, that C merged into the node.
  void add_merged(const Lineage& lineage, const NameList& known, Provenance& record) {
    std::vector<StringId> names(record.origins.begin(), record.origins.end());
    for (StringId origin : lineage.origins) {
      const StringId name = lineage.is_part() ? find_part(lineage, origin)
                            : joined_[origin] ? joined_[origin]
                                              : whole_[origin];
      const bool is_merged = std::ranges::find(known, origin) == known.end();
      if (is_merged && name && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    record.origins = result_.context->own(names);
  }

  // The part of a node of A that B has, as large as this one.
  StringId find_part(const Lineage& lineage, StringId origin) {
    Lineage part = lineage;
    part.origins = origin;
    const std::vector<NodeId>& found = things()[thing_of(part)];
    return found.empty() ? StringId() : b_.step().nodes[found.front()].name;
  }

  // Of B, what is no copy, by what it is of A.
  std::map<Thing, std::vector<NodeId>>& things() {
    if (things_.empty())
      for (NodeId id : b_.step().order)
        if (const Node& node = b_.step().nodes[id]; find_copy_record(node) == nullptr)
          things_[thing_of(find_lineage(node))].push_back(id);
    return things_;
  }

  const Graph& b_;
  Graph result_;
  SideTable<StringId, NodeId> by_name_;
  std::map<Thing, std::vector<NodeId>> things_;      // once asked for
  SideTable<StringId, StringId> joined_;             // of a node of A: the last of B that joins or moves it
  SideTable<NodeId, StringId> replaced_;             // of nodes that C made: what of B they stand for
  SideTable<NodeId, std::vector<NodeId>> absorbed_;  // and of those that B has: what they are taken for, too
  std::set<std::pair<NodeId, NodeId>> seen_;         // absorbed, and by what
  IdSet<StringId> in_c_;                             // names
  std::vector<std::pair<NodeId, NodeId>> pairs_;     // of calls of B and C that are one, to look at
  SideTable<StringId, StringId> whole_;              // of a node of A: the node of B that is it
  SideTable<StringId, std::vector<StringId>> copies_;  // and those that are it once more
  SideTable<NodeId, StringId> copy_of_;                // of nodes of C: the copy in B that they are of
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
