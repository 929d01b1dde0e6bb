#include "compare/ranks/rank_slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/rank_view.h"
#include "analysis/shown_rows.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

class SliceCheck {
 public:
  explicit SliceCheck(const Graph& graph)
      : graph_(graph), context_(*graph.context), body_(graph.step()), facts_(graph) {}

  std::vector<RankViolation> find() {
    find_coordinates();
    if (coordinates_.empty()) return {};
    const NodeLists users = list_users(context_, body_);
    for (NodeId id : body_.order) read(id, !users[id].empty());
    for (const auto& [line, pieces] : lines_) check(pieces);
    return std::move(found_);
  }

 private:
  // What one line of the model's code does in each of its calls: source, direction, dimension, and
  // extents of the piece and of what it is cut from.
  using Line = std::tuple<StringId, bool, std::size_t, ExprId, ExprId>;
  using Call = std::pair<StringId, std::optional<std::int64_t>>;  // its module and number
  struct Numbered {
    NodeId node;
    std::int64_t start = 0;
    Call call;
  };
  struct Pieces {
    std::set<Call> by_coordinate;
    NodeId one_by_coordinate;
    std::vector<Numbered> by_number;  // that something reads
  };

  void find_coordinates() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (mesh_call_of(node) != MeshCall::kCoordinate || node.extra == nullptr) continue;
      for (const Binding& binding : node.extra->bindings) coordinates_.insert(binding.symbol);
    }
  }
  bool follows_coordinate(ExprId start) const {
    return std::ranges::any_of(context_.exprs.symbols(start),
                               [&](StringId symbol) { return coordinates_.contains(symbol); });
  }

  struct Piece {
    std::size_t dim = 0;
    ExprId start, extent;
  };
  // Of a slice also where nothing says that it ends within what it cuts: a coordinate is below its
  // axis's extent.
  std::optional<Piece> read_piece(NodeId id, const Node& node) {
    const TensorType* tensor = tensor_of(context_, node.type);
    if (tensor == nullptr) return std::nullopt;
    if (const auto rows = find_shown_rows(graph_, facts_, id))
      return Piece{rows->dim, rows->start, tensor->sizes[rows->dim]};
    const auto dim = find_dim(context_, node, tensor->rank());
    if (!has_family(node, OpFamily::kSlice) || !dim) return std::nullopt;
    const auto at = node.op->find_param("start");
    const ExprId start = at ? number_of(context_, body_, arg_of(context_, node, *at)) : ExprId();
    return start ? std::optional(Piece{*dim, start, tensor->sizes[*dim]}) : std::nullopt;
  }

  void read(NodeId id, bool is_read) {
    const Node& node = body_.nodes[id];
    const NodeId cut = find_cut_operand(graph_, id);
    const TensorType* whole = cut ? tensor_of(context_, body_.nodes[cut].type) : nullptr;
    const auto piece = whole != nullptr ? read_piece(id, node) : std::nullopt;
    if (!piece) return;
    const auto start = context_.exprs.constant(piece->start);
    if (start && node.extra != nullptr && find_entry(context_, node.extra->meta, kElementOfKey) != nullptr)
      return add(id, *start, "it stands for an element that each rank takes at its own place (element_of)");
    if (!node.source) return;
    const Call call{node.module, node.seq_nr};
    Pieces& pieces =
        lines_[{node.source, node.is_backward(), piece->dim, piece->extent, whole->sizes[piece->dim]}];
    if (start && is_read) pieces.by_number.push_back({id, *start, call});
    if (start || !follows_coordinate(piece->start)) return;
    pieces.by_coordinate.insert(call);
    pieces.one_by_coordinate = id;
  }

  void check(const Pieces& pieces) {
    if (pieces.by_coordinate.empty()) return;
    for (const Numbered& piece : pieces.by_number)
      if (!pieces.by_coordinate.contains(piece.call))
        add(piece.node, piece.start,
            fmt::format("the same line of code takes the rank's own in %{}",
                        graph_.text(body_.nodes[pieces.one_by_coordinate].name)));
  }

  void add(NodeId id, std::int64_t start, std::string_view why) {
    const Site site = site_of(graph_, body_.nodes[id]);
    std::string where = site.op;
    for (const std::string& more : {site.module, site.source})
      if (!more.empty()) where += ", " + more;
    RankViolation made{
        .invariant = "ranks-baked",
        .message = fmt::format("the piece begins at {} on every rank, and {} ({})", start, why, where),
        .ranks = {own_rank(graph_)}};
    made.nodes = {std::string(graph_.text(body_.nodes[id].name))};
    made.value = start;
    found_.push_back(std::move(made));
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  Facts facts_;
  std::set<StringId> coordinates_;  // their symbols
  std::map<Line, Pieces> lines_;
  std::vector<RankViolation> found_;
};

}  // namespace

std::vector<RankViolation> find_baked_slices(const Graph& graph) {
  return is_rank_agnostic(graph) ? SliceCheck(graph).find() : std::vector<RankViolation>();
}

}  // namespace epweave
