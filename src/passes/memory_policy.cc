#include "passes/memory_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "analysis/layers.h"
#include "analysis/module_names.h"
#include "analysis/module_path.h"
#include "analysis/random_draws.h"
#include "analysis/recompute_tags.h"
#include "analysis/unshard.h"
#include "analysis/users.h"
#include "base/counted.h"
#include "base/nearest_name.h"
#include "ir/walk.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "passes/cpu_offload.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr std::string_view kSeparator = "::";

// Why a call has its tag, for its provenance.
struct TagReasons {
  explicit TagReasons(const Graph& graph)
      : unshard(graph.intern("end of an unshard chain, reshard=never")),
        reshard(graph.intern("unshard chain, reshard=always")),
        parent(graph.intern("as what it takes")),
        number(graph.intern("a number")),
        random(graph.intern("draws random numbers")),
        selected(graph.intern("named by save")),
        listed(graph.intern("its op is saved by policy")),
        alternate(graph.intern("each second product of a layer")),
        rest(graph.intern("policy")),
        boundary(graph.intern("computed again in a higher layer, too")) {}
  StringId unshard, reshard, parent, number, random, selected, listed, alternate, rest, boundary;
};

struct Tag {
  StringId word, reason;
};

class Tagger {
 public:
  Tagger(Graph& graph, const MemoryPolicyOptions& options)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        options_(options),
        tags_(graph),
        why_(graph),
        inputs_(list_inputs(context_, body_)),
        users_(invert(inputs_, body_.order)),
        traits_(context_),
        layers_(graph),
        pass_(graph.intern("memory-policy")),
        forced_(body_.nodes.size()) {}

  void run() {
    find_unshards();
    for (NodeId id : body_.order) tag(id);
    save_boundaries();
    for (NodeId id : body_.order) record(id);
    check_selectors();
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes = {fmt::format("{} {} saved, {} computed again", counted(saved_, "call"),
                                                  is_or_are(saved_), recomputed_)};
    if (boundaries_ != 0)
      notes.push_back(fmt::format("{} {} saved because a higher layer reads {}", counted(boundaries_, "call"),
                                  is_or_are(boundaries_), boundaries_ == 1 ? "it" : "them"));
    return notes;
  }

 private:
  static bool is_forward_call(const Node& node) {
    return node.kind == NodeKind::kCall && !node.is_backward();
  }

  void find_unshards() {
    if (!options_.reshard) return;
    const bool is_never = *options_.reshard == Reshard::kNever;
    for (const UnshardChain& chain : find_unshard_chains(body_, inputs_, users_)) {
      if (is_never) {
        forced_[chain.end] = {tags_.must_save, why_.unshard};
      } else {
        for (NodeId id : list_chain(body_, inputs_, chain))
          forced_[id] = {tags_.prefer_recompute, why_.reshard};
      }
    }
  }

  void tag(NodeId id) {
    Node& node = body_.nodes[id];
    if (!is_forward_call(node)) return;
    tag_of_[id] = is_behind_layers(graph_.text(node.module)) ? Tag{} : decide(id, node);
  }

  Tag decide(NodeId id, const Node& node) {
    if (forced_[id].word) return forced_[id];
    if (takes_parents(node)) {
      const Arg* parent = find_arg(context_, node, 0, "tensor");
      const Tag tag = parent != nullptr && parent->is_node() ? tag_of_[parent->as_node()] : Tag{};
      return tag.word ? Tag{tag.word, why_.parent} : Tag{};
    }
    if (is_integer(node)) return {tags_.must_save, why_.number};
    return apply_policy(node);
  }

  // Elements of tuples and waits for collectives; other waits (for copies to the host) are calls
  // like others.
  bool takes_parents(const Node& node) const {
    if (node.op == nullptr) return false;
    return node.op->family == OpFamily::kElement ||
           (is_wait(node) && graph_.text(node.target).starts_with("_c10d_functional."));
  }

  bool is_integer(const Node& node) const {
    if (!node.type || context_.types[node.type].kind != TypeKind::kScalar) return false;
    return context_.text(context_.types[node.type].py_type) == "SymInt";
  }

  Tag apply_policy(const Node& node) {
    switch (options_.policy) {
      case MemoryPolicy::kNone:
        return {tags_.must_save, why_.rest};
      case MemoryPolicy::kFull:
        if (draws_random(graph_, node)) return {tags_.must_save, why_.random};
        if (is_selected(node)) return {tags_.must_save, why_.selected};
        return {tags_.must_recompute, why_.rest};
      case MemoryPolicy::kEager:
        if (is_second_product(node)) return {tags_.prefer_recompute, why_.alternate};
        break;
      case MemoryPolicy::kDefault:
      case MemoryPolicy::kSacAndOffload:
        break;
    }
    if (traits_.has(node, kIsSavedByDefault)) return {tags_.must_save, why_.listed};
    return {tags_.prefer_recompute, why_.rest};
  }

  // The count begins anew with each layer; what is outside of layers goes on counting.
  bool is_second_product(const Node& node) {
    const std::int64_t layer = layers_.of(node);
    if (layer != kNoLayer && layer != layer_of_count_) {
      layer_of_count_ = layer;
      products_ = 0;
    }
    if (!traits_.has(node, kIsAlternated)) return false;
    return ++products_ % 2 == 0;
  }

  bool is_selected(const Node& node) {
    bool found = false;
    for (std::size_t i = 0; i < options_.save.size(); ++i) {
      const SaveSelector& selector = options_.save[i];
      const bool is_match = node.module && context_.text(node.target) == selector.op &&
                            !match_module(selector.modules, context_.text(node.module)).empty();
      if (is_match) ++matches_[i];
      found = found || is_match;
    }
    return found;
  }

  void save_boundaries() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (!is_forward_call(node) || !tags_.is_recomputed(tag_of_[id].word)) continue;
      const std::int64_t layer = layers_.of(node);
      const bool is_read_above = std::ranges::any_of(users_[id], [&](NodeId user) {
        return !body_.nodes[user].is_backward() && tags_.is_recomputed(tag_of_[user].word) &&
               layers_.of(body_.nodes[user]) > layer;
      });
      if (!is_read_above) continue;
      tag_of_[id] = {tags_.must_save, why_.boundary};
      ++boundaries_;
    }
  }

  void record(NodeId id) {
    Node& node = body_.nodes[id];
    if (!is_forward_call(node)) return;
    const Tag tag = tag_of_[id];
    saved_ += tag.word == tags_.must_save;
    recomputed_ += tags_.is_recomputed(tag.word);
    if (node.recompute == tag.word) return;
    node.recompute = tag.word;
    if (tag.word) record_specialized(context_, node, pass_, tag.reason);
  }

  void check_selectors() const {
    for (std::size_t i = 0; i < options_.save.size(); ++i)
      if (!matches_.contains(i)) refuse_selector(options_.save[i]);
  }

  [[noreturn]] void refuse_selector(const SaveSelector& selector) const {
    std::vector<std::string_view> paths, targets;  // of forward calls; ops of those in the modules
    IdSet<StringId> listed;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (!is_forward_call(node) || !node.module) continue;
      if (listed.insert(node.module)) paths.push_back(graph_.text(node.module));
      if (!match_module(selector.modules, graph_.text(node.module)).empty())
        targets.push_back(graph_.text(node.target));
    }
    const std::string_view near = nearest_name(selector.op, targets);
    throw PassError(
        "memory-policy.save",
        fmt::format("save={}::{} names no forward call: {}", selector.modules, selector.op,
                    targets.empty() ? describe_no_module(selector.modules, paths)
                                    : fmt::format("no call in '{}' has that op", selector.modules)),
        {},
        near.empty() ? "name a module and an op of the graph; `epweave print` shows both"
                     : fmt::format("did you mean {}::{}? `epweave print` shows modules and ops",
                                   selector.modules, near));
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const MemoryPolicyOptions& options_;
  const RecomputeTags tags_;
  const TagReasons why_;
  NodeLists inputs_, users_;
  MemoryTraits traits_;
  Layers layers_;
  StringId pass_;
  IdVector<NodeId, Tag> forced_;
  IdVector<NodeId, Tag> tag_of_{body_.nodes.size()};
  std::map<std::size_t, std::size_t> matches_;  // of selectors
  std::int64_t layer_of_count_ = kNoLayer;
  std::size_t products_ = 0;
  std::size_t saved_ = 0, recomputed_ = 0, boundaries_ = 0;
};

}  // namespace

MemoryPolicy memory_policy_named(std::string_view name) {
  if (name == "eager") return MemoryPolicy::kEager;
  if (name == "full") return MemoryPolicy::kFull;
  if (name == "none") return MemoryPolicy::kNone;
  return name == "sac-and-offload" ? MemoryPolicy::kSacAndOffload : MemoryPolicy::kDefault;
}

SaveSelector parse_save_selector(std::string_view text) {
  const auto fail = [&](std::string_view problem) {
    throw UsageError(fmt::format(
        "option 'save': '{}' {}\n  expected modules and an op, as in save=[layers.*.moe::aten.mm.default]",
        text, problem));
  };
  const std::size_t at = text.find(kSeparator);
  if (at == std::string_view::npos) fail("has no '::'");
  const SaveSelector selector{std::string(text.substr(0, at)),
                              std::string(text.substr(at + kSeparator.size()))};
  if (selector.modules.empty()) fail("names no modules");
  if (selector.op.empty()) fail("names no op");
  const bool is_higher_order = selector.op.starts_with("higher_order.");
  if (!is_higher_order && std::ranges::count(selector.op, '.') < 2)
    fail(fmt::format("names no overload of an op; '{}.default' is one", selector.op));
  return selector;
}

PassResult memory_policy(const Graph& graph, const MemoryPolicyOptions& options) {
  PassResult result{graph};
  Tagger tagger(result.graph, options);
  tagger.run();
  result.notes = tagger.notes();
  if (options.policy == MemoryPolicy::kSacAndOffload)
    result.notes.push_back(tag_for_offload(result.graph, options.offload_gib.value_or(0)));
  return result;
}

}  // namespace epweave
