#include "analysis/frames.h"

#include <array>
#include <map>

#include "ir/op.h"

namespace epweave {
namespace {

using FrameId = Id<struct FrameTag>;

// Numbers values: two nodes that compute the same from the same get the same representative.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph) : context_(*graph.context), body_(graph.step()) {
    for (NodeId id : body_.order) number_.at(id) = number(id);
  }
  NodeId operator[](NodeId id) const { return number_[id]; }

 private:
  NodeId number(NodeId id) {
    const Node& node = body_.nodes[id];
    const bool binds = node.extra && !node.extra->bindings.empty();
    if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || node.op->is_random || binds)
      return id;
    const auto args = context_.args[node.args];
    if (context_.text(node.target) == "aten.alias.default" && args[0].is_node())
      return number_[args[0].as_node()];
    const std::array<Arg, 3> key = {Arg::text(node.target), intern(ArgKind::kList, node.args),
                                    intern(ArgKind::kList, node.kwargs)};
    const Arg tree = context_.args.intern_tree(ArgKind::kTuple, key);
    return first_.try_emplace(tree.children().begin, id).first->second;
  }
  // The arguments with every node replaced by its number, interned, so that equal calls have equal trees.
  Arg intern(ArgKind kind, ArgRange range) {
    std::vector<Arg> children;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (arg.is_node()) {
        children.push_back(Arg::node(number_[arg.as_node()]));
      } else {
        children.push_back(arg.is_tree() ? intern(arg.kind(), arg.children()) : arg);
      }
    }
    return context_.args.intern_tree(kind, children);
  }

  Context& context_;
  const Body& body_;
  SideTable<NodeId, NodeId> number_;
  std::map<std::uint32_t, NodeId> first_;  // by where the interned call lies in the pool
};

class Prover {
 public:
  Prover(const Graph& graph, const Placements& placements)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        placements_(placements),
        numbers_(graph) {}

  FrameClaims run() {
    find_permutations();
    for (NodeId id : body_.order)
      if (placements_.region[id] && placements_.is_divided(id)) visit(id);
    return std::move(claims_);
  }

 private:
  enum Kind : std::uint32_t { kSort, kPick, kExchange };
  struct Term {
    Kind kind;
    FrameId base;
    std::vector<std::uint32_t> values;
    friend auto operator<=>(const Term&, const Term&) = default;
  };

  FrameId intern(Term term) {
    auto [found, is_new] = ids_.try_emplace(std::move(term), FrameId(terms_.size()));
    if (is_new) terms_.push_back(&found->first);
    return found->second;
  }

  Arg arg(const Node& node, std::size_t i) const {
    const auto args = context_.args[node.args];
    return i < args.size() ? args[i] : Arg::none();
  }
  // The single element of an index list, or none.
  Arg only_item(Arg list) const {
    if (!list.is_list()) return Arg::none();
    const auto items = context_.args.children(list);
    return items.size() == 1 ? items[0] : Arg::none();
  }
  FrameId frame(Arg a) const { return a.is_node() ? frame_[a.as_node()] : FrameId(); }
  std::uint32_t number(Arg a) const { return a.is_node() ? numbers_[a.as_node()].index() : UINT32_MAX; }
  const Placement& placement(Arg a) const {
    static const Placement kWhole;
    return a.is_node() ? placements_.of(a.as_node()) : kWhole;
  }
  std::string_view target(Arg a) const {
    return a.is_node() ? context_.text(body_.nodes[a.as_node()].target) : "";
  }

  void find_permutations() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (context_.text(node.target) != "aten.index_put_.default") continue;
      if (target(arg(node, 0)) == "aten.new_empty.default" && only_item(arg(node, 1)).is_node())
        permutations_.insert(numbers_[only_item(arg(node, 1)).as_node()]);
    }
  }

  void claim(NodeId id, FrameId a, FrameId b, std::string why) {
    if (a && a == b) {
      ++claims_.proved;
    } else {
      claims_.open.push_back({id, std::move(why)});
    }
  }

  void visit(NodeId id) {
    const Node& node = body_.nodes[id];
    const std::string_view op = context_.text(node.target);
    const Placement& p = placements_.placement[id];
    if (op.starts_with("aten.new_") || op.starts_with("aten.arange") || op.starts_with("aten.sym_")) return;
    const bool writes_rows = op == "torchtitan.deterministic_scatter_add.default" ||
                             op == "aten.scatter_add.default" || op == "aten.index_put.default" ||
                             op == "aten.index_put_.default";
    if (op == "aten.sort.stable") {
      frame_.at(id) = intern({kSort, FrameId(), {number(arg(node, 0))}});
    } else if (p.is_local() && (op == "aten.index.Tensor" || op == "aten.gather.default" ||
                                op == "aten.index_select.default")) {
      frame_.at(id) =
          picked(arg(node, 0), op == "aten.index.Tensor" ? only_item(arg(node, 1)) : arg(node, 2));
    } else if (p.is_local() && op == "_c10d_functional.all_to_all_single.default") {
      frame_.at(id) = exchanged(node);
    } else if (p.is_local() && writes_rows) {
      const FrameId rows = frame(arg(node, 2));
      if (rows && terms_[rows.index()]->kind == kPick &&
          terms_[rows.index()]->values[0] == number(only_item(arg(node, 1))))
        frame_.at(id) = terms_[rows.index()]->base;
    } else if (p.is(PlacementKind::kSplit) && writes_rows) {
      check_row_write(id, op);
    } else if (p.is_partial() && (op == "aten.mm.default" || op == "aten._grouped_mm.default")) {
      if (placement(arg(node, 0)).is_local() || placement(arg(node, 1)).is_local())
        claim(id, frame(arg(node, 0)), frame(arg(node, 1)),
              "the rows that it multiplies may belong to different tokens");
    } else {
      frame_.at(id) = common(id);
    }
  }

  FrameId picked(Arg source, Arg index) {
    if (!placement(source).is_local()) return frame(index);  // row i belongs to whatever index i belongs to
    const FrameId base = frame(source);
    if (!base || !index.is_node() || !permutations_.contains(numbers_[index.as_node()])) return FrameId();
    return intern({kPick, base, {number(index)}});
  }

  FrameId exchanged(const Node& node) {
    const FrameId rows = frame(arg(node, 0));
    if (!rows) return FrameId();
    std::vector<std::uint32_t> out = splits(arg(node, 1)), in = splits(arg(node, 2));
    const Term& term = *terms_[rows.index()];
    std::vector<std::uint32_t> there = out, back = in;
    there.insert(there.end(), in.begin(), in.end());
    back.insert(back.end(), out.begin(), out.end());
    if (term.kind == kExchange && term.values == back) return term.base;
    return intern({kExchange, rows, std::move(there)});
  }
  std::vector<std::uint32_t> splits(Arg list) const {
    std::vector<std::uint32_t> result;
    if (list.is_list())
      for (Arg item : context_.args.children(list))
        result.push_back(item.is_int() ? static_cast<std::uint32_t>(item.as_int()) : number(item));
    return result;
  }

  void check_row_write(NodeId id, std::string_view op) {
    const Node& node = body_.nodes[id];
    const bool is_put = op == "aten.index_put.default" || op == "aten.index_put_.default";
    const Arg positions =
        is_put ? only_item(arg(node, 1)) : arg(node, op == "aten.scatter_add.default" ? 2 : 1);
    const Arg rows = arg(node, op == "aten.scatter_add.default" ? 3 : 2);
    if (!placement(positions).is_local()) return;  // positions along another dimension than the rows
    claim(id, frame(positions), frame(rows),
          "the rows and the positions that they are written to may belong to different tokens");
  }

  // Of a row-wise op: the one frame of its Local operands.
  FrameId common(NodeId id) {
    FrameId result;
    bool all_framed = true, differ = false;
    for_each_input(*graph_.context, body_.nodes[id], [&](NodeId input) {
      const FrameId f = frame_[input];
      const bool is_tensor = tensor_of(context_, body_.nodes[input].type) != nullptr;
      if (is_tensor && placements_.of(input).is_local() && !f) all_framed = false;
      if (!f) return;
      differ |= result && result != f;
      result = f;
    });
    if (differ) claims_.open.push_back({id, "its operands may have their rows in different orders"});
    return all_framed && !differ ? result : FrameId();
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const Placements& placements_;
  ValueNumbers numbers_;
  std::map<Term, FrameId> ids_;
  std::vector<const Term*> terms_;
  SideTable<NodeId, FrameId> frame_;
  IdSet<NodeId> permutations_;
  FrameClaims claims_;
};

}  // namespace

FrameClaims prove_frames(const Graph& graph, const Placements& placements) {
  return Prover(graph, placements).run();
}

}  // namespace epweave
