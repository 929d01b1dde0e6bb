#include "testing/record_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compare/lineage.h"

namespace epweave {
namespace {

class RecordChanger {
 public:
  RecordChanger(const Graph& graph, Dice& dice) : graph_(graph), context_(*graph_.context), dice_(dice) {}

  std::optional<RecordChange> run() {
    NodeId id = dice_.pick(graph_.step().order);
    bool done = false;
    std::string kind;
    switch (dice_.below(8)) {
      case 0:
      case 1:
        kind = "moved", done = move(id);
        break;
      case 2:
        kind = "recorded type", done = change_type(id);
        break;
      case 3:
        kind = "symbol", done = change_symbol();
        break;
      case 4:
        kind = "hint of a node", done = change_hint(id);
        break;
      case 5:
        kind = "provenance", done = change_provenance(id);
        break;
      case 6:
        kind = "origin", done = change_origin(id);
        break;
      default:
        kind = "returned value", done = change_output(id);
    }
    if (!done) return std::nullopt;
    const Node& node = graph_.step().nodes[id];
    std::string place = fmt::format("{} at %{}", graph_.text(node.target), graph_.text(node.name));
    return RecordChange{std::move(graph_), std::move(kind), std::move(place)};
  }

 private:
  Node& node(NodeId id) { return graph_.step().nodes[id]; }

  // To anywhere between what it takes and what takes it.
  bool move(NodeId id) {
    if (node(id).kind != NodeKind::kCall) return false;
    std::vector<NodeId>& order = graph_.step().order;
    const auto at = static_cast<std::size_t>(std::ranges::find(order, id) - order.begin());
    std::size_t first = 0, last = order.size() - 2;
    for (std::size_t i = 0; i < at; ++i)
      if (node(order[i]).kind == NodeKind::kPlaceholder || takes(id, order[i])) first = i + 1;
    for (std::size_t i = order.size() - 1; i > at; --i)
      if (takes(order[i], id)) last = i - 1;
    const std::size_t to = first + dice_.below(last - first + 1);
    if (to == at) return false;
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(at));
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), id);
    return true;
  }
  bool takes(NodeId user, NodeId value) {
    bool found = false;
    for_each_input(context_, node(user), [&](NodeId input) { found = found || input == value; });
    return found;
  }

  bool change_type(NodeId id) {
    const TensorType* old = tensor_of(context_, node(id).type);
    if (old == nullptr) return false;
    TensorType type = *old;
    const std::size_t dim = type.rank() == 0 ? 0 : dice_.below(type.rank());
    switch (dice_.below(5)) {
      case 0:
        type.dtype = type.dtype == DType::kFloat32 ? DType::kBfloat16 : DType::kFloat32;
        break;
      case 1:
        type.offset = context_.exprs.number(1);
        break;
      case 2:
        type.requires_grad = !type.requires_grad;
        break;
      case 3:
        if (type.strides.empty()) return false;
        std::swap(type.strides[0], type.strides[dim]);
        break;
      default:
        if (type.sizes.empty()) return false;
        type.sizes[dim] = context_.exprs.add(type.sizes[dim], context_.exprs.number(1));
    }
    if (type == *old) return false;
    node(id).type = context_.types.tensor(std::move(type));
    return true;
  }

  bool change_symbol() {
    if (graph_.symbols.empty()) return false;
    Symbol& symbol = graph_.symbols[dice_.below(graph_.symbols.size())];
    const auto number = static_cast<std::int64_t>(dice_.below(50));
    ExprPool& pool = context_.exprs;
    switch (dice_.below(7)) {
      case 0:
        return symbol.hint = number, true;
      case 1:
        return symbol.lower = symbol.upper = pool.number(number), true;
      case 2:
        return state(symbol, fmt::format("Eq({}, {})", graph_.text(symbol.name), number)), true;
      case 3:
        return state(symbol, fmt::format("Eq(Mod({}, 2), 0)", graph_.text(symbol.name))), true;
      case 4:
        return symbol.assumptions.clear(), true;
      case 5:
        symbol.assumptions.push_back(pool.parse(fmt::format("Eq({}, {})", graph_.text(symbol.name), number)));
        return true;
      default: {
        const Symbol& twin = graph_.symbols[dice_.below(graph_.symbols.size())];
        if (twin.name == symbol.name) return false;
        return symbol.replaced_by = pool.parse(graph_.text(twin.name)), true;
      }
    }
  }
  void state(Symbol& symbol, const std::string& fact) {
    std::vector<ExprId> asserts = symbol.asserts.value_or(std::vector<ExprId>());
    asserts.push_back(context_.exprs.parse(fact));
    symbol.asserts = std::move(asserts);
  }

  bool change_hint(NodeId id) {
    if (graph_.symbols.empty()) return false;
    NodeExtra extra = node(id).extra == nullptr ? NodeExtra() : *node(id).extra;
    const StringId symbol = graph_.symbols[dice_.below(graph_.symbols.size())].name;
    extra.chunk_hints.emplace_back(symbol, static_cast<std::int64_t>(dice_.below(50)));
    node(id).extra = context_.own(std::move(extra));
    return true;
  }

  bool change_provenance(NodeId id) {
    std::vector<Provenance> records(node(id).provenance.begin(), node(id).provenance.end());
    if (records.empty()) return false;
    Provenance& record = records[dice_.below(records.size())];
    switch (dice_.below(4)) {
      case 0:
        if (record.parts == 0) return false;
        record.part = (record.part + 1) % record.parts;
        if (node(id).chunk.part) node(id).chunk.part = static_cast<std::int32_t>(record.part);
        break;
      case 1:
        ++record.parts;
        break;
      case 2:
        record.role = static_cast<ProvenanceRole>(dice_.below(10));
        break;
      default:
        records.clear();
    }
    node(id).provenance = context_.own(std::span<const Provenance>(records));
    return true;
  }

  // It says that it is another node of the first graph, of the same op; that one's node says that
  // it is this one's.
  bool change_origin(NodeId id) {
    std::vector<NodeId> like;
    for (NodeId other : graph_.step().order)
      if (other != id && node(other).target == node(id).target && node(other).type == node(id).type)
        like.push_back(other);
    if (like.empty()) return false;
    const NodeId other = dice_.pick(like);
    std::swap(node(id).provenance, node(other).provenance);
    std::swap(node(id).chunk, node(other).chunk);
    if (dice_.one_in(2)) std::swap(node(id).name, node(other).name);
    return true;
  }

  bool change_output(NodeId& id) {
    const NodeId returned = id;
    id = graph_.step().order.back();
    const Arg old = context_.args[node(id).args].front();
    if (!old.is_list()) return false;
    const auto children = context_.args.children(old);
    std::vector<Arg> items(children.begin(), children.end());
    if (items.empty()) return false;
    Arg& item = items[dice_.below(items.size())];
    if (!item.is_node() || node(item.as_node()).type != node(returned).type) return false;
    item = Arg::node(returned);
    const Arg tree = context_.args.add_tree(old.kind(), items);
    node(id).args = context_.args.add({&tree, 1});
    return true;
  }

  Graph graph_;
  Context& context_;
  Dice& dice_;
};

}  // namespace

std::optional<RecordChange> draw_record_change(const Graph& graph, Dice& dice) {
  return RecordChanger(graph, dice).run();
}

}  // namespace epweave
