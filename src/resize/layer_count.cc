#include "resize/layer_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/layers.h"
#include "analysis/type_symbols.h"
#include "analysis/world.h"
#include "passes/dce.h"
#include "passes/pass.h"
#include "passes/record.h"
#include "resize/layer_cut.h"
#include "resize/remedies.h"

namespace epweave {
namespace {

class LayerRemover {
 public:
  LayerRemover(const Graph& graph, std::int64_t kept, const LayerCut& cut)
      : in_(graph), context_(*graph.context), kept_(kept), cut_(cut), layers_(graph), out_(graph) {
    pass_ = graph.intern("resize");
    reason_ = graph.intern(fmt::format("layers = {}", kept));
  }

  Graph run() {
    mark_inputs();
    std::vector<NodeId> order;
    for (NodeId id : in_.step().order) {
      Node& node = out_.step().nodes[id];
      if (node.kind == NodeKind::kOutput) drop_outputs(node);
      if (gone_input_.contains(id) || (node.kind != NodeKind::kOutput && cut_.goes.contains(id))) continue;
      redirect(node);
      order.push_back(id);
    }
    out_.step().order = std::move(order);
    drop_inputs();
    put_count("num_layers", kept_);
    Graph made = dce(out_);
    drop_symbols(made);
    return made;
  }

 private:
  bool is_of_gone_layer(StringId fqn) const { return fqn && layers_.of(context_.text(fqn)) >= kept_; }

  // Inputs of layers that go. One that a node that stays reads, belongs to that, too.
  void mark_inputs() {
    std::size_t place = 0;
    for (NodeId id : in_.step().order) {
      if (in_.step().nodes[id].kind != NodeKind::kPlaceholder) break;
      if (place < in_.inputs.size() && is_of_gone_layer(in_.inputs[place].fqn)) gone_input_.insert(id);
      ++place;
    }
    for (NodeId id : in_.step().order) {
      const Node& node = in_.step().nodes[id];
      if (node.kind == NodeKind::kOutput || cut_.goes.contains(id)) continue;
      for_each_input(context_, node, [&](NodeId input) {
        if (gone_input_.contains(input) && !same_mesh(input))
          throw PassError("resize.layers",
                          fmt::format("it reads %{}, an input of a layer that goes",
                                      in_.text(in_.step().nodes[input].name)),
                          site_of(in_, node),
                          "keep another number of layers, or " + resize_before_passes(in_));
      });
    }
  }

  void redirect(Node& node) {
    bool changed = false;
    map_arguments(context_, node, [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId other =
          gone_input_.contains(arg.as_node()) ? same_mesh(arg.as_node()) : cut_.replacement[arg.as_node()];
      if (!other) return arg;
      changed = true;
      return Arg::node(other);
    });
    if (changed) record_specialized(context_, node, pass_, reason_);
  }

  // Results of layers that go, and what the step returns beside them: the meshes of gradients.
  void drop_outputs(Node& node) {
    const auto args = context_.args[node.args];
    if (args.size() != 1 || !args[0].is_list()) return;
    const auto items = context_.args.children(args[0]);
    std::vector<Arg> kept;
    std::vector<OutputRole> roles;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i < in_.outputs.size() && is_of_gone_layer(in_.outputs[i].fqn)) continue;
      if (items[i].is_node() && gone_input_.contains(items[i].as_node())) {
        const NodeId mesh = same_mesh(items[i].as_node());
        if (!mesh)
          throw PassError("resize.layers",
                          fmt::format("the step returns %{}, an input of a layer that goes",
                                      in_.text(in_.step().nodes[items[i].as_node()].name)),
                          site_of(in_, in_.step().nodes[items[i].as_node()]), "keep more layers");
        kept.push_back(Arg::node(mesh));
        if (i < in_.outputs.size()) roles.push_back(in_.outputs[i]);
        continue;
      }
      if (items[i].is_node() && cut_.goes.contains(items[i].as_node()) &&
          !cut_.replacement[items[i].as_node()])
        throw PassError("resize.layers",
                        fmt::format("output {} of the step is %{}, of a layer that goes", i,
                                    in_.text(in_.step().nodes[items[i].as_node()].name)),
                        site_of(in_, in_.step().nodes[items[i].as_node()]), "keep more layers");
      kept.push_back(items[i]);
      if (i < in_.outputs.size()) roles.push_back(in_.outputs[i]);
    }
    if (kept.size() == items.size()) return;
    const Arg list = context_.args.add_tree(args[0].kind(), kept);
    node.args = context_.args.add({&list, 1});
    out_.outputs = std::move(roles);
    record_specialized(context_, node, pass_, reason_);
  }

  // The same mesh, as an input of what stays: a trace takes any of the inputs that bring it. None
  // where there is none, or the input is no such value.
  NodeId same_mesh(NodeId gone) const {
    const Node& node = in_.step().nodes[gone];
    if (!node.type || context_.types[node.type].kind != TypeKind::kValue) return {};
    for (NodeId id : in_.step().order) {
      const Node& other = in_.step().nodes[id];
      if (other.kind != NodeKind::kPlaceholder) break;
      if (other.type == node.type && !gone_input_.contains(id)) return id;
    }
    return {};
  }

  void drop_inputs() {
    std::vector<InputRole> roles;
    std::size_t place = 0;
    std::int64_t states = 0;
    const Arg* known = find_entry(context_, in_.info, kStates);
    for (NodeId id : in_.step().order) {
      if (in_.step().nodes[id].kind != NodeKind::kPlaceholder) break;
      if (!gone_input_.contains(id)) {
        if (place < in_.inputs.size()) roles.push_back(in_.inputs[place]);
        if (known != nullptr && known->is_int() && static_cast<std::int64_t>(place) < known->as_int())
          ++states;
      }
      ++place;
    }
    out_.inputs = std::move(roles);
    put_count(kStates, states);
  }

  static constexpr std::string_view kStates = "num_static_inputs";
  // Where the graph's info says the number.
  void put_count(std::string_view key, std::int64_t count) {
    const Arg* known = find_entry(context_, out_.info, key);
    if (known == nullptr || !known->is_int()) return;
    const auto entries = context_.args.children(out_.info);
    std::vector<Arg> items(entries.begin(), entries.end());
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i] == Arg::text(out_.intern(key))) items[i + 1] = Arg::integer(count);
    out_.info = context_.args.add_tree(ArgKind::kDict, items);
  }

  // Symbols that only nodes that are gone mentioned.
  void drop_symbols(Graph& made) const {
    const IdSet<StringId> before = mentioned_symbols(in_), after = mentioned_symbols(made);
    std::erase_if(made.symbols, [&](const Symbol& symbol) {
      return before.contains(symbol.name) && !after.contains(symbol.name);
    });
  }

  const Graph& in_;
  Context& context_;
  std::int64_t kept_;
  const LayerCut& cut_;
  const Layers layers_;
  Graph out_;
  StringId pass_, reason_;
  IdSet<NodeId> gone_input_;
};

// What one half gives the other is counted by its roles: a half alone does not know what goes.
void require_whole_step(const Graph& graph) {
  const auto is_saved = [&](const auto& row) { return row.role && graph.text(row.role) == "saved"; };
  if (std::ranges::any_of(graph.inputs, is_saved) || std::ranges::any_of(graph.outputs, is_saved))
    throw PassError("resize.layers", "the graph is a half of a step", {},
                    "resize the joint graph, then split it (epweave partition)");
}

}  // namespace

std::int64_t count_layers(const Graph& graph) {
  Layers layers(graph);
  std::set<std::int64_t> found;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall) continue;
    if (const std::int64_t layer = layers.of(node); layer != kNoLayer) found.insert(layer);
  }
  // A part of a step may lack the first ones: what it has is no number of layers.
  const auto count = static_cast<std::int64_t>(found.size());
  return found.empty() || *found.rbegin() == count - 1 ? count : 0;
}

Graph keep_layers(const Graph& graph, std::int64_t count, std::vector<std::string>& notes) {
  require_whole_step(graph);
  const LayerCut cut = find_layer_cut(graph, count);
  notes.push_back(fmt::format("layers {} and up go: {}", count, cut.text));
  return LayerRemover(graph, count, cut).run();
}

}  // namespace epweave
