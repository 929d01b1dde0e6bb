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
#include "compare/ranks/modules_alike.h"
#include "compare/ranks/rank_baked.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

class SliceCheck {
 public:
  explicit SliceCheck(const Graph& graph)
      : graph_(graph), context_(*graph.context), body_(graph.step()), facts_(graph), rows_(graph) {}

  std::vector<RankViolation> find() {
    find_coordinates();
    if (coordinates_.empty()) return {};
    const NodeLists users = list_users(context_, body_);
    for (NodeId id : body_.order) read(id, !users[id].empty());
    for (const auto& [line, modules] : lines_) check(modules);
    for (const auto& [line, layers] : layers_) check_layers(layers);
    return std::move(found_);
  }

 private:
  // What one line of the model's code does in each of its calls: source, direction, dimension, and
  // extents of the piece and of what it is cut from.
  using Line = std::tuple<StringId, bool, std::size_t, ExprId, ExprId>;
  // What it takes in one module.
  struct Pieces {
    std::vector<NodeId> by_coordinate;
    std::map<std::int64_t, std::vector<NodeId>> by_number;  // that something reads, by start
  };
  using OfModules = std::map<StringId, Pieces>;
  // Where the elements begin that a line takes, by module. `generalize`, which makes such slices,
  // has one symbol for each axis.
  using Starts = std::map<ExprId, NodeId>;
  using Layers = std::map<StringId, Starts>;

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
    if (const auto rows = rows_.find(facts_, id))
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
    const bool is_element =
        node.extra != nullptr && find_entry(context_, node.extra->meta, kElementOfKey) != nullptr;
    if (start && is_element)
      return add(id, *start, "it stands for an element that each rank takes at its own place (element_of)");
    const auto extent = context_.exprs.constant(piece->extent);
    if (is_element && extent && follows_coordinate(piece->start) &&
        context_.exprs.constant(context_.exprs.mod(piece->start, piece->extent)) != 0) {
      add_wrong(id, fmt::format("the piece begins at {}, and the elements of which it is one (element_of) at "
                                "multiples of {}",
                                text(piece->start), *extent));
      return;
    }
    if (!node.source) return;
    const Line line{node.source, node.is_backward(), piece->dim, piece->extent, whole->sizes[piece->dim]};
    const auto alike = std::pair(line, name_of_modules_alike(graph_.text(node.module)));
    if (start && is_read) lines_[alike][node.module].by_number[*start].push_back(id);
    if (start || !follows_coordinate(piece->start)) return;
    lines_[alike][node.module].by_coordinate.push_back(id);
    if (is_element && node.module) layers_[alike][node.module].emplace(piece->start, id);
  }

  // A module that takes fewer pieces of the rank's own place than another alike does, and more at a
  // number in their stead. What all of them take at a number, the code says.
  void check(const OfModules& modules) {
    const auto count = [](const auto& entry) { return entry.second.by_coordinate.size(); };
    const Pieces& usual = std::ranges::max_element(modules, {}, count)->second;
    for (const auto& [module, pieces] : modules) {
      if (pieces.by_coordinate.size() == usual.by_coordinate.size()) continue;
      for (const auto& [start, taken] : pieces.by_number) {
        const auto same = usual.by_number.find(start);
        if (same != usual.by_number.end() && same->second.size() >= taken.size()) continue;
        for (NodeId id : taken)
          add(id, start,
              fmt::format("the same line of code takes the rank's own in %{}",
                          graph_.text(body_.nodes[usual.by_coordinate.front()].name)));
      }
    }
  }

  // A layer whose pieces begin elsewhere than those of most others, and not where these do.
  void check_layers(const Layers& layers) {
    std::map<std::vector<ExprId>, std::vector<const Starts*>> alike;
    for (const auto& [module, starts] : layers) {
      std::vector<ExprId> begin;
      for (const auto& [start, id] : starts) begin.push_back(start);
      alike[begin].push_back(&starts);
    }
    const auto most =
        std::ranges::max_element(alike, {}, [](const auto& entry) { return entry.second.size(); });
    if (2 * most->second.size() <= layers.size()) return;
    const auto& [usual, same] = *most;
    for (const auto& [begin, others] : alike) {
      if (std::ranges::includes(begin, usual)) continue;
      for (const Starts* starts : others)
        for (const auto& [start, id] : *starts)
          if (!std::ranges::binary_search(usual, start))
            add_wrong(id,
                      fmt::format("the piece begins at {}; in {} of {} modules alike the same line of code "
                                  "takes it at {}, as in %{}",
                                  text(start), same.size(), layers.size(), text(usual[0]),
                                  graph_.text(body_.nodes[same[0]->at(usual[0])].name)));
    }
  }

  void add(NodeId id, std::int64_t start, std::string_view why) {
    add_wrong(id, fmt::format("the piece begins at {} on every rank, and {}", start, why)).value = start;
  }
  RankViolation& add_wrong(NodeId id, const std::string& what) {
    RankViolation made{.invariant = "ranks-baked",
                       .message = fmt::format("{} {}", what, print_place(graph_, id)),
                       .ranks = {own_rank(graph_)}};
    made.nodes = {std::string(graph_.text(body_.nodes[id].name))};
    return found_.emplace_back(std::move(made));
  }
  std::string_view text(ExprId expr) const { return context_.exprs.text(expr); }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  Facts facts_;
  ShownRowsFinder rows_;
  std::set<StringId> coordinates_;  // their symbols
  using OfModulesAlike = std::pair<Line, std::string>;
  std::map<OfModulesAlike, OfModules> lines_;
  std::map<OfModulesAlike, Layers> layers_;
  std::vector<RankViolation> found_;
};

}  // namespace

std::vector<RankViolation> find_baked_slices(const Graph& graph) {
  return is_rank_agnostic(graph) ? SliceCheck(graph).find() : std::vector<RankViolation>();
}

}  // namespace epweave
