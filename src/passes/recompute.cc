#include "passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "base/counted.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "passes/hoist_elements.h"
#include "passes/node_names.h"
#include "passes/recompute_choice.h"
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

class RecomputeWriter {
 public:
  RecomputeWriter(Graph& graph, const StepReads& reads, const RecomputeChoice& choice)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        reads_(reads),
        choice_(choice),
        pass_(graph.intern("recompute")),
        reloads_(find_reloads(context_, body_, reads.users)) {}

  // How many originals are gone.
  std::size_t write() {
    NodeNames names(graph_, body_);
    for (NodeId id : choice_.copied) copy(id, names);
    redirect_readers();
    const IdSet<NodeId> gone = find_unread();
    order_nodes(gone);
    hoist_elements(context_, body_);
    return static_cast<std::size_t>(
        std::ranges::count_if(choice_.copied, [&](NodeId id) { return gone.contains(id); }));
  }

 private:
  struct Insertion {
    std::uint32_t place;  // in front of the node that was there
    NodeId node;
  };

  void copy(NodeId id, NodeNames& names) {
    const std::uint32_t place = choice_.target[id];
    for (NodeId input : reads_.inputs[id])
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
    for (NodeId input : reads_.inputs[id]) {
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
      for (NodeId input : reads_.inputs[chain[i]]) {
        if (!body_.nodes[input].is_backward() && reads_.positions[input] >= place) return;
        if (is_behind(input, place) && std::ranges::find(chain, input) == chain.end()) chain.push_back(input);
      }
    std::ranges::sort(chain, {}, [&](NodeId id) { return reads_.positions[id]; });
    for (NodeId id : chain) {
      reload_place_.at(id) = place;
      insertions_.push_back({place, id});
    }
  }
  bool is_behind(NodeId id, std::uint32_t place) const {
    return body_.nodes[id].is_backward() && std::min(reads_.positions[id], reload_place_[id]) > place;
  }

  void redirect_readers() {
    IdSet<NodeId> done(body_.nodes.size());
    for (NodeId id : choice_.copied)
      for (NodeId user : reads_.users[id]) {
        Node& node = body_.nodes[user];
        if (!node.is_backward() || !done.insert(user)) continue;
        const auto redirect = [&](Arg arg) { return redirect_value(arg, reads_.positions[user]); };
        map_arguments(context_, node, redirect);
      }
  }

  // Originals that only backward and other such originals read.
  IdSet<NodeId> find_unread() const {
    IdSet<NodeId> gone(body_.nodes.size());
    for (auto id = choice_.copied.rbegin(); id != choice_.copied.rend(); ++id)
      if (std::ranges::all_of(reads_.users[*id], [&](NodeId user) {
            return body_.nodes[user].is_backward() || gone.contains(user);
          }))
        gone.insert(*id);
    keep_waits(gone);
    return gone;
  }

  // A launch stays where forward reads it otherwise than through its wait, as its size: then what
  // waits for it stays, too. Not so if the copy of the wait is for the same launch.
  void keep_waits(IdSet<NodeId>& gone) const {
    for (NodeId id : choice_.copied) {
      const NodeId launch = launch_of_wait(id);
      if (launch && gone.contains(id) && choice_.is_copied(launch) && !gone.contains(launch)) gone.erase(id);
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
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const StepReads& reads_;
  const RecomputeChoice& choice_;
  const StringId pass_;
  const SideTable<NodeId, NodeId> reloads_;
  SideTable<NodeId, NodeId> copy_of_;
  SideTable<NodeId, std::uint32_t> reload_place_{kNotExecuted};  // where a reload went
  std::vector<Insertion> insertions_;
};

// `removed`: how many of what is copied are gone from forward.
std::vector<std::string> describe_choice(const Graph& graph, const RecomputeChoice& choice,
                                         std::size_t removed) {
  if (!choice.unused.empty()) return {choice.unused};
  std::vector<std::string> notes = {fmt::format("{} {} computed again in backward, {} of them only there",
                                                counted(choice.copied.size(), "call"),
                                                is_or_are(choice.copied.size()), removed)};
  for (const auto& [id, why] : choice.kept)
    notes.push_back(fmt::format("{} is tagged to be computed again and kept: {}",
                                graph.text(graph.step().nodes[id].name), why));
  return notes;
}

}  // namespace

PassResult recompute(const Graph& graph) {
  PassResult result{graph};
  const StepReads reads(result.graph);
  const RecomputeChoice choice = choose_recomputed(result.graph, reads);
  const std::size_t removed =
      choice.copied.empty() ? 0 : RecomputeWriter(result.graph, reads, choice).write();
  result.notes = describe_choice(result.graph, choice, removed);
  return result;
}

}  // namespace epweave
