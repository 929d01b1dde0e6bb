#include "extract/storage_conflict.h"

#include <fmt/format.h>

#include "analysis/aliases.h"

namespace epweave {
namespace {

class StorageWalk {
 public:
  StorageWalk(const Graph& graph, const Effects& effects, const IdSet<NodeId>& inside)
      : graph_(graph), context_(*graph.context), body_(graph.step()), effects_(effects), inside_(inside) {}

  std::optional<StorageConflict> run() {
    for (std::uint32_t place = 0; place < body_.order.size() && !found_; ++place) {
      const NodeId id = body_.order[place];
      if (inside_.contains(id)) {
        visit_inside(id, place);
      } else {
        visit_outside(id, place);
      }
    }
    return found_;
  }

 private:
  // Of storage, by its first value.
  struct Uses {
    NodeId outside_write, outside_use;  // the last ones
    std::uint32_t written_at = 0;       // place of outside_write
    NodeId inside_write;                // the last one
    NodeId first_held, second_held;     // values that stand for it alone: inputs, and what is made inside
  };

  // The value that stands for this operand's storage when the nodes are executed alone.
  NodeId held_by(NodeId value) const {
    const NodeId held = held_[value];
    return held ? held : value;
  }

  void visit_inside(NodeId id, std::uint32_t place) {
    const NodeId shown = shown_operand(context_, body_, id);
    held_.at(id) = shown ? held_by(shown) : id;
    if (!shown && is_held_.insert(id)) held_since_.at(id) = place;
    for (const StorageAccess& access : effects_.accesses_of(id)) {
      Uses& uses = uses_.at(access.storage);
      for_each_input(context_, body_.nodes[id], [&](NodeId operand) {
        if (effects_.storage_of(operand) == access.storage) use(id, held_by(operand), uses, place);
      });
      if (!access.writes) continue;
      if (uses.outside_use && inside_.contains(held_by(access.storage)))
        fail(id, uses.outside_use,
             fmt::format("%{} overwrites a value that %{} reads before", name(id), name(uses.outside_use)));
      uses.inside_write = id;
    }
    for (const StorageAccess& access : effects_.accesses_of(id)) check_held(id, uses_[access.storage]);
  }

  // What is made inside holds what was written when it was made; an input, what is there at its
  // first use.
  void use(NodeId id, NodeId held, Uses& uses, std::uint32_t place) {
    if (!uses.first_held) uses.first_held = held;
    if (held != uses.first_held && !uses.second_held) uses.second_held = held;
    if (!is_held_.insert(held)) {
      if (uses.outside_write && uses.written_at > held_since_[held])
        fail(id, uses.outside_write,
             fmt::format("%{} uses storage that %{} writes after an earlier use", name(id),
                         name(uses.outside_write)));
    } else {
      held_since_.at(held) = place;
    }
  }

  void check_held(NodeId id, const Uses& uses) {
    if (!uses.inside_write || !uses.second_held) return;
    fail(uses.inside_write, inside_.contains(uses.first_held) ? uses.second_held : uses.first_held,
         fmt::format("%{} writes storage that %{} and %{}, used by %{}, share", name(uses.inside_write),
                     name(uses.first_held), name(uses.second_held), name(id)));
  }

  void visit_outside(NodeId id, std::uint32_t place) {
    for (const StorageAccess& access : effects_.accesses_of(id)) {
      Uses& uses = uses_.at(access.storage);
      uses.outside_use = id;
      if (!access.writes) continue;
      uses.outside_write = id;
      uses.written_at = place;
    }
  }

  void fail(NodeId id, NodeId other, std::string problem) {
    if (!found_) found_ = StorageConflict{id, other, std::move(problem)};
  }
  std::string_view name(NodeId id) const { return graph_.text(body_.nodes[id].name); }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  const IdSet<NodeId>& inside_;
  SideTable<NodeId, Uses> uses_;
  SideTable<NodeId, NodeId> held_;
  SideTable<NodeId, std::uint32_t> held_since_{0};  // a place in the order
  IdSet<NodeId> is_held_;
  std::optional<StorageConflict> found_;
};

}  // namespace

std::optional<StorageConflict> find_storage_conflict(const Graph& graph, const Effects& effects,
                                                     const IdSet<NodeId>& inside) {
  return StorageWalk(graph, effects, inside).run();
}

}  // namespace epweave
