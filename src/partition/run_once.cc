#include "partition/run_once.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/done_again.h"
#include "analysis/effects.h"
#include "ops/op.h"

namespace epweave {

// ------------------------------------------------------------------------- tags

SaveMarks::SaveMarks(const Graph& graph, const Joint& joint)
    : context_(*graph.context),
      body_(graph.step()),
      joint_(joint),
      tags_(graph),
      region_outputs_(find_region_outputs(graph, joint)),
      must_save_(body_.nodes.size()) {
  for (NodeId id : body_.order) {
    const Node& node = body_.nodes[id];
    if (node.kind != NodeKind::kCall || !context_.text(node.target).starts_with("_c10d_functional."))
      continue;
    if (!is_recomputed(id)) save_leaves(id);
  }
}

bool SaveMarks::is_saved(NodeId id) const {
  return body_.nodes[id].recompute == tags_.must_save || region_outputs_.contains(id);
}

bool SaveMarks::is_recomputed(NodeId id) const {
  return holds_with_call(context_, body_, id, [&](NodeId at) {
    return tags_.is_recomputed(body_.nodes[at]) && !region_outputs_.contains(at);
  });
}

void SaveMarks::save_leaves(NodeId id) {
  bool has_elements = false;
  for (NodeId user : joint_.users[id])
    if (has_family(body_.nodes[user], OpFamily::kElement)) {
      has_elements = true;
      save_leaves(user);
    }
  const TypeId type = body_.nodes[id].type;
  if (has_elements || !type) return;
  const TypeKind kind = context_.types[type].kind;
  if (kind != TypeKind::kTuple && kind != TypeKind::kList) must_save_.insert(id);
}

// ------------------------------------------------------------------------- storage

namespace {

class RunOnceFinder {
 public:
  RunOnceFinder(const Graph& graph, const Joint& joint, const SaveMarks& marks)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        joint_(joint),
        marks_(marks),
        effects_(graph, body_),
        found_{.reads_overwritten = IdSet<NodeId>(body_.nodes.size()),
               .reads_early = find_reads_before_writes(effects_, joint),
               .done_once = find_uses_of_freed(effects_, joint),
               .runs_once = IdSet<NodeId>(body_.nodes.size())} {}

  RunOnce find() {
    find_done_once();
    find_required();
    find_overwritten();
    find_calls();
    return std::move(found_);
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }

  // What reads storage that is written behind it would read something else in backward. PyTorch
  // cuts graphs without writes in place, where there is no such call.
  void find_overwritten() {
    IdSet<NodeId> written(body_.nodes.size());  // storage
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      for (const StorageAccess& access : effects_.accesses_of(*id))
        if (!access.writes && written.contains(access.storage)) found_.reads_overwritten.insert(*id);
      if (is_wait(node(*id))) continue;
      for (const StorageAccess& access : effects_.accesses_of(*id))
        if (access.writes) written.insert(access.storage);
    }
  }

  // Storage that backward may not find as forward left it, were all of it done again. Backward does
  // again what it takes: a call that reads the storage must take, as that operand, what the newest
  // write in front of it made, and no write of forward may follow what only reads.
  IdSet<NodeId> find_read_by_name() const {
    IdSet<NodeId> found(body_.nodes.size()), read(body_.nodes.size());  // storage
    SideTable<NodeId, NodeId> newest;                                   // write of a storage, so far
    SideTable<NodeId, NodeId> taken;  // by a value: the newest write of its storage that it comes from
    for (NodeId id : body_.order) {
      if (!is_wait(node(id)))
        for (const StorageAccess& access : effects_.accesses_of(id)) {
          for (NodeId input : joint_.inputs[id])
            if (effects_.storage_of(input) == access.storage && taken[input] != newest[access.storage])
              found.insert(access.storage);
          if (!access.writes) read.insert(access.storage);
          if (!access.writes || joint_.backward(id)) continue;
          if (read.contains(access.storage)) found.insert(access.storage);
          newest.at(access.storage) = id;
        }
      taken.at(id) = find_taken(id, newest[effects_.storage_of(id)], taken);
    }
    return found;
  }

  // The newest write of the value's storage, if the value is made by it or of a value that is.
  NodeId find_taken(NodeId id, NodeId newest, const SideTable<NodeId, NodeId>& taken) const {
    if (id == newest) return id;
    const auto is_of_it = [&](NodeId input) {
      const bool is_same = effects_.storage_of(input) == effects_.storage_of(id);
      return input == newest || (is_same && taken[input] == newest);
    };
    return std::ranges::any_of(joint_.inputs[id], is_of_it) ? newest : NodeId();
  }

  // What makes storage is done again with all that forward writes into it, if all are tagged so, or
  // none of them is.
  void find_done_once() {
    const IdSet<NodeId> written = find_written_in_forward(effects_, joint_);
    IdSet<NodeId> kept = find_read_by_name();  // storage
    const auto for_each_part = [&](const auto& visit) {
      for (NodeId id : body_.order) {
        if (written.contains(id)) visit(id, id);
        if (joint_.backward(id) || is_wait(node(id))) continue;
        for (const StorageAccess& access : effects_.accesses_of(id))
          if (access.writes) visit(id, access.storage);
      }
    };
    for_each_part([&](NodeId id, NodeId storage) {
      const bool is_taken = !joint_.users[id].empty();
      if (!is_taken || !marks_.is_recomputed(id) || marks_.must_save(id)) kept.insert(storage);
    });
    for_each_part([&](NodeId id, NodeId storage) {
      if (kept.contains(storage)) found_.done_once.insert(id);
    });
  }

  // What is said to be forward's (`required_half`), with elements and waits of it.
  void find_required() {
    const auto is_free = [&](NodeId id) {
      return required_half(context_, node(id)) != RequiredHalf::kForward;
    };
    for (NodeId id : body_.order)
      if (!holds_with_call(context_, body_, id, is_free)) found_.done_once.insert(id);
  }

  void find_calls() {
    for (NodeId id : body_.order) {
      if (node(id).kind != NodeKind::kCall) continue;
      const bool runs_twice = holds_with_call(context_, body_, id, [&](NodeId at) {
        return can_run_twice(graph_, node(at)) && !found_.done_once.contains(at) &&
               !found_.reads_early.contains(at) && !found_.reads_overwritten.contains(at);
      });
      if (!runs_twice) found_.runs_once.insert(id);
    }
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const SaveMarks& marks_;
  const Effects effects_;
  RunOnce found_;
};

}  // namespace

RunOnce find_run_once(const Graph& graph, const Joint& joint, const SaveMarks& marks) {
  return RunOnceFinder(graph, joint, marks).find();
}

}  // namespace epweave
