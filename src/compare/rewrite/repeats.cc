#include "compare/rewrite/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/element_call.h"
#include "analysis/random_draws.h"
#include "analysis/users.h"
#include "compare/lineage.h"
#include "compare/rewrite/rewrite_claims.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool can_repeat(const Graph& graph, const Node& node) {
  if (node.kind == NodeKind::kGetAttr) return true;
  if (node.kind != NodeKind::kCall || node.op == nullptr || draws_random(graph, node)) return false;
  if (node.extra != nullptr && !node.extra->bindings.empty()) return false;
  return !node.op->is_effectful || is_wait(node);
}

// Taken from where it was moved to (a bucket of gathers), unless what it stands for is in parts.
bool is_moved_whole(const Node& node, const Lineage& lineage) {
  return lineage.role == ProvenanceRole::kMaterialize && is_reshape(node) && !lineage.origins.empty();
}

// Which calls of A may be done again, each chain of them on storage of its own: what writes
// storage, as often as it is made.
class RepeatableCalls {
 public:
  explicit RepeatableCalls(const Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        effects_(graph, body_),
        positions_(find_positions(body_, body_.order)),
        chosen_(body_.nodes.size()) {
    for (NodeId id : body_.order)
      for (const StorageAccess& access : effects_.accesses_of(id))
        if (access.writes && !is_wait(body_.nodes[id])) writers_.at(access.storage).push_back(id);
  }

  void choose(NodeId id, std::uint32_t times) {
    chosen_.insert(id);
    times_.at(id) = std::max(times_[id], times);
  }
  bool is_chosen(NodeId id) const { return chosen_.contains(id); }

  // Neither writes storage nor sees what anything but a wait writes.
  bool is_read_only(NodeId id) const {
    const auto is_unwritten = [&](const StorageAccess& access) { return writers_[access.storage].empty(); };
    return std::ranges::all_of(effects_.accesses_of(id), is_unwritten) &&
           writers_[effects_.storage_of(id)].empty();
  }

  // Leaves out what would find or leave storage in another state; fewer calls, until all that are
  // left do not.
  void filter() {
    for (bool is_sound = false; !is_sound;) {
      is_sound = true;
      for (NodeId id : body_.order) {
        if (!chosen_.contains(id) || can_do(id)) continue;
        chosen_.erase(id);
        is_sound = false;
      }
    }
  }

 private:
  bool can_do(NodeId id) const {
    const Node& node = body_.nodes[id];
    if (!can_repeat(graph_, node) || !takes_own(id, effects_.storage_of(id))) return false;
    if (is_wait(node)) return true;
    return std::ranges::all_of(effects_.accesses_of(id), [&](const StorageAccess& access) {
      if (writers_[access.storage].empty()) return true;
      if (!is_made_again(access.storage)) return !access.writes;
      if (access.writes && !is_done_as_often(id, access.storage)) return false;
      return takes_own(id, access.storage) && has_earlier_writes(id, access.storage);
    });
  }

  bool is_done_as_often(NodeId id, NodeId other) const {
    return chosen_.contains(id) && times_[id] == times_[other];
  }

  // Each repeat makes storage of its own. An element of a tuple is made with its tuple, a constant
  // never.
  bool is_made_again(NodeId storage) const {
    for (NodeId at = storage; at;) {
      const Node& node = body_.nodes[at];
      if (node.kind != NodeKind::kCall || !is_done_as_often(at, storage)) return false;
      if (!has_family(node, OpFamily::kElement)) return true;
      at = tuple_of(context_, node);
    }
    return false;
  }

  // Of storage that is made again, the n-th repeat takes only what shows the n-th.
  bool takes_own(NodeId id, NodeId storage) const {
    if (writers_[storage].empty() || !is_made_again(storage)) return true;
    bool is_own = true;
    for_each_input(context_, body_.nodes[id], [&](NodeId input) {
      is_own = is_own && (effects_.storage_of(input) != storage || is_done_as_often(input, storage));
    });
    return is_own;
  }

  // What is written behind the call, its repeat does not see: that stands right behind it.
  bool has_earlier_writes(NodeId id, NodeId storage) const {
    return std::ranges::all_of(writers_[storage], [&](NodeId writer) {
      return positions_[writer] >= positions_[id] || chosen_.contains(writer);
    });
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Effects effects_;
  IdVector<NodeId, std::uint32_t> positions_;
  SideTable<NodeId, std::vector<NodeId>> writers_;  // by storage, in order
  IdSet<NodeId> chosen_;
  SideTable<NodeId, std::uint32_t> times_;  // that a call is to be done again
};

class RepeatWriter {
 public:
  RepeatWriter(const Graph& a, const Graph& b) : graphs_{a, b, {}}, context_(*a.context) {
    for (NodeId id : a.step().order) names_.at(a.step().nodes[id].name) = id;
    for (NodeId id : b.step().order) names_of_b_.insert(b.step().nodes[id].name);
  }

  std::optional<RepeatedGraphs> run() {
    find_copies();
    if (copies_.empty()) return std::nullopt;
    RepeatableCalls calls(graphs_.a);
    for (const Copy& copy : copies_)
      for (const Stand& stand : copy.stands)
        if (stand.repeat > 0) calls.choose(stand.original, stand.repeat);
    calls.filter();
    for (const Copy& copy : copies_) {
      std::vector<std::pair<StringId, StringId>> names;
      for (const Stand& stand : copy.stands) {
        const StringId name = graphs_.a.step().nodes[stand.original].name;
        if (stand.repeat > 0 && calls.is_chosen(stand.original))
          names.emplace_back(name, repeat(stand.original, stand.repeat));
      }
      rename_origins(graphs_.b.step().nodes[copy.node], copy.record, names);
    }
    complete_parts(calls);
    insert();
    list_origins();
    return std::move(graphs_);
  }

 private:
  struct Stand {
    NodeId original;           // of A
    std::uint32_t repeat = 0;  // which of its repeats; 0: itself
  };
  // A node of B that is computed again, is moved once more, or joins or cuts what is. Where a pass
  // merged nodes (canonicalize: a view into its operand), it stands for all of them.
  struct Copy {
    NodeId node;
    const Provenance* record;  // from this on, it stands for these
    std::vector<Stand> stands;
  };

  void find_copies() {
    const Body& b = graphs_.b.step();
    for (NodeId id : b.order) {
      if (const Lineage lineage = find_lineage(b.nodes[id]); lineage.is_part())
        for (StringId origin : lineage.origins) divided_.insert(origin);
    }
    for (NodeId id : b.order) {
      if (find_copy_record(b.nodes[id]) != nullptr) continue;
      const Lineage lineage = find_lineage(b.nodes[id]);
      if (!lineage.is_whole() && !lineage.is_part()) continue;
      for (StringId origin : lineage.origins) {
        times_of_whole(origin) = 1;
        if (!lineage.is_part()) continue;
        times_of_part(origin, lineage.part) = 1;
        if (origin == lineage.origins.front()) parts_[{names_[origin], lineage.part}] = id;
      }
    }
    // A copy that stands before what is moved in may be of the launch that was merged into that.
    SideTable<NodeId, std::vector<Stand>> moved;
    for (NodeId id : b.order) {
      if (!has_origins(b.nodes[id]) || !is_moved(b.nodes[id], find_lineage(b.nodes[id]))) continue;
      for (StringId origin : origins_of(b.nodes[id])) {
        moved.at(id).push_back({names_[origin], times_of_whole(origin)++});
        count_launch(names_[origin]);
      }
    }
    SideTable<NodeId, std::uint32_t> copy_of_node;  // 1 + the place in `copies_`
    for (NodeId id : b.order) {
      const Node& node = b.nodes[id];
      const NameList origins = origins_of(node);
      if (!has_origins(node)) continue;
      const Provenance* record = find_copy_record(node);
      const Lineage lineage = find_lineage(node);
      Copy copy{id, record == nullptr ? &node.provenance.front() : record, {}};
      if (!moved[id].empty()) {
        copy.stands = moved[id];
      } else if (!lineage.is_whole() && !lineage.is_part()) {
        for_each_input(context_, node, [&](NodeId input) {
          if (copy_of_node[input] == 0 || !copy.stands.empty()) return;
          const Copy& from = copies_[copy_of_node[input] - 1];
          if (origins_of(b.nodes[input]) == origins) copy.stands = from.stands;
        });
      } else if (record != nullptr) {
        for (StringId origin : origins) {
          std::uint32_t& times =
              lineage.is_part() ? times_of_part(origin, lineage.part) : times_of_whole(origin);
          copy.stands.push_back({names_[origin], times++});
        }
      }
      if (copy.stands.empty()) continue;
      copies_.push_back(std::move(copy));
      copy_of_node.at(id) = static_cast<std::uint32_t>(copies_.size());
    }
  }

  // Records, and what they name is in A.
  bool has_origins(const Node& node) const {
    return !node.provenance.empty() &&
           std::ranges::all_of(origins_of(node), [&](StringId origin) { return bool{names_[origin]}; });
  }

  // What is moved in stands for the launch that A waits for, too: one that B does by itself is
  // another.
  void count_launch(NodeId wait) {
    const Body& a = graphs_.a.step();
    const NodeId launch = is_wait(a.nodes[wait]) ? find_waited_launch(context_, a, wait) : NodeId();
    if (launch) ++times_of_whole(a.nodes[launch].name);
  }

  // All of what nothing divides. Where B moves it once more for backward, that is another node of
  // it.
  bool is_moved(const Node& node, const Lineage& lineage) const {
    return is_moved_whole(node, lineage) &&
           std::ranges::none_of(lineage.origins, [&](StringId origin) { return divided_.contains(origin); });
  }

  std::uint32_t& times_of_whole(StringId origin) { return times_[std::uint64_t{origin.index()} << 32]; }
  std::uint32_t& times_of_part(StringId origin, std::uint32_t part) {
    return times_[std::uint64_t{origin.index()} << 32 | (part + std::uint64_t{1})];
  }

  // Where B computes some parts of a call again, and reads the others as they are, it is written as
  // if it computed these again, too: nothing takes them.
  void complete_parts(const RepeatableCalls& calls) {
    std::map<std::pair<std::uint32_t, NodeId>, std::set<std::uint32_t>> parts_of;  // by repeat, in A's order
    for (const Copy& copy : copies_) {
      const Lineage lineage = find_lineage(graphs_.b.step().nodes[copy.node]);
      for (const Stand& stand : copy.stands)
        if (lineage.is_part() && stand.repeat > 0 && calls.is_chosen(stand.original))
          parts_of[{stand.repeat, stand.original}].insert(lineage.part);
    }
    for (const NodeId id : std::vector<NodeId>(graphs_.a.step().order))
      for (std::uint32_t n = 1; n <= repeats_[id].size(); ++n)
        if (const auto found = parts_of.find({n, id}); found != parts_of.end() && calls.is_read_only(id))
          complete(id, n, found->second);
    write_completed();
  }

  void complete(NodeId original, std::uint32_t n, const std::set<std::uint32_t>& there) {
    const auto first = parts_.lower_bound({original, 0});
    for (auto at = first; at != parts_.end() && at->first.first == original; ++at) {
      if (there.contains(at->first.second)) continue;
      Body& b = graphs_.b.step();
      Node made = b.nodes[at->second];
      const Lineage lineage = find_lineage(made);
      const Provenance record{.pass = made.provenance.back().pass,
                              .role = ProvenanceRole::kBody,
                              .origins = {graphs_.a.step().nodes[repeats_[original][n - 1]].name},
                              .part = lineage.part,
                              .parts = lineage.parts};
      made.provenance = context_.own(std::span<const Provenance>(&record, 1));
      made.name = name_in_b(made.name);
      map_arguments(context_, made, [&](Arg arg) {
        if (!arg.is_node()) return arg;
        const auto again = completed_.find({arg.as_node(), n});
        return again == completed_.end() ? arg : Arg::node(again->second);
      });
      const NodeId id = b.nodes.push_back(made);
      completed_[{at->second, n}] = id;
      behind_[at->second].push_back(id);
    }
  }

  // Each behind the part that it repeats, the last made first.
  void write_completed() {
    if (behind_.empty()) return;
    std::vector<NodeId>& order = graphs_.b.step().order;
    const std::vector<NodeId> given = std::exchange(order, {});
    for (NodeId id : given) {
      order.push_back(id);
      if (const auto made = behind_.find(id); made != behind_.end())
        order.insert(order.end(), made->second.rbegin(), made->second.rend());
    }
  }

  StringId name_in_b(StringId name) {
    const std::string wanted = fmt::format("{}_repeat", context_.text(name));
    StringId made = graphs_.b.intern(wanted);
    for (std::size_t i = 1; !names_of_b_.insert(made); ++i)
      made = graphs_.b.intern(fmt::format("{}_{}", wanted, i));
    return made;
  }

  // The n-th repeat of the original, n from 1.
  StringId repeat(NodeId original, std::uint32_t n) {
    while (repeats_[original].size() < n) add_repeat(original);
    return graphs_.a.step().nodes[repeats_[original][n - 1]].name;
  }

  void add_repeat(NodeId original) {
    Body& a = graphs_.a.step();
    Node made = a.nodes[original];
    const std::string wanted = fmt::format("{}_repeat", context_.text(made.name));
    made.name = graphs_.a.intern(wanted);
    for (std::size_t i = std::max<std::size_t>(1, repeats_[original].size()); names_[made.name]; ++i)
      made.name = graphs_.a.intern(fmt::format("{}_{}", wanted, i));
    const NodeId id = a.nodes.push_back(made);
    names_.at(made.name) = id;
    repeats_.at(original).push_back(id);
  }

  // From the record on, the node is of other names: pairs of the one before and the one now.
  // Repeats are no copies.
  void rename_origins(Node& node, const Provenance* from,
                      std::span<const std::pair<StringId, StringId>> names) {
    std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
    for (auto at = records.begin() + (from - &node.provenance.front()); at != records.end(); ++at) {
      Provenance& record = *at;
      if (is_copy_record(record)) record.role = ProvenanceRole::kKept, record.parts = 0;
      std::vector<StringId> renamed(record.origins.begin(), record.origins.end());
      for (StringId& origin : renamed)
        for (const auto& [before, now] : names)
          if (origin == before) {
            origin = now;
            break;
          }
      record.origins = context_.own(std::span<const StringId>(renamed));
    }
    node.provenance = context_.own(std::span<const Provenance>(records));
  }

  // Each repeat stands behind its original, and takes what is repeated, too.
  void insert() {
    Body& a = graphs_.a.step();
    std::vector<NodeId> order;
    graphs_.original.resize(a.nodes.size());
    for (NodeId id : a.order) {
      order.push_back(id);
      const std::vector<NodeId>& repeats = repeats_[id];
      for (std::size_t i = 0; i < repeats.size(); ++i) {
        const auto redirect = [&](Arg arg) {
          if (!arg.is_node() || repeats_[arg.as_node()].empty()) return arg;
          const std::vector<NodeId>& own = repeats_[arg.as_node()];
          return Arg::node(own[std::min(i, own.size() - 1)]);
        };
        Node& node = a.nodes[repeats[i]];
        map_arguments(context_, node, redirect);
        order.push_back(repeats[i]);
        graphs_.original[repeats[i]] = id;
      }
    }
    a.order = std::move(order);
  }

  void list_origins() {
    graphs_.b.origins.clear();
    const Body& a = graphs_.a.step();
    for (NodeId id : a.order) graphs_.b.origins.push_back({a.nodes[id].name, a.nodes[id].target});
  }

  RepeatedGraphs graphs_;
  Context& context_;
  SideTable<StringId, NodeId> names_;  // of A'
  std::vector<Copy> copies_;           // in B's order
  IdSet<StringId> divided_;            // what B has in parts
  // How often a call of A is there already; one in parts is there as a whole, too.
  std::unordered_map<std::uint64_t, std::uint32_t> times_;  // by origin and part, from 1; 0: whole
  SideTable<NodeId, std::vector<NodeId>> repeats_;
  std::map<std::pair<NodeId, std::uint32_t>, NodeId> parts_;      // of B, by call of A and number
  std::map<std::pair<NodeId, std::uint32_t>, NodeId> completed_;  // by such a part and repeat
  std::map<NodeId, std::vector<NodeId>> behind_;                  // what is made, by such a part
  IdSet<StringId> names_of_b_;
};

}  // namespace

std::optional<RepeatedGraphs> write_repeats(const Graph& a, const Graph& b) {
  const Body& step = b.step();
  IdSet<StringId> moved;
  const auto repeats = [&](NodeId id) {
    const Node& node = step.nodes[id];
    if (find_copy_record(node) != nullptr) return true;
    const Lineage lineage = find_lineage(node);
    return is_moved_whole(node, lineage) && !moved.insert(lineage.origins.front());
  };
  return std::ranges::any_of(step.order, repeats) ? RepeatWriter(a, b).run() : std::nullopt;
}

}  // namespace epweave
