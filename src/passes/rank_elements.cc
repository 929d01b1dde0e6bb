#include "passes/rank_elements.h"

#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "analysis/rank_view.h"
#include "analysis/shown_rows.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/pieces.h"

namespace epweave {
namespace {

const Arg* find_entry_of(const Context& context, const Node& slice) {
  return slice.extra == nullptr ? nullptr : find_entry(context, slice.extra->meta, kElementOfKey);
}

bool holds_node(const Context& context, std::span<const Arg> args) {
  bool holds = false;
  for (Arg arg : args) context.args.for_each_node(arg, [&](NodeId) { holds = true; });
  return holds;
}

std::optional<StringId> find_name(const Context& context, const Node& slice) {
  const Arg* entry = find_entry_of(context, slice);
  if (!entry || !entry->is_list() || entry->children().count != 3) return std::nullopt;
  const Arg name = context.args.children(*entry)[2];
  return name.is(ArgKind::kText) ? std::optional(name.as_name()) : std::nullopt;
}

NodeId whole_of(const Context& context, const Node& node) {
  const Arg whole = node.args.count != 0 ? context.args[node.args][0] : Arg::none();
  return whole.is_node() ? whole.as_node() : NodeId();
}

// Pieces, and how many of them are of one size at multiples of it.
class PieceSet {
 public:
  void insert(const TakenPiece& piece) {
    if (piece.size() == 0 || piece.start % piece.size() != 0 || !pieces_.insert(piece).second) return;
    ++counts_[{piece.of, piece.dim, piece.size()}];
  }
  // Whether they are all of a value that such pieces make.
  bool has_all(NodeId of, std::int64_t dim, std::int64_t size, std::int64_t extent) const {
    const auto found = counts_.find({of, dim, size});
    return extent % size == 0 && (found == counts_.end() ? 0 : found->second) == extent / size;
  }

 private:
  std::set<TakenPiece> pieces_;
  std::map<std::tuple<NodeId, std::int64_t, std::int64_t>, std::int64_t> counts_;
};

// Which splits and pieces stand in front of a place.
class PieceCounter {
 public:
  PieceCounter(Context& context, const Body& body)
      : context_(context), body_(body), finder_(context), calls_(context, body) {}

  SideTable<NodeId, std::optional<std::uint32_t>> run() {
    SideTable<NodeId, std::optional<std::uint32_t>> counts;
    if (calls_.empty()) return counts;
    for (const auto [id, node] : walk_extras(context_, body_)) {
      if (node.op == nullptr) continue;
      if (const auto call = calls_.read(node)) counts.at(id) = count(node, *call);
      if (node.op->family == OpFamily::kSplit) splits_[whole_of(context_, node)].push_back({node, id});
      if (const auto piece = finder_.find(body_, node)) see(node, *piece);
    }
    return counts;
  }

 private:
  struct Split {
    Node call;
    NodeId node;  // none: it is not there yet
  };

  void see(const Node& node, const TakenPiece& piece) {
    const auto element = tuple_element(context_, body_, node);
    (element ? pieces_of_[element->tuple] : pieces_).insert(piece);
  }

  std::uint32_t count(const Node& slice, const Node& call) {
    if (!has_family(call, OpFamily::kSplit)) return has_all(slice, pieces_) ? 0 : 1;
    std::vector<Split>& splits = splits_[whole_of(context_, call)];
    for (const Split& split : splits)
      if (calls_.is_call(split.call, call))
        return split.node && has_all(slice, pieces_of_[split.node]) ? 0 : 1;
    splits.push_back({call, {}});
    return 2;
  }

  bool has_all(const Node& slice, const PieceSet& pieces) const {
    const NodeId of = whole_of(context_, slice);
    const TensorType* part = tensor_of(context_, slice.type);
    const TensorType* whole = of ? tensor_of(context_, body_.nodes[of].type) : nullptr;
    if (part == nullptr || whole == nullptr) return false;
    const auto dim = find_dim(context_, slice, part->rank());
    if (!dim || *dim >= whole->rank()) return false;
    const auto size = context_.exprs.constant(part->sizes[*dim]);
    const auto extent = context_.exprs.constant(whole->sizes[*dim]);
    if (!size || !extent || *size <= 0) return false;
    return pieces.has_all(of, static_cast<std::int64_t>(*dim), *size, *extent);
  }

  Context& context_;
  const Body& body_;
  PieceFinder finder_;
  ElementCalls calls_;
  std::map<NodeId, std::vector<Split>> splits_;  // by what they divide
  std::map<NodeId, PieceSet> pieces_of_;         // by split
  PieceSet pieces_;                              // by slices
};

}  // namespace

const NodeExtra* describe_element(Graph& graph, const NodeExtra* like, const Node& call) {
  Context& context = *graph.context;
  const auto args = context.args[call.args];
  const bool is_data = call.kwargs.count == 0 && !args.empty() && !holds_node(context, args.subspan(1));
  if (!is_data) return like;
  const std::vector<Arg> behind(args.begin() + 1, args.end());
  const Arg fields[] = {Arg::text(call.target), context.args.add_tree(ArgKind::kList, behind),
                        Arg::text(call.name)};
  const Arg entry = context.args.add_tree(ArgKind::kList, fields);
  NodeExtra extra = like != nullptr ? *like : NodeExtra();
  const auto meta = context.args[extra.meta];
  std::vector<Arg> all(meta.begin(), meta.end());
  all.push_back(Arg::text(graph.intern(kElementOfKey)));
  all.push_back(entry);
  extra.meta = context.args.add(all);
  return context.own(std::move(extra));
}

ElementCalls::ElementCalls(Context& context, const Body& body) : context_(context) {
  for (const auto [id, node] : walk_extras(context, body))
    if (const auto name = find_name(context, node)) names_.insert(*name);
}

std::optional<Node> ElementCalls::read(const Node& slice) const {
  const auto name = find_name(context_, slice);
  if (!name || slice.args.count == 0) return std::nullopt;
  const Arg entry = *find_entry_of(context_, slice);
  const Arg target = context_.args.children(entry)[0], behind = context_.args.children(entry)[1];
  if (!target.is(ArgKind::kText) || !behind.is_list()) return std::nullopt;
  std::vector<Arg> args{context_.args[slice.args][0]};
  for (Arg arg : context_.args.children(behind)) args.push_back(arg);
  Node call = slice;
  call.name = *name;
  call.target = target.as_name();
  call.args = context_.args.intern(args);
  call.kwargs = {};
  call.type = {};
  call.extra = without_element(context_, slice.extra);
  resolve_op(context_, call);
  return call;
}

bool ElementCalls::is_call(const Node& node, const Node& call) const {
  return node.target == call.target && context_.args.equal(node.args, call.args) &&
         context_.args.equal(node.kwargs, call.kwargs) && is_beside(node, call);
}

bool ElementCalls::is_beside(const Node& node, const Node& call) const {
  return node.is_backward() == call.is_backward() && node.chunk.part == call.chunk.part &&
         (node.name == call.name || !names_.contains(node.name));
}

const NodeExtra* without_element(Context& context, const NodeExtra* extra) {
  if (extra == nullptr) return nullptr;
  const Arg* entry = find_entry(context, extra->meta, kElementOfKey);
  if (entry == nullptr) return extra;
  const auto meta = context.args[extra->meta];
  std::vector<Arg> kept;
  for (std::size_t i = 0; i + 1 < meta.size(); i += 2) {
    if (&meta[i + 1] == entry) continue;
    kept.push_back(meta[i]);
    kept.push_back(meta[i + 1]);
  }
  NodeExtra rest = *extra;
  rest.meta = context.args.add(kept);
  return context.own(std::move(rest));
}

SideTable<NodeId, std::optional<std::uint32_t>> count_element_nodes(Context& context, const Body& body) {
  return PieceCounter(context, body).run();
}

}  // namespace epweave
