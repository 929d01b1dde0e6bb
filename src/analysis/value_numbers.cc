#include "analysis/value_numbers.h"

#include <algorithm>

#include "ir/bind.h"
#include "ir/op.h"
#include "ir/walk.h"

namespace epweave {
namespace {

std::uint64_t word_of(ArgKind kind, std::uint32_t count) {
  return static_cast<std::uint64_t>(count) << 8 | static_cast<std::uint64_t>(kind);
}

}  // namespace

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects)
    : context_(*graph.context), body_(graph.step()), writes_(effects), number_(body_.nodes.size()) {
  for (const auto [id, node] : walk(context_, body_)) {
    number_[id] = number(id, node);
    writes_.count_writes_of(id);
  }
}

NodeId ValueNumbers::number(NodeId id, const Node& node) {
  static const OpInfo* const alias = find_op("aten.alias.default");
  const bool binds = node.extra && !node.extra->bindings.empty();
  const bool is_graph = node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kGraph);
  if (is_graph) return first_of(append_graph(node.attr), id);
  if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || node.op->is_random || binds)
    return id;
  if (node.op == alias)
    if (const Arg self = arg_of(context_, node, 0); self.is_node()) return number_[self.as_node()];
  return first_of(append_call(node), id);
}

NodeId ValueNumbers::first_of(std::size_t begin, NodeId id) {
  const Call call{begin, words_.size(), id};
  std::size_t hash = 0;
  for (std::size_t i = call.begin; i < call.end; ++i) hash = mix_hash(hash, words_[i]);
  const std::uint32_t known = call_ids_.find(hash, [&](std::uint32_t i) { return same(calls_[i], call); });
  if (known != HashIndex::kNone) {
    words_.resize(call.begin);
    return calls_[known].first;
  }
  call_ids_.insert(hash, static_cast<std::uint32_t>(calls_.size()));
  calls_.push_back(call);
  return id;
}

bool ValueNumbers::same(const Call& a, const Call& b) const {
  const auto at = [&](std::size_t i) { return words_.begin() + static_cast<std::ptrdiff_t>(i); };
  return std::equal(at(a.begin), at(a.end), at(b.begin), at(b.end));
}

std::size_t ValueNumbers::append_call(const Node& node) {
  const std::size_t begin = words_.size();
  words_.push_back(node.target.index());
  append(ArgKind::kTuple, node.args);
  append(ArgKind::kDict, node.kwargs);
  return begin;
}

std::size_t ValueNumbers::append_graph(Arg graph) {
  words_.push_back(word_of(ArgKind::kGraph, 0));
  words_.push_back(graph.bits());
  return words_.size() - 2;
}

void ValueNumbers::append(ArgKind kind, ArgRange range) {
  words_.push_back(word_of(kind, range.count));
  for (const Arg arg : context_.args[range]) {
    if (arg.is_tree()) {
      append(arg.kind(), arg.children());
      continue;
    }
    words_.push_back(static_cast<std::uint64_t>(arg.kind()));
    if (arg.is_node()) {
      words_.push_back(number_[arg.as_node()].index());
      words_.push_back(writes_[arg.as_node()]);
    } else {
      words_.push_back(arg.bits());
    }
  }
}

}  // namespace epweave
