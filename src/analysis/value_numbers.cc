#include "analysis/value_numbers.h"

#include <map>
#include <set>
#include <utility>

#include "analysis/looked_up_group.h"
#include "analysis/random_draws.h"
#include "analysis/repeated_waits.h"
#include "ir/call_words.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects)
    : ValueNumbers(graph, effects, {}, KnownValues()) {}

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects, KnownValues known)
    : ValueNumbers(graph, effects, {}, std::move(known)) {}

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects,
                           const IdVector<NodeId, NodeId>& original)
    : ValueNumbers(graph, effects, original, KnownValues()) {}

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects,
                           const IdVector<NodeId, NodeId>& original, KnownValues known)
    : graph_(graph),
      context_(*graph.context),
      body_(graph.step()),
      effects_(effects),
      known_(std::move(known)),
      number_(body_.nodes.size()) {
  RepeatedWaits repeated_waits(context_, body_, effects_);
  for (const auto [id, node] : walk(context_, body_)) {
    const NodeId first = original.contains(id) ? original[id] : NodeId();
    const NodeId waited = repeated_waits.find(id, number_);
    number_[id] = first ? number_[first] : waited ? number_[waited] : number(id, node);
    if (!waited) note_writes_of(id, node);
  }
  keys_ = {};
  writes_ = {};  // not in one statement: a copy of an empty table keeps its memory
  known_ = KnownValues();
}

NodeId ValueNumbers::number(NodeId id, const Node& node) {
  if (const std::uint64_t word = known_.value[id]; word != 0) {
    keys_.push(tagged_word(ArgKind::kTuple, 0) | kMark);
    keys_.push(word);
    return first_of_key(id);
  }
  if (known_.call[id] != 0) {
    push_call(keys_, id, node);
    return first_of_key(id);
  }
  const bool is_graph = node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kGraph);
  if (is_graph) {  // a nested graph, which several attributes may name
    keys_.push(tagged_word(ArgKind::kGraph, node.attr.bits()));
    return first_of_key(id);
  }
  if (!follows_from_arguments(id, node) || node.op->writes) return id;
  if (node.op->family == OpFamily::kIdentity && node.op->is_view)
    if (const Arg self = arg_of(context_, node, 0); self.is_node()) return number_[self.as_node()];
  if (const auto group = looked_up_group(context_, body_, node)) {
    keys_.push(tagged_word(ArgKind::kProcessGroup, group->name.index()));
    keys_.push(tagged_word(ArgKind::kInt, group->stride));
    keys_.push(tagged_word(ArgKind::kInt, group->extent));
  } else {
    push_call(keys_, id, node);
  }
  return first_of_key(id);
}

NodeId ValueNumbers::first_of_key(NodeId id) {
  const auto [key, is_new] = keys_.intern();
  if (is_new) first_.push_back(id);
  return first_[key];
}

void ValueNumbers::push_call(WordTable& keys, NodeId id, const Node& node) const {
  const auto of_node = [&](NodeId input) {
    if (const std::uint64_t word = known_.value[input]; word != 0) {
      keys.push(tagged_word(ArgKind::kTuple, 0) | kMark);
      keys.push(word);
      return;
    }
    keys.push(tagged_word(ArgKind::kNode, number_[input].index()));
    // Of most values, nothing.
    if (const std::uint32_t content = contents_[effects_.storage_of(input)]; content > 0)
      keys.push(tagged_word(ArgKind::kNode, content) | kMark);
  };
  if (const std::uint64_t word = known_.call[id]; word != 0) {
    keys.push(tagged_word(ArgKind::kOperator, 0) | kMark);
    keys.push(word);
  }
  push_call_words(keys, context_.args, node.target.index(), node, of_node);
}

bool ValueNumbers::follows_from_arguments(NodeId id, const Node& node) const {
  if (known_.call[id] != 0) return true;
  const bool binds = node.extra && !node.extra->bindings.empty();
  return node.kind == NodeKind::kCall && node.op != nullptr && !draws_random(graph_, node) && !binds;
}

// Of one call that writes several storages, each has another content; which operands lie in one
// storage says what is written there.
void ValueNumbers::note_writes_of(NodeId id, const Node& node) {
  std::vector<NodeId> written;
  for (const StorageAccess& access : effects_.accesses_of(id))
    if (access.writes) written.push_back(access.storage);
  if (written.empty()) return;
  const bool is_known = follows_from_arguments(id, node);
  std::map<NodeId, std::uint32_t> place;  // of those that operands show, by their order
  if (is_known) {
    push_call(writes_, id, node);
    const std::set<NodeId> storages(written.begin(), written.end());
    for_each_input(context_, node, [&](NodeId input) {
      const NodeId storage = effects_.storage_of(input);
      if (!storages.contains(storage)) return;
      const auto known = place.try_emplace(storage, static_cast<std::uint32_t>(place.size())).first;
      if (storages.size() > 1) writes_.push(tagged_word(ArgKind::kInt, known->second));
    });
  } else {
    writes_.push(tagged_word(ArgKind::kNode, id.index()) | kMark);
  }
  const std::uint32_t call = writes_.intern().number;
  written_by_.at(id) = {static_cast<std::uint32_t>(contents_made_.size()),
                        static_cast<std::uint32_t>(written.size())};
  for (const NodeId storage : written) {
    const auto shown = place.find(storage);
    writes_.push(tagged_word(ArgKind::kTuple, call));
    writes_.push(shown != place.end() ? tagged_word(ArgKind::kInt, shown->second)
                                      : tagged_word(ArgKind::kNode, storage.index()) | kMark);
    if (is_known && shown == place.end()) writes_.push(tagged_word(ArgKind::kNode, id.index()) | kMark);
    const std::uint32_t content = writes_.intern().number + 1;
    contents_.at(storage) = content;
    contents_made_.push_back({storage, content});
  }
}

}  // namespace epweave
