#include "partition/halves.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "analysis/returned_values.h"
#include "analysis/shard_lookups.h"
#include "analysis/sharded_dims.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

class HalfWriter {
 public:
  HalfWriter(const Graph& graph, const Joint& joint, const Cut& cut)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        joint_(joint),
        cut_(cut),
        returned_(list_returned(graph)),
        pass_(graph.intern("partition")),
        saved_role_(graph.intern("saved")) {
    for (NodeId id : body_.order)
      if (body_.nodes[id].kind == NodeKind::kPlaceholder) inputs_.push_back(id);
    // Numbers first, then tensors; inputs of the step are no saved values.
    for (const bool wants_numbers : {true, false})
      for (NodeId id : cut.saved)
        if (body_.nodes[id].kind != NodeKind::kPlaceholder &&
            is_number(context_, body_.nodes[id]) == wants_numbers)
          saved_.push_back(id);
    shards_ = describe_shards(graph, saved_);
  }

  Graph write_forward() {
    begin();
    const std::vector<std::uint8_t> needed = find_needed_in_forward();
    for (NodeId id : body_.order)
      if (is_taken(id, needed)) copy(id, ProvenanceRole::kKept);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (!joint_.seed(inputs_[i])) half_.inputs.push_back(role_of_input(i));
    for (std::uint32_t position : joint_.forward_outputs) add_output(position);
    for (NodeId id : saved_) {
      results_.push_back(Arg::node(made_[id]));
      half_.outputs.push_back(
          {.role = saved_role_, .fqn = body_.nodes[id].name, .more = entry(kPlacesKey, shards_.places[id])});
    }
    return finish();
  }

  Graph write_backward() {
    begin();
    add_step_inputs();  // they bind symbols
    for (NodeId id : saved_)
      add_input(
          id,
          {.name = body_.nodes[id].name, .role = saved_role_, .more = entry(kShardsKey, shards_.values[id])});
    if (shards_.tables) set_info(half_, kTablesKey, shards_.tables);
    const StringId tangent = graph_.intern("tangent");
    for (NodeId id : joint_.seeds) add_input(id, {.name = body_.nodes[id].name, .role = tangent});
    for (NodeId id : body_.order)
      if (joint_.backward(id) && !joint_.seed(id) && body_.nodes[id].kind != NodeKind::kOutput) emit(id);
    for (std::uint32_t position : joint_.backward_outputs) {
      if (const NodeId id = joint_.outputs[position]) emit(id);
      add_output(position);
    }
    return finish();
  }

 private:
  // What binds a symbol stands in front of what mentions it.
  std::vector<std::uint8_t> find_needed_in_forward() const {
    std::vector<std::uint8_t> needed(body_.nodes.size());
    for (NodeId id : saved_) needed[id.index()] = 1;
    auto need = joint_.symbol_needs.rbegin();
    for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
      if (joint_.forward(*id)) needed[id->index()] = 1;
      if (needed[id->index()] != 0)
        for (NodeId input : joint_.inputs[*id]) needed[input.index()] = 1;
      for (; need != joint_.symbol_needs.rend() && need->node == *id; ++need)
        if (needed[id->index()] != 0) needed[need->binder.index()] = 1;
    }
    add_waits(needed);
    return needed;
  }

  // Forward waits for what it launches, also where it needs no more than a size of the result.
  void add_waits(std::vector<std::uint8_t>& needed) const {
    std::vector<std::pair<NodeId, NodeId>> waits;  // wait, launch
    IdSet<NodeId> waited(body_.nodes.size());
    for (NodeId id : body_.order) {
      const NodeId launch = find_waited_launch(context_, body_, id);
      if (!launch || needed[launch.index()] == 0) continue;
      if (needed[id.index()] != 0) waited.insert(launch);
      waits.emplace_back(id, launch);
    }
    for (const auto& [wait, launch] : waits)
      if (!joint_.backward(wait) && waited.insert(launch))
        for_each_behind_launch(context_, body_, wait, launch, [&](NodeId at) { needed[at.index()] = 1; });
  }

  bool is_taken(NodeId id, const std::vector<std::uint8_t>& needed) const {
    if (body_.nodes[id].kind == NodeKind::kOutput || joint_.seed(id)) return false;
    return needed[id.index()] != 0 || body_.nodes[id].kind == NodeKind::kPlaceholder;
  }

  void begin() {
    half_ = graph_;
    Body& body = half_.step();
    body.nodes = {};
    body.order.clear();
    half_.inputs.clear();
    half_.outputs.clear();
    half_.origins.clear();
    IdSet<StringId> listed;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (listed.insert(node.name)) half_.origins.push_back({node.name, node.target});
      for (StringId merged : origins(node))
        if (listed.insert(merged)) half_.origins.push_back({merged, node.target});
    }
    made_ = SideTable<NodeId, NodeId>();
    results_.clear();
  }

  // The node's own name, or those that it was merged of.
  NameList origins(const Node& node) const {
    const bool is_merged = !node.provenance.empty() && node.provenance.back().pass == pass_;
    return is_merged ? node.provenance.back().origins : NameList(node.name);
  }

  void copy(NodeId id, ProvenanceRole role) {
    Node made = body_.nodes[id];
    const auto redirect = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      EPWEAVE_CHECK(made_[arg.as_node()].valid());
      return Arg::node(made_[arg.as_node()]);
    };
    map_arguments(context_, made, redirect);
    record(made, {.pass = pass_, .role = role, .origins = origins(made)});
    if (role == ProvenanceRole::kBody) made.backward = true;
    add(id, made);
  }

  void record(Node& made, Provenance record) const {
    if (record.role == ProvenanceRole::kBody) {
      record.parts = 1;
    } else if (record.origins.size() > 1) {
      record.role = ProvenanceRole::kMerged;
    }
    made.provenance = context_.own(std::span<const Provenance>(&record, 1));
  }

  void add(NodeId id, const Node& made) {
    const NodeId added = half_.step().nodes.push_back(made);
    half_.step().order.push_back(added);
    made_.at(id) = added;
  }

  void add_input(NodeId id, const InputRole& role) {
    const Node& value = body_.nodes[id];
    Node made;
    made.name = value.name;
    made.target = value.name;
    made.kind = NodeKind::kPlaceholder;
    made.type = value.type;
    made.module = value.module;
    made.source = value.source;
    if (value.extra != nullptr && !value.extra->bindings.empty())
      made.extra = context_.own(NodeExtra{.bindings = value.extra->bindings});
    const Provenance record{.pass = pass_, .role = ProvenanceRole::kAdded, .origins = NameList(value.name)};
    made.provenance = context_.own(std::span<const Provenance>(&record, 1));
    add(id, made);
    half_.inputs.push_back(role);
  }

  // Of a role, if there is something to say.
  ArgRange entry(std::string_view key, std::optional<Arg> value) const {
    if (!value) return {};
    const Arg entry[] = {Arg::text(graph_.intern(key)), *value};
    return context_.args.add(entry);
  }

  // Inputs of the step that backward, or what it computes again, reads.
  void add_step_inputs() {
    for (std::size_t position = 0; position < inputs_.size(); ++position) {
      const NodeId id = inputs_[position];
      if (joint_.seed(id) || !is_read(id)) continue;
      Node made = body_.nodes[id];
      record(made, {.pass = pass_, .role = ProvenanceRole::kKept, .origins = origins(made)});
      add(id, made);
      half_.inputs.push_back(role_of_input(position));
    }
  }
  InputRole role_of_input(std::size_t position) const {
    if (position < graph_.inputs.size()) return graph_.inputs[position];
    return {.name = body_.nodes[inputs_[position]].name, .role = graph_.intern("user")};
  }
  bool is_read(NodeId id) const {
    return std::ranges::any_of(joint_.users[id],
                               [&](NodeId user) {
                                 return !joint_.seed(user) &&
                                        (joint_.backward(user) || cut_.recomputes(user));
                               }) ||
           std::ranges::find(cut_.saved, id) != cut_.saved.end();
  }

  // The node behind all that it needs, in the order of the joint graph.
  void emit(NodeId id) {
    if (made_[id]) return;
    std::vector<NodeId> needed = {id};
    for (std::size_t i = 0; i < needed.size(); ++i)
      for (NodeId input : joint_.inputs[needed[i]])
        if (!made_[input] && cut_.recomputes(input) && is_listed_.insert(input)) needed.push_back(input);
    std::ranges::sort(needed, {}, [&](NodeId node) { return joint_.positions[node]; });
    for (NodeId node : needed)
      copy(node, cut_.recomputes(node) ? ProvenanceRole::kBody : ProvenanceRole::kKept);
  }

  void add_output(std::uint32_t position) {
    const NodeId id = joint_.outputs[position];
    results_.push_back(id ? Arg::node(made_[id]) : constant_of(returned_[position]));
    if (position < graph_.outputs.size()) {
      half_.outputs.push_back(graph_.outputs[position]);
    } else {
      half_.outputs.push_back({.role = graph_.intern("other")});
    }
  }

  // What the step returns there and no node computes.
  Arg constant_of(Arg result) const {
    bool holds_node = false;
    context_.args.for_each_node(result, [&](NodeId) { holds_node = true; });
    return holds_node ? Arg::none() : result;
  }

  Graph finish() {
    Node output = body_.nodes[body_.order.back()];
    const Arg result = context_.args.add_tree(ArgKind::kTuple, results_);
    output.args = context_.args.add(std::span<const Arg>(&result, 1));
    output.kwargs = {};
    record(output, {.pass = pass_, .role = ProvenanceRole::kKept, .origins = NameList(output.name)});
    half_.step().order.push_back(half_.step().nodes.push_back(output));
    return std::move(half_);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const Joint& joint_;
  const Cut& cut_;
  const std::vector<Arg> returned_;
  StringId pass_, saved_role_;
  std::vector<NodeId> inputs_, saved_;
  SplitShards shards_;
  Graph half_;
  SideTable<NodeId, NodeId> made_;  // of a node of the joint graph: that of the half
  IdSet<NodeId> is_listed_;
  std::vector<Arg> results_;
};

}  // namespace

Halves split_joint(const Graph& graph, const Joint& joint, const Cut& cut) {
  HalfWriter writer(graph, joint, cut);
  Graph forward = writer.write_forward();
  return {std::move(forward), HalfWriter(graph, joint, cut).write_backward()};
}

}  // namespace epweave
