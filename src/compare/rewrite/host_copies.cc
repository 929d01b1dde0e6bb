#include "compare/rewrite/host_copies.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/users.h"
#include "analysis/write_places.h"
#include "compare/rewrite/conditions.h"
#include "compare/rewrite/verify_aliases.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"

namespace epweave {
namespace {

class CopyRemover {
 public:
  CopyRemover(const Graph& graph, std::vector<Violation>& violations)
      : violations_(violations),
        result_(graph),
        context_(*result_.context),
        body_(result_.step()),
        traits_(context_),
        inputs_(list_inputs(context_, body_)),
        users_(invert(inputs_, body_.order)),
        positions_(find_positions(body_, body_.order)),
        writes_(result_, body_),
        gone_(body_.nodes.size()) {}

  WithoutHostCopies run() {
    find_last_uses();
    for (NodeId id : body_.order)
      if (traits_.has(body_.nodes[id], kSendsToHost)) remove(id);
    for (NodeId id : body_.order) {
      const auto redirect = [&](Arg arg) {
        return arg.is_node() && value_of_[arg.as_node()] ? Arg::node(value_of_[arg.as_node()]) : arg;
      };
      map_arguments(context_, body_, id, redirect);
    }
    std::erase_if(body_.order, [&](NodeId id) { return gone_.contains(id); });
    return {std::move(result_), std::move(value_of_)};
  }

 private:
  void find_last_uses() {
    for (std::uint32_t place = 0; place < body_.order.size(); ++place) {
      const NodeId id = body_.order[place];
      for (NodeId input : inputs_[id]) last_hold_.at(writes_.effects().storage_of(input)) = place;
      visit_touched(id, [&](NodeId input) { last_touch_.at(writes_.effects().storage_of(input)) = place; });
      if (addresses_storage(body_.nodes[id]) && !inputs_[id].empty())
        addressed_.insert(writes_.effects().storage_of(inputs_[id].front()));
      if (!is_wait(body_.nodes[id]) || waits_for_copies(body_.nodes[id])) continue;
      for (const StorageAccess& access : writes_.effects().accesses_of(id))
        if (access.writes) last_completion_.at(access.storage) = place;
    }
  }

  // What a wait comes behind, it holds and does not look at. What it waits for touched its operands
  // until then.
  template <class Visit>
  void visit_touched(NodeId id, const Visit& visit) {
    const Node& node = body_.nodes[id];
    const Arg* behind = is_wait(node) ? find_arg(context_, node, 2, "last_use_of_storage") : nullptr;
    for (NodeId input : inputs_[id])
      if (behind == nullptr || !(*behind == Arg::node(input)) || takes_first(node, input) ||
          find_freed(context_, node) == input)
        visit(input);
    if (!is_wait(node)) return;
    const Arg waited = arg_of(context_, node, 0);
    const bool is_of_copy =
        waited.is_node() && waits_for_copies(node) && completes(node, body_.nodes[waited.as_node()]);
    if (const NodeId launch = is_of_copy ? waited.as_node() : find_waited_launch(context_, body_, id))
      for (NodeId input : inputs_[launch]) visit(input);
  }

  void remove(NodeId sent) {
    gone_.insert(sent);
    const Arg argument = arg_of(context_, body_.nodes[sent], 0);
    if (!argument.is_node()) return fail(sent, "sends no value");
    const NodeId value = argument.as_node(), arrived = find_wait(sent);
    if (value_of_[value]) return fail(sent, "sends what a copy brought back");
    check_unwritten(sent, value);
    if (!arrived) return;
    gone_.insert(arrived);
    value_of_.at(arrived) = value;
    check_freed(arrived);
    check_alive(sent, arrived, value);
    for (NodeId user : users_[arrived]) {
      const Node& node = body_.nodes[user];
      if (traits_.has(node, kLoadsFromHost)) {
        bring_back(user, value);
      } else if (!is_wait(node) || takes_first(node, arrived)) {
        fail(user, "reads the copy on the host, not what is loaded back from it");
      }
    }
  }

  void bring_back(NodeId loaded, NodeId value) {
    gone_.insert(loaded);
    const NodeId back = find_wait(loaded);
    if (!back) return;
    gone_.insert(back);
    value_of_.at(back) = value;
    check_freed(back);
    const NodeId storage = writes_.effects().storage_of(back);
    const bool shows_more = writes_.effects().storage_of(value) != value && addressed_.contains(storage);
    if (!holds(Condition::kLoadsAllAddressed, !shows_more))
      fail(back, fmt::format("is addressed by strides, and holds no more than the view %{}", name_of(value)));
    for (NodeId id : {loaded, back}) {
      if (!holds(Condition::kLoadsAlike, body_.nodes[id].type == body_.nodes[value].type))
        fail(id, fmt::format("is loaded back as something else than %{} is", name_of(value)));
      if (!holds(Condition::kLoadedUnwritten, writes_.of(writes_.effects().storage_of(id)).empty()))
        fail(id, fmt::format("is written, and may not stand for %{}", name_of(value)));
    }
  }

  bool takes_first(const Node& node, NodeId value) const {
    return arg_of(context_, node, 0) == Arg::node(value);
  }

  // The one wait for a copy, which alone reads it.
  NodeId find_wait(NodeId copy) {
    NodeId wait;
    for (NodeId user : users_[copy]) {
      const Node& node = body_.nodes[user];
      if (wait || !completes(node, body_.nodes[copy]) || !takes_first(node, copy)) {
        fail(user, fmt::format("reads the copy %{}, which only one wait may", name_of(copy)));
        return {};
      }
      wait = user;
    }
    if (!wait) fail(copy, "is not waited for");
    return wait;
  }

  void check_unwritten(NodeId sent, NodeId value) {
    const auto last = static_cast<std::uint32_t>(body_.order.size());
    const NodeId storage = writes_.effects().storage_of(value);
    const bool is_written =
        last_completion_[storage] > positions_[sent] || writes_.any(storage, positions_[sent], last);
    if (!holds(Condition::kSentUnwritten, !is_written))
      fail(sent, fmt::format("the storage of %{} is written behind the copy", name_of(value)));
    if (!writes_.of(writes_.effects().storage_of(sent)).empty()) fail(sent, "the copy is written");
  }

  // A wait frees the storage of its second argument. `verify B` sees what is known to take it
  // behind that; what may show it, as a reshape does for some sizes, and lists of views are as
  // good.
  void check_freed(NodeId wait) {
    const NodeId freed = find_freed(context_, body_.nodes[wait]);
    if (!freed) return;
    const NodeId storage = writes_.effects().storage_of(freed);
    if (!holds(Condition::kFreesNoCallers, body_.nodes[storage].kind == NodeKind::kCall))
      fail(wait, fmt::format("frees %{}, which is the caller's", name_of(storage)));
    if (!holds(Condition::kFreedUntouched, last_touch_[storage] <= positions_[wait]))
      fail(wait, fmt::format("frees %{}, which %{} touches behind it", name_of(freed),
                             name_of(body_.order[last_touch_[storage]])));
  }

  // The copy runs beside other calls: what it reads stays until the wait.
  void check_alive(NodeId sent, NodeId arrived, NodeId value) {
    const NodeId storage = writes_.effects().storage_of(value);
    const bool is_kept =
        body_.nodes[storage].kind != NodeKind::kCall || last_hold_[storage] >= positions_[arrived];
    if (!holds(Condition::kKeepsSent, is_kept))
      fail(sent, fmt::format("nothing keeps %{} until %{}, the wait for its copy", name_of(value),
                             name_of(arrived)));
  }

  void fail(NodeId id, std::string message) {
    violations_.push_back({.invariant = "rewrite-host-copy",
                           .message = std::move(message),
                           .site = site_of(result_, body_.nodes[id])});
  }
  std::string_view name_of(NodeId id) const { return context_.text(body_.nodes[id].name); }

  std::vector<Violation>& violations_;
  Graph result_;
  Context& context_;
  Body& body_;
  MemoryTraits traits_;
  NodeLists inputs_, users_;
  IdVector<NodeId, std::uint32_t> positions_;
  WritePlaces writes_;
  // By storage: the last place that looks at a value of it, or waits for a launch that does; the
  // last that takes one; and the last wait for a collective that makes it.
  SideTable<NodeId, std::uint32_t> last_touch_, last_hold_, last_completion_;
  SideTable<NodeId, NodeId> value_of_;  // of a wait: what was sent
  IdSet<NodeId> addressed_;             // storage whose elements are addressed by strides
  IdSet<NodeId> gone_;
};

}  // namespace

bool has_host_copies(const Graph& graph) {
  MemoryTraits traits(*graph.context);
  return std::ranges::any_of(graph.step().order,
                             [&](NodeId id) { return traits.has(graph.step().nodes[id], kSendsToHost); });
}

std::vector<NodeId> find_loaded_results(const Graph& graph) {
  MemoryTraits traits(*graph.context);
  const Body& body = graph.step();
  std::vector<NodeId> loaded;
  for (NodeId result : list_returned_values(graph)) {
    NodeId memory = result;
    while (const NodeId shown = shown_operand(*graph.context, body, memory)) memory = shown;
    loaded.push_back(traits.has(body.nodes[memory], kLoadsFromHost) ? memory : NodeId());
  }
  return loaded;
}

WithoutHostCopies remove_host_copies(const Graph& graph, std::vector<Violation>& violations) {
  return CopyRemover(graph, violations).run();
}

}  // namespace epweave
