#include "analysis/frames.h"

#include <algorithm>
#include <map>

#include "base/hash_index.h"
#include "ir/op.h"

namespace epweave {
namespace {

using FrameId = Id<struct FrameTag>;

// Numbers values: two nodes that compute the same from the same get the same representative.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph)
      : context_(*graph.context), body_(graph.step()), number_(body_.nodes.size()) {
    for (NodeId id : body_.order) number_[id] = number(id);
  }
  NodeId operator[](NodeId id) const { return number_[id]; }

 private:
  // A call: target and arguments with every node replaced by its number, as words in one array.
  struct Call {
    std::size_t begin, end;
    NodeId first;  // node that computes it
  };

  NodeId number(NodeId id) {
    const Node& node = body_.nodes[id];
    const bool binds = node.extra && !node.extra->bindings.empty();
    if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || node.op->is_random || binds)
      return id;
    const auto args = context_.args[node.args];
    if (node.op == alias_ && args[0].is_node()) return number_[args[0].as_node()];
    const Call call{words_.size(), append_call(node), id};
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

  bool same(const Call& a, const Call& b) const {
    return std::equal(words_.begin() + static_cast<std::ptrdiff_t>(a.begin),
                      words_.begin() + static_cast<std::ptrdiff_t>(a.end),
                      words_.begin() + static_cast<std::ptrdiff_t>(b.begin),
                      words_.begin() + static_cast<std::ptrdiff_t>(b.end));
  }

  // Returns where the words end.
  std::size_t append_call(const Node& node) {
    words_.push_back(node.target.index());
    append(ArgKind::kTuple, node.args);
    append(ArgKind::kDict, node.kwargs);
    return words_.size();
  }
  void append(ArgKind kind, ArgRange range) {
    words_.push_back(word_of(kind, range.count));
    for (const Arg arg : context_.args[range]) {
      if (arg.is_tree()) {
        append(arg.kind(), arg.children());
      } else {
        words_.push_back(static_cast<std::uint64_t>(arg.kind()));
        words_.push_back(arg.is_node() ? number_[arg.as_node()].index() : arg.bits());
      }
    }
  }
  static std::uint64_t word_of(ArgKind kind, std::uint32_t count) {
    return static_cast<std::uint64_t>(count) << 8 | static_cast<std::uint64_t>(kind);
  }

  const Context& context_;
  const Body& body_;
  const OpInfo* const alias_ = find_op("aten.alias.default");
  IdVector<NodeId, NodeId> number_;
  std::vector<std::uint64_t> words_;
  std::vector<Call> calls_;  // distinct ones
  HashIndex call_ids_;
};

// What an op does with rows, as far as frames are concerned.
enum class RowOp : std::uint8_t {
  kRowWise,  // row i of the result belongs to row i of the operands
  kNone,     // has no rows of operands: makes a tensor, reads a size
  kSort,
  kIndex,         // x[i], the index in a list
  kGather,        // x[i], the index the argument behind the dimension
  kExchange,      // all-to-all
  kPut,           // rows written to positions: self, [positions], rows
  kScatter,       // self, positions, rows
  kScatterAlong,  // self, dimension, positions, rows
  kProduct,       // may sum over rows
};

RowOp find_row_op(std::string_view target) {
  if (target.starts_with("aten.new_") || target.starts_with("aten.arange") || target.starts_with("aten.sym_"))
    return RowOp::kNone;
  static constexpr std::pair<std::string_view, RowOp> kOps[] = {
      {"aten.sort.stable", RowOp::kSort},
      {"aten.index.Tensor", RowOp::kIndex},
      {"aten.gather.default", RowOp::kGather},
      {"aten.index_select.default", RowOp::kGather},
      {"_c10d_functional.all_to_all_single.default", RowOp::kExchange},
      {"aten.index_put.default", RowOp::kPut},
      {"aten.index_put_.default", RowOp::kPut},
      {"torchtitan.deterministic_scatter_add.default", RowOp::kScatter},
      {"aten.scatter_add.default", RowOp::kScatterAlong},
      {"aten.mm.default", RowOp::kProduct},
      {"aten._grouped_mm.default", RowOp::kProduct},
  };
  for (const auto& [name, op] : kOps)
    if (name == target) return op;
  return RowOp::kRowWise;
}

RowOp row_op_of(const Node& node) {
  static const std::vector<RowOp> kTable = [] {
    std::vector<RowOp> table;
    for (const OpInfo& op : ops()) table.push_back(find_row_op(op.target));
    return table;
  }();
  return node.op == nullptr ? RowOp::kRowWise : kTable[node.op->index];
}

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
  bool is_uninitialised(Arg a) const {
    static const OpInfo* const new_empty = find_op("aten.new_empty.default");
    return a.is_node() && body_.nodes[a.as_node()].op == new_empty;
  }

  void find_permutations() {
    static const OpInfo* const index_put = find_op("aten.index_put_.default");
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.op != index_put) continue;
      if (is_uninitialised(arg(node, 0)) && only_item(arg(node, 1)).is_node())
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
    const Placement& p = placements_.placement[id];
    switch (row_op_of(node)) {
      case RowOp::kNone:
        return;
      case RowOp::kSort:
        frame_.at(id) = intern({kSort, FrameId(), {number(arg(node, 0))}});
        return;
      case RowOp::kIndex:
        if (p.is_local()) return set(id, picked(arg(node, 0), only_item(arg(node, 1))));
        break;
      case RowOp::kGather:
        if (p.is_local()) return set(id, picked(arg(node, 0), arg(node, 2)));
        break;
      case RowOp::kExchange:
        if (p.is_local()) return set(id, exchanged(node));
        break;
      case RowOp::kPut:
        return visit_row_write(id, {only_item(arg(node, 1)), arg(node, 2)});
      case RowOp::kScatter:
        return visit_row_write(id, {arg(node, 1), arg(node, 2)});
      case RowOp::kScatterAlong:
        return visit_row_write(id, {arg(node, 2), arg(node, 3)});
      case RowOp::kProduct:
        if (p.is_partial()) return check_product(id);
        break;
      case RowOp::kRowWise:
        break;
    }
    set(id, common(id));
  }

  void set(NodeId id, FrameId frame) { frame_.at(id) = frame; }

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

  struct RowWrite {
    Arg positions, rows;
  };

  void visit_row_write(NodeId id, const RowWrite& write) {
    const Placement& p = placements_.placement[id];
    if (p.is_local()) return set(id, restored(write));
    if (!p.is(PlacementKind::kSplit)) return set(id, common(id));
    if (!placement(write.positions).is_local()) return;  // along another dimension than the rows
    claim(id, frame(write.positions), frame(write.rows),
          "the rows and the positions that they are written to may belong to different tokens");
  }

  // Rows put back to where they were picked from.
  FrameId restored(const RowWrite& write) const {
    const FrameId rows = frame(write.rows);
    if (!rows) return FrameId();
    const Term& term = *terms_[rows.index()];
    return term.kind == kPick && term.values[0] == number(write.positions) ? term.base : FrameId();
  }

  void check_product(NodeId id) {
    const Node& node = body_.nodes[id];
    if (placement(arg(node, 0)).is_local() || placement(arg(node, 1)).is_local())
      claim(id, frame(arg(node, 0)), frame(arg(node, 1)),
            "the rows that it multiplies may belong to different tokens");
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
