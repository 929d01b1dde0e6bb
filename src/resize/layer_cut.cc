#include "resize/layer_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/effects.h"
#include "analysis/layers.h"
#include "analysis/value_numbers.h"
#include "passes/pass.h"
#include "resize/remedies.h"

namespace epweave {
namespace {

// The layer of each call, and which of them go.
class LayerMap {
 public:
  LayerMap(const Graph& graph, std::int64_t kept) : kept_(kept) {
    const Context& context = *graph.context;
    const Body& body = graph.step();
    Layers layers(graph);
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind == NodeKind::kPlaceholder || node.kind == NodeKind::kOutput) continue;
      std::int64_t layer = layers.of(node);
      if (!node.module)
        for_each_input(context, node, [&](NodeId input) {
          const std::int64_t other = of_[input];
          if (other == kNoLayer) return;
          layer = layer == kNoLayer    ? other
                  : node.is_backward() ? std::min(layer, other)
                                       : std::max(layer, other);
        });
      of_.at(id) = layer;
    }
  }

  std::int64_t of(NodeId id) const { return of_[id]; }
  bool goes(NodeId id) const { return of_[id] >= kept_; }

 private:
  std::int64_t kept_;
  SideTable<NodeId, std::int64_t> of_{kNoLayer};
};

// Finds what replaces the values that leave the layers that go.
class CutFinder {
 public:
  CutFinder(const Graph& graph, std::int64_t kept)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        kept_(kept),
        map_(graph, kept),
        effects_(graph, body_),
        numbers_(graph, effects_) {}

  LayerCut run() {
    find_border();
    join_repeated();
    const Crossing forward = cross(false), backward = cross(true);
    LayerCut cut;
    for (NodeId value : leaving_)
      cut.replacement.at(value) = is_backward_.contains(numbers_[value]) ? backward.in : forward.in;
    for (NodeId id : body_.order)
      if (map_.goes(id) && !stays_.contains(id)) cut.goes.insert(id);
    for (const Crossing& crossing : {forward, backward})
      if (crossing.in)
        cut.text +=
            fmt::format("{}%{} for %{}", cut.text.empty() ? "" : ", ", name(crossing.in), name(crossing.out));
    return cut;
  }

 private:
  struct Crossing {
    NodeId in, out;  // what takes the place of which value
  };

  std::string_view name(NodeId id) const { return graph_.text(body_.nodes[id].name); }

  bool is_number(NodeId id) const {
    const TypeId type = body_.nodes[id].type;
    return !type || context_.types[type].kind != TypeKind::kTensor;
  }

  // Values that cross between what goes and what stays, each once: of equal ones the first.
  void find_border() {
    IdSet<NodeId> is_leaving, is_entering;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind == NodeKind::kOutput) continue;  // an output of a layer goes with it
      for_each_input(context_, node, [&](NodeId input) {
        const bool goes = map_.goes(input);
        if (goes == map_.goes(id)) return;
        if (goes && keep_known(input)) return;
        if (goes && is_leaving.insert(input)) {
          leaving_.push_back(input);
          if (is_leaving_value_.insert(numbers_[input])) outs_.push_back({numbers_[input], id});
        }
        const NodeKind kind = body_.nodes[input].kind;
        if (!goes && kind == NodeKind::kCall && !is_number(input) && is_entering.insert(input))
          if (is_entering_value_.insert(numbers_[input])) ins_.push_back(numbers_[input]);
      });
    }
  }

  // A value known when traced, of such values only: a process group of a mesh. It stays where what
  // stays reads it, whichever layer looked it up first.
  bool keep_known(NodeId id) {
    const auto is_known = [&](NodeId value) {
      const TypeId type = body_.nodes[value].type;
      return type && context_.types[type].kind == TypeKind::kValue;
    };
    bool is_kept = is_known(id);
    for_each_input(context_, body_.nodes[id], [&](NodeId input) { is_kept = is_kept && is_known(input); });
    if (!is_kept) return false;
    stays_.insert(id);
    for_each_input(context_, body_.nodes[id], [&](NodeId input) {
      if (map_.goes(input)) is_kept = keep_known(input) && is_kept;
    });
    return is_kept;
  }

  struct Out {
    NodeId value, reader;
  };

  // What backward computes again of a value that leaves forward, from what storage held by then, is
  // taken for that value.
  void join_repeated() {
    for (const Out& out : outs_)
      if (body_.nodes[out.value].is_backward()) is_backward_.insert(out.value);
    std::erase_if(outs_, [&](const Out& again) {
      if (!is_backward_.contains(again.value)) return false;
      for (const Out& first : outs_)
        if (!is_backward_.contains(first.value) && computes_again(again.value, first.value)) {
          is_backward_.erase(again.value);
          return true;
        }
      return false;
    });
  }

  // The same calls of the same inputs.
  bool computes_again(NodeId a, NodeId b) const {
    SideTable<NodeId, NodeId> equal_to;
    std::vector<std::pair<NodeId, NodeId>> pending = {{a, b}};
    while (!pending.empty()) {
      const auto [one, other] = pending.back();
      pending.pop_back();
      if (one == other || equal_to[one] == other) continue;
      if (equal_to[one]) return false;
      equal_to.at(one) = other;
      const Node &again = body_.nodes[one], &first = body_.nodes[other];
      if (are_same_graph(again, first)) continue;
      if (again.kind != NodeKind::kCall || again.target != first.target || again.type != first.type ||
          !are_alike(again.args, first.args, pending) || !are_alike(again.kwargs, first.kwargs, pending))
        return false;
    }
    return true;
  }
  static bool are_same_graph(const Node& a, const Node& b) {
    return a.kind == NodeKind::kGetAttr && b.kind == NodeKind::kGetAttr && a.attr.is(ArgKind::kGraph) &&
           a.attr == b.attr;
  }
  // Equal but for nodes, which are added to `pending`.
  bool are_alike(ArgRange a, ArgRange b, std::vector<std::pair<NodeId, NodeId>>& pending) const {
    if (a.count != b.count) return false;
    for (std::uint32_t i = 0; i < a.count; ++i) {
      const Arg one = context_.args[a][i], other = context_.args[b][i];
      if (one.is_node() && other.is_node()) {
        pending.emplace_back(one.as_node(), other.as_node());
      } else if (one.is_tree() && other.is_tree() && one.kind() == other.kind()) {
        if (!are_alike(one.children(), other.children(), pending)) return false;
      } else if (!(one == other)) {
        return false;
      }
    }
    return true;
  }

  // The value that leaves in this direction and the one that takes its place; none of both where
  // nothing leaves.
  Crossing cross(bool backward) const {
    std::vector<Out> outs;
    for (const Out& out : outs_)
      if (is_backward_.contains(out.value) == backward) outs.push_back(out);
    if (outs.empty()) return {};
    if (outs.size() > 1) {
      const Node& node = body_.nodes[outs[1].value];
      fail(node, fmt::format(
                     "{} values leave layers {} and up in {}: %{}, which %{} reads, and %{}, which %{} reads",
                     outs.size(), kept_, backward ? "backward" : "forward", name(outs[0].value),
                     name(outs[0].reader), name(outs[1].value), name(outs[1].reader)));
    }
    return {find_in(outs[0].value, backward), outs[0].value};
  }

  // Forward: what the last layer that stays gives. Backward: what comes from behind the layers.
  NodeId find_in(NodeId out, bool backward) const {
    const Node& node = body_.nodes[out];
    std::vector<NodeId> found;
    for (NodeId in : ins_) {
      const bool is_here = backward ? map_.of(in) == kNoLayer : map_.of(in) == kept_ - 1;
      if (is_here && body_.nodes[in].is_backward() == backward && body_.nodes[in].type == node.type)
        found.push_back(in);
    }
    if (found.size() > 1 && !backward)
      std::erase_if(found, [&](NodeId in) { return !is_same_place(body_.nodes[in], node); });
    if (found.size() == 1) return found[0];
    fail(node, fmt::format("{} of the type of %{}, which leaves layers {} and up in {}, come {}",
                           found.empty() ? "no values" : fmt::format("{} values", found.size()), name(out),
                           kept_, backward ? "backward" : "forward",
                           backward ? "from behind the layers" : fmt::format("from layer {}", kept_ - 1)));
  }
  // The same call of another layer.
  bool is_same_place(const Node& a, const Node& b) const {
    const auto inside = [&](const Node& node) {
      const std::string_view path = graph_.text(node.module);
      return path.substr(std::min(path.find('.', path.find('.') + 1), path.size()));
    };
    return a.target == b.target && inside(a) == inside(b);
  }

  [[noreturn]] void fail(const Node& node, std::string problem) const {
    throw PassError("resize.layers", std::move(problem), site_of(graph_, node),
                    "keep another number of layers, or " + resize_before_passes(graph_));
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  std::int64_t kept_;
  LayerMap map_;
  Effects effects_;
  ValueNumbers numbers_;
  std::vector<NodeId> leaving_;  // every copy
  std::vector<Out> outs_;        // value numbers
  std::vector<NodeId> ins_;
  IdSet<NodeId> is_leaving_value_, is_entering_value_;
  IdSet<NodeId> is_backward_;  // values that leave and are gradients
  IdSet<NodeId> stays_;        // of layers that go
};

}  // namespace

LayerCut find_layer_cut(const Graph& graph, std::int64_t kept) {
  return CutFinder(graph, kept).run();
}

}  // namespace epweave
