#include "passes/recompute_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/collectives.h"
#include "analysis/done_again.h"
#include "analysis/random_draws.h"
#include "analysis/recompute_tags.h"
#include "analysis/seeds.h"
#include "analysis/write_places.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "partition/joint.h"
#include "passes/record.h"

namespace epweave {
namespace {

// Calls of forward that are tagged to be computed again.
class TaggedCalls {
 public:
  explicit TaggedCalls(const Graph& graph) : body_(graph.step()), tags_(graph) {}

  bool contains(NodeId id) const {
    return body_.nodes[id].kind == NodeKind::kCall && tags_.is_recomputed(body_.nodes[id]);
  }

  bool is_empty() const {
    return std::ranges::none_of(body_.order, [&](NodeId id) { return contains(id); });
  }

 private:
  const Body& body_;
  const RecomputeTags tags_;
};

void refuse_random(const Graph& graph, const TaggedCalls& tagged) {
  const Body& body = graph.step();
  for (NodeId id : body.order)
    if (tagged.contains(id) && draws_random(graph, body.nodes[id]))
      throw PassError(
          "recompute.random",
          "it draws random numbers and is tagged to be computed again: the copy would draw others",
          site_of(graph, body.nodes[id]), "tag it MUST_SAVE; memory-policy{policy=full} does so");
}

std::string describe_unused(const Body& body) {
  const bool has_backward =
      std::ranges::any_of(body.order, [&](NodeId id) { return body.nodes[id].is_backward(); });
  return has_backward ? "unused: backward of the layers reads no value that is tagged to be computed again"
                      : "unused: the graph has no backward call, so nothing is computed again";
}

// Places of the order, from `begin` to in front of `end`.
struct BackwardRegion {
  std::uint32_t begin = 0, end = 0;
};

// Backward of the layers, as far as it reads what is tagged.
class RegionFinder {
 public:
  RegionFinder(const Graph& graph, const StepReads& reads, const TaggedCalls& tagged)
      : graph_(graph), body_(graph.step()), reads_(reads), tagged_(tagged) {}

  std::optional<BackwardRegion> find() const {
    const StringId loss = graph_.intern("loss"), head = graph_.intern("lm_head");
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i < body_.order.size(); ++i)
      if (const StringId module = body_.nodes[body_.order[i]].module; module == loss || module == head)
        place = i + 1;
    std::optional<BackwardRegion> found;
    while (place < body_.order.size()) {
      if (!body_.nodes[body_.order[place]].is_backward()) {
        ++place;
        continue;
      }
      const BackwardRegion region = follow(place);
      place = region.end;
      if (!reads_tagged(region)) continue;
      if (found) refuse_regions(*found, region);
      found = region;
    }
    return found;
  }

 private:
  BackwardRegion follow(std::uint32_t begin) const {
    std::uint32_t end = begin;
    while (end < body_.order.size() && continues_backward(body_.order[end])) ++end;
    return {begin, end};
  }

  // What `chunk` joins for backward alone stands in front of its first reader there, and does not
  // part backward.
  bool continues_backward(NodeId id) const {
    const Node& node = body_.nodes[id];
    const auto is_join = [](const Provenance& record) { return record.role == ProvenanceRole::kMaterialize; };
    return node.is_backward() || (std::ranges::any_of(node.provenance, is_join) &&
                                  std::ranges::all_of(reads_.users[id], [&](NodeId user) {
                                    return body_.nodes[user].is_backward();
                                  }));
  }

  bool reads_tagged(BackwardRegion region) const {
    for (std::uint32_t i = region.begin; i < region.end; ++i)
      if (body_.nodes[body_.order[i]].is_backward() &&
          std::ranges::any_of(reads_.inputs[body_.order[i]],
                              [&](NodeId input) { return tagged_.contains(input); }))
        return true;
    return false;
  }

  [[noreturn]] void refuse_regions(BackwardRegion first, BackwardRegion second) const {
    const auto name = [&](std::uint32_t place) { return graph_.text(body_.nodes[body_.order[place]].name); };
    throw PassError("recompute.regions",
                    fmt::format("backward of the layers is in two places that read tagged values: from {} to "
                                "{}, and from here on; "
                                "{} between them is a forward node",
                                name(first.begin), name(first.end - 1), name(first.end)),
                    site_of(graph_, body_.nodes[body_.order[second.begin]]),
                    "give the modules whose backward comes first no tags, or move what is between the two in "
                    "front of the first");
  }

  const Graph& graph_;
  const Body& body_;
  const StepReads& reads_;
  const TaggedCalls& tagged_;
};

class RecomputeChooser {
 public:
  RecomputeChooser(const Graph& graph, const StepReads& reads, const TaggedCalls& tagged,
                   BackwardRegion region)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        reads_(reads),
        tagged_(tagged),
        region_(region),
        writes_(graph, body_),
        host_traits_(context_) {}

  // A value is copied if it is tagged and backward of the layers needs it; fewer values, until each
  // copy computes what its original did.
  RecomputeChoice choose() {
    IdSet<NodeId> kept(body_.nodes.size()), seeds(body_.nodes.size());
    // The gradient that backward is given is 1 whatever the loss is: a copy would make that again.
    for (NodeId id : find_seeds(graph_, reads_.inputs, reads_.users)) {
      kept.insert(id);
      seeds.insert(id);
    }
    for (NodeId id : body_.order)
      if (tagged_.contains(id) && !can_copy(id)) kept.insert(id);
    for (;;) {
      find_copied(kept);
      bool is_sound = true;
      for (NodeId id : made_.copied) {
        if (computes_the_same(id)) continue;
        kept.insert(id);
        note_kept(id, "its storage, or what it reads, is written between it and its readers in backward");
        is_sound = false;
      }
      if (is_sound && !keep_unwaited(kept)) break;
    }
    for (NodeId id : body_.order) {
      if (seeds.contains(id) || !is_any_wanted(id)) continue;
      if (kept.contains(id)) {
        made_.kept.push_back({id, why_kept_[id]});
      } else if (is_wait(body_.nodes[id]) && tagged_.contains(id) && !made_.is_copied(id)) {
        made_.kept.push_back({id, "what makes it is kept"});
      }
    }
    return std::move(made_);
  }

 private:
  void note_kept(NodeId id, std::string_view why) { why_kept_.at(id) = why; }

  bool waits_for_host(const Node& node) {
    const Arg launch = is_wait(node) ? arg_of(context_, node, 0) : Arg::none();
    if (!launch.is_node()) return false;
    const Node& copied = body_.nodes[launch.as_node()];
    return host_traits_.has(copied, kSendsToHost) || host_traits_.has(copied, kLoadsFromHost);
  }

  bool can_copy(NodeId id) {
    const Node& node = body_.nodes[id];
    std::string_view why;
    if (node.op == nullptr) {
      why = "its op is not known";
    } else if (node.op->is_effectful && !is_wait(node)) {
      why = "it does more than compute its value";
    } else if (waits_for_host(node)) {
      why = "it waits for a copy to the host or from it";
    } else if (node.extra != nullptr && !node.extra->bindings.empty()) {
      why = "it binds a symbol";
    } else if (required_half(context_, node) == RequiredHalf::kForward) {
      why = "it must be in forward (partitioner_tag)";
    }
    if (!why.empty()) note_kept(id, why);
    return why.empty();
  }

  // A launch of which backward reads the size alone is not launched again: nothing would wait for
  // it.
  bool keep_unwaited(IdSet<NodeId>& kept) {
    IdSet<NodeId> waited(body_.nodes.size());
    for (NodeId id : made_.copied)
      if (const NodeId launch = find_waited_launch(context_, body_, id)) waited.insert(launch);
    bool is_any = false;
    for (NodeId id : made_.copied) {
      if (!is_launch(body_.nodes[id]) || waited.contains(id)) continue;
      kept.insert(id);
      note_kept(id, "backward reads nothing of it but its size");
      is_any = true;
    }
    return is_any;
  }

  // Copies stand in front of their targets, those of one target in the order of forward.
  bool is_copied_before(NodeId id, NodeId other) const {
    return std::pair(made_.target[id], reads_.positions[id]) <
           std::pair(made_.target[other], reads_.positions[other]);
  }

  // Whether the copy finds storage as the original did, writes none but a copy's, and its readers
  // find its own so.
  bool computes_the_same(NodeId id) const {
    for (const StorageAccess& access : writes_.effects().accesses_of(id)) {
      if (is_wait(body_.nodes[id]) || writes_.of(access.storage).empty()) continue;
      std::size_t from_copies = 0, from_originals = 0;
      for (NodeId input : reads_.inputs[id])
        if (writes_.effects().storage_of(input) == access.storage)
          ++(made_.is_copied(access.storage) && made_.is_copied(input) ? from_copies : from_originals);
      const bool is_same =
          from_copies == 0
              ? !access.writes && !writes_.any(access.storage, reads_.positions[id], made_.target[id])
              : from_originals == 0 && sees_same_writes(id, writes_.of(access.storage));
      if (!is_same) return false;
    }
    const NodeId storage = writes_.effects().storage_of(id);
    if (!made_.is_copied(storage) || writes_.of(storage).empty()) return true;
    return std::ranges::all_of(reads_.users[id], [&](NodeId user) {
      return !body_.nodes[user].is_backward() || finds_all_writes(user, writes_.of(storage));
    });
  }

  // Of storage that a copy made: writes before the original have copies before the copy, later ones
  // behind it.
  bool sees_same_writes(NodeId id, std::span<const std::uint32_t> places) const {
    return std::ranges::all_of(places, [&](std::uint32_t place) {
      const NodeId writer = body_.order[place];
      if (writer == id) return true;
      if (place < reads_.positions[id]) return made_.is_copied(writer) && is_copied_before(writer, id);
      return !made_.is_copied(writer) || is_copied_before(id, writer);
    });
  }
  bool finds_all_writes(NodeId reader, std::span<const std::uint32_t> places) const {
    return std::ranges::all_of(places, [&](std::uint32_t place) {
      return made_.is_copied(body_.order[place]) &&
             made_.target[body_.order[place]] <= reads_.positions[reader];
    });
  }

  // Whether backward of the layers reads the value, or a call that is copied does.
  bool is_wanted(NodeId id) const {
    return std::ranges::any_of(reads_.users[id],
                               [&](NodeId user) { return made_.is_copied(user) || is_in(user); });
  }
  // The same of a tuple by its elements.
  bool is_any_wanted(NodeId id) const {
    return is_wanted(id) || std::ranges::any_of(reads_.users[id], [&](NodeId user) {
             return has_family(body_.nodes[user], OpFamily::kElement) && is_any_wanted(user);
           });
  }
  bool is_in(NodeId id) const {
    return body_.nodes[id].is_backward() && reads_.positions[id] >= region_.begin &&
           reads_.positions[id] < region_.end;
  }

  bool is_done_again(NodeId id, const IdSet<NodeId>& kept) const {
    return holds_with_call(context_, body_, id,
                           [&](NodeId at) { return tagged_.contains(at) && !kept.contains(at); });
  }

  // The target of a copy is its first reader in backward, or that of a copy that reads it: one walk
  // from the last node to the first.
  void find_copied(const IdSet<NodeId>& kept) {
    made_.target = IdVector<NodeId, std::uint32_t>(body_.nodes.size(), kNotExecuted);
    made_.copied.clear();
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      if (!is_done_again(*id, kept) || !is_wanted(*id)) continue;
      std::uint32_t& target = made_.target[*id];
      for (NodeId user : reads_.users[*id]) {
        const std::uint32_t reader =
            body_.nodes[user].is_backward() ? reads_.positions[user] : made_.target[user];
        target = std::min(target, reader);
      }
      made_.copied.push_back(*id);
    }
    std::ranges::reverse(made_.copied);
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const StepReads& reads_;
  const TaggedCalls& tagged_;
  const BackwardRegion region_;
  const WritePlaces writes_;
  MemoryTraits host_traits_;
  SideTable<NodeId, std::string_view> why_kept_;
  RecomputeChoice made_;
};

// Origin and part: no two copies stand for the same. None: a node that a pass made of others.
using Stand = std::pair<StringId, std::uint32_t>;
std::optional<Stand> find_stand(const Node& node) {
  std::uint32_t part = 0;
  for (const Provenance& record : node.provenance) {
    if (!makes_nodes(record.role) || is_copy_record(record)) continue;
    if (record.role != ProvenanceRole::kBody) return std::nullopt;
    part = record.part;
  }
  const NameList origins = origins_of(node);
  if (origins.empty()) return std::nullopt;
  return Stand{origins.front(), part};
}

void refuse_repeated(const Graph& graph, const std::vector<NodeId>& copied) {
  const Body& body = graph.step();
  const StringId pass = graph.intern("recompute");
  std::map<Stand, NodeId> done;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const Provenance* record = node.is_backward() ? find_copy_record(node) : nullptr;
    if (node.kind != NodeKind::kCall || record == nullptr || record->pass != pass) continue;
    if (const auto stand = find_stand(node)) done.emplace(*stand, id);
  }
  for (NodeId id : copied) {
    const Node& node = body.nodes[id];
    const auto stand = find_stand(node);
    const auto found = stand ? done.find(*stand) : done.end();
    if (found == done.end()) continue;
    throw PassError(
        "recompute.repeated",
        fmt::format("backward computes it again already ({}), and is to do so for other calls too",
                    graph.text(body.nodes[found->second].name)),
        site_of(graph, node),
        "tag all that is computed again by one memory-policy, in front of the first recompute");
  }
}

}  // namespace

RecomputeChoice choose_recomputed(const Graph& graph, const StepReads& reads) {
  const TaggedCalls tagged(graph);
  if (tagged.is_empty())
    return {.unused = "unused: no forward call is tagged to be computed again: run memory-policy first"};
  refuse_random(graph, tagged);
  const std::optional<BackwardRegion> region = RegionFinder(graph, reads, tagged).find();
  if (!region) return {.unused = describe_unused(graph.step())};
  RecomputeChoice choice = RecomputeChooser(graph, reads, tagged, *region).choose();
  refuse_repeated(graph, choice.copied);
  return choice;
}

}  // namespace epweave
