#include "passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "analysis/collectives.h"
#include "analysis/recompute_tags.h"
#include "analysis/seeds.h"
#include "analysis/users.h"
#include "analysis/write_places.h"
#include "base/counted.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "ops/random_draws.h"
#include "partition/cut.h"
#include "passes/hoist_elements.h"
#include "passes/node_names.h"
#include "passes/record.h"

namespace epweave {
namespace {

// What is loaded back from the host for backward (passes/cpu_offload.h): the wait for it, by the
// value.
SideTable<NodeId, NodeId> find_reloads(const Context& context, const Body& body, const NodeLists& users) {
  MemoryTraits traits(context);
  SideTable<NodeId, NodeId> reloads;
  const auto find_user = [&](NodeId id, const auto& is_it) {
    for (NodeId user : users[id])
      if (is_it(body.nodes[user])) return user;
    return NodeId();
  };
  const auto is_reload = [&](const Node& node) { return traits.has(node, kLoadsFromHost); };
  for (NodeId id : body.order) {
    if (!traits.has(body.nodes[id], kSendsToHost)) continue;
    const Arg value = arg_of(context, body.nodes[id], 0);
    const NodeId sent = find_user(id, is_wait);
    const NodeId load = sent ? find_user(sent, is_reload) : NodeId();
    const NodeId wait = load ? find_user(load, is_wait) : NodeId();
    if (wait && value.is_node()) reloads.at(value.as_node()) = wait;
  }
  return reloads;
}

class Recomputer {
 public:
  explicit Recomputer(Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        tags_(graph),
        host_traits_(context_),
        pass_(graph.intern("recompute")) {}

  std::vector<std::string> run() {
    if (std::ranges::none_of(body_.order, [&](NodeId id) { return is_tagged(id); }))
      return {"unused: no forward call is tagged to be computed again: run memory-policy first"};
    refuse_random();
    inputs_ = list_inputs(context_, body_);
    users_ = invert(inputs_, body_.order);
    positions_ = find_positions(body_, body_.order);
    const std::optional<Region> region = find_region();
    if (!region) return {describe_unused()};
    choose(*region);
    if (copied_.empty()) return notes();
    refuse_repeated();
    insert();
    return notes();
  }

 private:
  struct Region {
    std::uint32_t begin = 0, end = 0;
  };

  std::string describe_unused() const {
    const bool has_backward =
        std::ranges::any_of(body_.order, [&](NodeId id) { return body_.nodes[id].is_backward(); });
    return has_backward ? "unused: backward of the layers reads no value that is tagged to be computed again"
                        : "unused: the graph has no backward call, so nothing is computed again";
  }

  struct Insertion {
    std::uint32_t place;  // in front of the node that was there
    NodeId node;
  };

  bool is_tagged(NodeId id) const {
    return body_.nodes[id].kind == NodeKind::kCall && tags_.is_recomputed(body_.nodes[id]);
  }

  void refuse_random() const {
    for (NodeId id : body_.order)
      if (const Node& node = body_.nodes[id]; is_tagged(id) && draws_random(context_, node))
        throw PassError(
            "recompute.random",
            "it draws random numbers and is tagged to be computed again: the copy would draw others",
            site_of(graph_, node), "tag it MUST_SAVE; memory-policy{policy=full} does so");
  }

  // ------------------------------------------------------------------------- which calls

  std::optional<Region> find_region() const {
    const StringId loss = graph_.intern("loss"), head = graph_.intern("lm_head");
    std::uint32_t place = 0;
    for (std::uint32_t i = 0; i < body_.order.size(); ++i)
      if (const StringId module = body_.nodes[body_.order[i]].module; module == loss || module == head)
        place = i + 1;
    std::optional<Region> found;
    while (place < body_.order.size()) {
      if (!body_.nodes[body_.order[place]].is_backward()) {
        ++place;
        continue;
      }
      const Region region = follow(place);
      place = region.end;
      if (!reads_tagged(region)) continue;
      if (found) refuse_regions(*found, region);
      found = region;
    }
    return found;
  }

  Region follow(std::uint32_t begin) const {
    std::uint32_t end = begin;
    while (end < body_.order.size() && continues_backward(body_.order[end])) ++end;
    return {begin, end};
  }

  // What `chunk` joins for backward alone stands in front of its first reader there, and does not
  // part backward.
  bool continues_backward(NodeId id) const {
    const Node& node = body_.nodes[id];
    const auto is_join = [](const Provenance& record) { return record.role == ProvenanceRole::kMaterialize; };
    return node.is_backward() ||
           (std::ranges::any_of(node.provenance, is_join) &&
            std::ranges::all_of(users_[id], [&](NodeId user) { return body_.nodes[user].is_backward(); }));
  }

  bool reads_tagged(Region region) const {
    for (std::uint32_t i = region.begin; i < region.end; ++i)
      if (body_.nodes[body_.order[i]].is_backward() &&
          std::ranges::any_of(inputs_[body_.order[i]], [&](NodeId input) { return is_tagged(input); }))
        return true;
    return false;
  }

  [[noreturn]] void refuse_regions(Region first, Region second) const {
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

  // A value is copied if it is tagged and backward of the layers needs it; fewer values, until each
  // copy computes what its original did.
  void choose(Region region) {
    const WritePlaces writes(context_, body_);
    IdSet<NodeId> kept(body_.nodes.size()), seeds(body_.nodes.size());
    // The gradient that backward is given is 1 whatever the loss is: a copy would make that again.
    for (NodeId id : find_seeds(graph_, inputs_, users_)) {
      kept.insert(id);
      seeds.insert(id);
    }
    for (NodeId id : body_.order)
      if (is_tagged(id) && !can_copy(id)) kept.insert(id);
    for (;;) {
      find_copied(region, kept);
      bool is_sound = true;
      for (NodeId id : copied_) {
        if (computes_the_same(id, writes)) continue;
        kept.insert(id);
        note_kept(id, "its storage, or what it reads, is written between it and its readers in backward");
        is_sound = false;
      }
      if (is_sound && !keep_unwaited(kept)) break;
    }
    for (NodeId id : body_.order)
      if (kept.contains(id) && !seeds.contains(id) && is_any_wanted(id, region)) kept_.push_back(id);
  }

  // A launch of which backward reads the size alone is not launched again: nothing would wait for
  // it.
  bool keep_unwaited(IdSet<NodeId>& kept) {
    IdSet<NodeId> waited(body_.nodes.size());
    for (NodeId id : copied_)
      if (const NodeId launch = find_waited_launch(context_, body_, id)) waited.insert(launch);
    bool is_any = false;
    for (NodeId id : copied_) {
      if (!is_launch(body_.nodes[id]) || waited.contains(id)) continue;
      kept.insert(id);
      note_kept(id, "backward reads nothing of it but its size");
      is_any = true;
    }
    return is_any;
  }

  // Origin and part: no two copies stand for the same. None: a node that a pass made of others.
  using Stand = std::pair<StringId, std::uint32_t>;
  std::optional<Stand> find_stand(const Node& node) const {
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

  void refuse_repeated() const {
    std::map<Stand, NodeId> done;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      const Provenance* record = node.is_backward() ? find_copy_record(node) : nullptr;
      if (node.kind != NodeKind::kCall || record == nullptr || record->pass != pass_) continue;
      if (const auto stand = find_stand(node)) done.emplace(*stand, id);
    }
    for (NodeId id : copied_) {
      const Node& node = body_.nodes[id];
      const auto stand = find_stand(node);
      const auto found = stand ? done.find(*stand) : done.end();
      if (found == done.end()) continue;
      throw PassError(
          "recompute.repeated",
          fmt::format("backward computes it again already ({}), and is to do so for other calls too",
                      graph_.text(body_.nodes[found->second].name)),
          site_of(graph_, node),
          "tag all that is computed again by one memory-policy, in front of the first recompute");
    }
  }

  void note_kept(NodeId id, std::string_view why) { why_kept_.at(id) = graph_.intern(why); }

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

  bool is_copied(NodeId id) const { return target_[id] != kNotExecuted; }

  // Copies stand in front of their targets, those of one target in the order of forward.
  bool is_copied_before(NodeId id, NodeId other) const {
    return std::pair(target_[id], positions_[id]) < std::pair(target_[other], positions_[other]);
  }

  // Whether the copy finds storage as the original did, writes none but a copy's, and its readers
  // find its own so.
  bool computes_the_same(NodeId id, const WritePlaces& writes) const {
    for (const StorageAccess& access : writes.effects().accesses_of(id)) {
      if (is_wait(body_.nodes[id]) || writes.of(access.storage).empty()) continue;
      std::size_t from_copies = 0, from_originals = 0;
      for (NodeId input : inputs_[id])
        if (writes.effects().storage_of(input) == access.storage)
          ++(is_copied(access.storage) && is_copied(input) ? from_copies : from_originals);
      const bool is_same = from_copies == 0
                               ? !access.writes && !writes.any(access.storage, positions_[id], target_[id])
                               : from_originals == 0 && sees_same_writes(id, writes.of(access.storage));
      if (!is_same) return false;
    }
    const NodeId storage = writes.effects().storage_of(id);
    if (!is_copied(storage) || writes.of(storage).empty()) return true;
    return std::ranges::all_of(users_[id], [&](NodeId user) {
      return !body_.nodes[user].is_backward() || finds_all_writes(user, writes.of(storage));
    });
  }

  // Of storage that a copy made: writes before the original have copies before the copy, later ones
  // behind it.
  bool sees_same_writes(NodeId id, std::span<const std::uint32_t> places) const {
    return std::ranges::all_of(places, [&](std::uint32_t place) {
      const NodeId writer = body_.order[place];
      if (writer == id) return true;
      if (place < positions_[id]) return is_copied(writer) && is_copied_before(writer, id);
      return !is_copied(writer) || is_copied_before(id, writer);
    });
  }
  bool finds_all_writes(NodeId reader, std::span<const std::uint32_t> places) const {
    return std::ranges::all_of(places, [&](std::uint32_t place) {
      return is_copied(body_.order[place]) && target_[body_.order[place]] <= positions_[reader];
    });
  }

  // Whether backward of the layers reads the value, or a call that is copied does.
  bool is_wanted(NodeId id, Region region) const {
    return std::ranges::any_of(
        users_[id], [&](NodeId user) { return target_[user] != kNotExecuted || is_in(user, region); });
  }
  // The same of a tuple by its elements.
  bool is_any_wanted(NodeId id, Region region) const {
    return is_wanted(id, region) || std::ranges::any_of(users_[id], [&](NodeId user) {
             return has_family(body_.nodes[user], OpFamily::kElement) && is_any_wanted(user, region);
           });
  }
  bool is_in(NodeId id, Region region) const {
    return body_.nodes[id].is_backward() && positions_[id] >= region.begin && positions_[id] < region.end;
  }

  // The target of a copy is its first reader in backward, or that of a copy that reads it: one walk
  // from the last node to the first. Elements of a tuple that is not copied are not.
  void find_copied(Region region, const IdSet<NodeId>& kept) {
    target_ = IdVector<NodeId, std::uint32_t>(body_.nodes.size(), kNotExecuted);
    copied_.clear();
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      const NodeId call = call_of(graph_, *id);
      if (!is_tagged(*id) || !is_tagged(call) || kept.contains(call) || kept.contains(*id) ||
          !is_wanted(*id, region))
        continue;
      std::uint32_t& target = target_[*id];
      for (NodeId user : users_[*id]) {
        const std::uint32_t reader = body_.nodes[user].is_backward() ? positions_[user] : target_[user];
        target = std::min(target, reader);
      }
      copied_.push_back(*id);
    }
    std::ranges::reverse(copied_);
  }

  // ------------------------------------------------------------------------- copies

  void insert() {
    reloads_ = find_reloads(context_, body_, users_);
    reload_place_ = SideTable<NodeId, std::uint32_t>(kNotExecuted);
    NodeNames names(graph_, body_);
    for (NodeId id : copied_) copy(id, names);
    redirect_readers();
    IdSet<NodeId> gone = find_unread();
    order_nodes(gone);
    hoist_elements(context_, body_);
  }

  void copy(NodeId id, NodeNames& names) {
    const std::uint32_t place = target_[id];
    for (NodeId input : inputs_[id])
      if (reloads_[input]) bring_forward(reloads_[input], place);
    Node made = body_.nodes[id];
    record_copy(made);
    std::vector<std::pair<NodeId, NodeId>> functions = copy_functions(id, place, names);
    const auto redirect = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      for (const auto& [function, own] : functions)
        if (function == arg.as_node()) return Arg::node(own);
      return redirect_value(arg, place);
    };
    map_arguments(context_, made, redirect);
    made.name = names.make(fmt::format("{}_recomputed", graph_.text(made.name)));
    made.backward = true;
    copy_of_.at(id) = add(std::move(made), place);
  }

  // Functions of FlexAttention calls: each call names its own, so that it can be compiled alone.
  std::vector<std::pair<NodeId, NodeId>> copy_functions(NodeId id, std::uint32_t place, NodeNames& names) {
    std::vector<std::pair<NodeId, NodeId>> functions;
    for (NodeId input : inputs_[id]) {
      if (body_.nodes[input].kind != NodeKind::kGetAttr || !body_.nodes[input].attr.is(ArgKind::kGraph))
        continue;
      Node made = body_.nodes[input];
      record_copy(made);
      made.name = names.make_like(graph_.text(made.target));
      functions.emplace_back(input, add(std::move(made), place));
    }
    return functions;
  }

  NodeId add(Node&& made, std::uint32_t place) {
    const NodeId id = body_.nodes.push_back(made);
    insertions_.push_back({place, id});
    return id;
  }

  // While the copy has its origin's name. It is once more what its origin is: all of a node, a
  // part, or what joins parts.
  void record_copy(Node& made) const {
    append_provenance(context_, made,
                      {.pass = pass_,
                       .role = ProvenanceRole::kBody,
                       .origins = origins_of(made),
                       .parts = 1,
                       .backward = true});
  }

  // What a node at the place reads for the value.
  Arg redirect_value(Arg arg, std::uint32_t place) const {
    if (!arg.is_node()) return arg;
    if (const NodeId copied = copy_of_[arg.as_node()]) return Arg::node(copied);
    const NodeId loaded = reloads_[arg.as_node()];
    return loaded && !is_behind(loaded, place) ? Arg::node(loaded) : arg;
  }

  // Puts the wait, and what it needs in backward, in front of the place, if they are behind it. Not
  // where forward sends the value behind the place: there the value itself is read, which the wait
  // for the copy to the host frees.
  void bring_forward(NodeId wait, std::uint32_t place) {
    if (!is_behind(wait, place)) return;
    std::vector<NodeId> chain = {wait};
    for (std::size_t i = 0; i < chain.size(); ++i)
      for (NodeId input : inputs_[chain[i]]) {
        if (!body_.nodes[input].is_backward() && positions_[input] >= place) return;
        if (is_behind(input, place) && std::ranges::find(chain, input) == chain.end()) chain.push_back(input);
      }
    std::ranges::sort(chain, {}, [&](NodeId id) { return positions_[id]; });
    for (NodeId id : chain) {
      reload_place_.at(id) = place;
      insertions_.push_back({place, id});
    }
  }
  bool is_behind(NodeId id, std::uint32_t place) const {
    return body_.nodes[id].is_backward() && std::min(positions_[id], reload_place_[id]) > place;
  }

  void redirect_readers() {
    IdSet<NodeId> done(body_.nodes.size());
    for (NodeId id : copied_)
      for (NodeId user : users_[id]) {
        Node& node = body_.nodes[user];
        if (!node.is_backward() || !done.insert(user)) continue;
        const auto redirect = [&](Arg arg) { return redirect_value(arg, positions_[user]); };
        map_arguments(context_, node, redirect);
      }
  }

  // Originals that only backward and other such originals read.
  IdSet<NodeId> find_unread() const {
    IdSet<NodeId> gone(body_.nodes.size());
    for (auto id = copied_.rbegin(); id != copied_.rend(); ++id)
      if (std::ranges::all_of(users_[*id], [&](NodeId user) {
            return body_.nodes[user].is_backward() || gone.contains(user);
          }))
        gone.insert(*id);
    keep_waits(gone);
    return gone;
  }

  // A launch stays where forward reads it otherwise than through its wait, as its size: then what
  // waits for it stays, too. Not so if the copy of the wait is for the same launch.
  void keep_waits(IdSet<NodeId>& gone) const {
    for (NodeId id : copied_) {
      const NodeId launch = launch_of_wait(id);
      if (launch && gone.contains(id) && is_copied(launch) && !gone.contains(launch)) gone.erase(id);
    }
  }
  NodeId launch_of_wait(NodeId id) const {
    const Node& node = body_.nodes[id];
    if (!is_wait(node)) return {};
    const Arg launch = arg_of(context_, node, 0);
    return launch.is_node() ? launch.as_node() : NodeId();
  }

  void order_nodes(const IdSet<NodeId>& gone) {
    std::ranges::stable_sort(insertions_, {}, &Insertion::place);
    std::vector<NodeId> order;
    order.reserve(body_.order.size() + insertions_.size());
    auto next = insertions_.begin();
    for (std::uint32_t place = 0; place < body_.order.size(); ++place) {
      for (; next != insertions_.end() && next->place == place; ++next)
        if (reload_place_[next->node] == kNotExecuted || reload_place_[next->node] == place)
          order.push_back(next->node);
      const NodeId id = body_.order[place];
      if (!gone.contains(id) && reload_place_[id] == kNotExecuted) order.push_back(id);
    }
    body_.order = std::move(order);
    removed_ = static_cast<std::size_t>(
        std::ranges::count_if(copied_, [&](NodeId id) { return gone.contains(id); }));
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes = {fmt::format("{} {} computed again in backward, {} of them only there",
                                                  counted(copied_.size(), "call"), is_or_are(copied_.size()),
                                                  removed_)};
    for (NodeId id : kept_)
      notes.push_back(fmt::format("{} is tagged to be computed again and kept: {}",
                                  graph_.text(body_.nodes[id].name), graph_.text(why_kept_[id])));
    return notes;
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const RecomputeTags tags_;
  MemoryTraits host_traits_;
  StringId pass_;
  NodeLists inputs_, users_;
  IdVector<NodeId, std::uint32_t> positions_;
  std::vector<NodeId> copied_;              // in the order of forward
  IdVector<NodeId, std::uint32_t> target_;  // of what is copied: the place of the copy's first reader
  SideTable<NodeId, StringId> why_kept_;
  std::vector<NodeId> kept_;  // tagged and needed, but not copied
  SideTable<NodeId, NodeId> copy_of_;
  SideTable<NodeId, NodeId> reloads_;
  SideTable<NodeId, std::uint32_t> reload_place_{kNotExecuted};  // where a reload went
  std::vector<Insertion> insertions_;
  std::size_t removed_ = 0;
};

}  // namespace

PassResult recompute(const Graph& graph) {
  PassResult result{graph};
  result.notes = Recomputer(result.graph).run();
  return result;
}

}  // namespace epweave
