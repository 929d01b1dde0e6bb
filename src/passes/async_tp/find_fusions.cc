#include "passes/async_tp/find_fusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "passes/async_tp/rank_blocks.h"

namespace epweave {
namespace {

// Along the last dimension each block is a product over fewer columns, and the kernel adds them up:
// worth it only where a block has many (torch's limit).
constexpr std::int64_t kLeastColumns = 1024;

// How many calls may move in front of a fused call for one product: each gather looks at no more.
constexpr std::size_t kMostMoved = 1000;

// Why a collective is not fused; empty: it is.
using Reason = std::string;
constexpr const char* kNoRanks = "the table of process groups has no ranks of its group";

class FusionFinder {
 public:
  FusionFinder(const Graph& graph, const std::set<StringId>& groups)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        groups_(groups),
        facts_(graph),
        inputs_(list_inputs(context_, body_)),
        users_(invert(inputs_, body_.order)),
        position_(find_positions(body_, body_.order)),
        effects_(graph, body_),
        blocks_(graph) {
    const auto& edges = effects_.order_edges();
    std::vector<std::pair<NodeId, NodeId>> back, forth;
    for (const OrderEdge& edge : edges) {
      back.emplace_back(edge.after, edge.before);
      forth.emplace_back(edge.before, edge.after);
    }
    before_ = list_pairs(body_.nodes.size(), back);
    behind_ = list_pairs(body_.nodes.size(), forth);
  }

  Fusions run() {
    std::vector<Launch> sends;
    for (const Launch& launch : find_launches(context_, body_)) {
      const OpFamily family = node(launch.node).op->family;
      if (family != OpFamily::kAllGather && family != OpFamily::kReduceScatter) continue;
      if (!groups_.contains(recorded_group(context_, body_, launch.group))) {
        ++result_.others;
        continue;
      }
      result_.are_looked_up |= launch.group.is_node();
      if (family == OpFamily::kReduceScatter) {
        is_candidate_.insert(launch.node);
        sends.push_back(launch);
      } else {
        gathers_left_.push_back(launch.node);
      }
    }
    for (NodeId launch : list_fusible_gathers()) is_candidate_.insert(launch);
    for (NodeId launch : gathers_left_) {
      GatherFusion gather;
      if (const Reason why = find_gather(launch, gather); !why.empty())
        report(launch, why);
      else
        take(std::move(gather));
    }
    for (const Launch& launch : sends) {
      ScatterFusion scatter;
      if (const Reason why = find_scatter(launch.node, scatter); !why.empty())
        report(launch.node, why);
      else
        result_.scatters.push_back(std::move(scatter));
    }
    std::ranges::sort(result_.missed, {}, [&](const auto& miss) { return position_[miss.first]; });
    return std::move(result_);
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  std::string name(NodeId id) const { return fmt::format("%{}", graph_.text(node(id).name)); }
  const TensorType* tensor(NodeId id) const { return tensor_of(context_, node(id).type); }
  bool is_of(NodeId id, OpFamily family) const {
    return node(id).op != nullptr && node(id).op->family == family;
  }
  void report(NodeId launch, Reason why) { result_.missed.emplace_back(launch, std::move(why)); }

  std::int64_t ranks_of(NodeId launch) const {
    const Arg group = arg_of(context_, node(launch), group_position(*node(launch).op));
    return static_cast<std::int64_t>(graph_.find_group(recorded_group(context_, body_, group))->ranks.size());
  }

  // ------------------------------------------------------------------------- the collective

  Reason find_wait(NodeId launch, Fusion& found) const {
    const OpInfo& op = *node(launch).op;
    if (op.writes || op.params[0].type != "Tensor") return "it fills a buffer, or is several in one";
    const auto users = users_[launch];
    if (users.size() != 1 || !is_wait(node(users.front()))) return "something but one wait takes its result";
    found.nodes.launch = launch;
    found.nodes.wait = found.value = users.front();
    return {};
  }

  // Where all that reads the wait cuts it into the ranks' blocks, which one call joins along
  // another dimension.
  Reason find_join(std::int64_t ranks, Fusion& found) const {
    std::vector<NodeId> cuts, pieces;
    for (NodeId user : users_[found.nodes.wait]) {
      const bool is_split = is_of(user, OpFamily::kSplit);
      if (!is_split && !is_of(user, OpFamily::kSlice)) return {};
      if (is_split)
        cuts.push_back(user);
      else
        pieces.push_back(user);
    }
    for (NodeId cut : cuts) pieces.insert(pieces.end(), users_[cut].begin(), users_[cut].end());
    if (pieces.empty() || users_[pieces.front()].empty()) return {};
    const NodeId join = users_[pieces.front()].front();
    const bool is_joined = is_of(join, OpFamily::kJoin) && std::ranges::all_of(pieces, [&](NodeId piece) {
                             return users_[piece].size() == 1 && users_[piece].front() == join;
                           });
    if (!is_joined) return {};
    const auto dim = blocks_.find(join, found.nodes.wait, ranks);
    if (!dim || dim->from != 0 || dim->to == 0 || cuts.size() > 1 ||
        pieces.size() != static_cast<std::size_t>(ranks))
      return "its blocks are cut and joined otherwise than by the ranks";
    found.nodes.cuts = blocks_.list_nodes(join);
    found.value = join;
    found.dim = dim->to;
    return {};
  }

  // ------------------------------------------------------------------------- products

  bool is_product(NodeId id) const { return node(id).op != nullptr && node(id).op->type_rule == rules::mm; }
  bool is_scaled_product(NodeId id) const {
    return node(id).op != nullptr && node(id).op->type_rule == rules::scaled_mm;
  }
  bool is_reshape(NodeId id) const { return is_of(id, OpFamily::kReshape) && tensor(id) != nullptr; }
  bool has_last(NodeId id, ExprId extent) {
    return !tensor(id)->sizes.empty() && facts_.equal(tensor(id)->sizes.back(), extent);
  }
  bool has_sizes(NodeId id, const Dims& sizes) {
    const TensorType* type = tensor(id);
    return type != nullptr &&
           std::ranges::equal(type->sizes, sizes, [&](ExprId a, ExprId b) { return facts_.equal(a, b); });
  }

  // The others move in front of fused calls as calls that are no collectives of these groups do.
  std::vector<NodeId> list_fusible_gathers() {
    std::vector<NodeId> fusible;
    for (NodeId launch : gathers_left_)
      if (GatherFusion gather; find_gather(launch, gather).empty()) fusible.push_back(launch);
    return fusible;
  }

  void take(GatherFusion gather) {
    const NodeId launch = gather.nodes.launch;
    for (const FusedNodes::Product& product : gather.nodes.products) is_taken_.at(product.call) = launch;
    for (NodeId id : gather.moved) set_anchor(id, launch);
    for (auto& [call, why] : left_out_) report(call, fmt::format("with {}: {}", name(launch), why));
    result_.gathers.push_back(std::move(gather));
  }

  Reason find_gather(NodeId launch, GatherFusion& found) {
    if (Reason why = find_wait(launch, found); !why.empty()) return why;
    const Arg shard = arg_of(context_, node(launch), 0);
    const TensorType* own = shard.is_node() ? tensor(shard.as_node()) : nullptr;
    if (own == nullptr || tensor(found.nodes.wait) == nullptr)
      return "the type of what it gathers is not recorded";
    if (own->rank() < 2) return "what it gathers has fewer than 2 dimensions: no product takes it as it is";
    if (ranks_of(launch) == 0) return kNoRanks;
    if (Reason why = find_join(ranks_of(launch), found); !why.empty()) return why;
    const bool is_last = found.dim + 1 == own->rank();
    const auto columns = context_.exprs.constant(own->sizes.back());
    if (is_last && (!columns || *columns < kLeastColumns))
      return fmt::format("it gathers along the last dimension, of {} a rank: fewer than {}",
                         context_.exprs.text(own->sizes.back()), kLeastColumns);
    if (Reason why = find_products(found); !why.empty()) return why;
    found.shows_rows = shows_rows(found);
    if (is_last && found.shows_rows)
      return "it gathers along the last dimension, and something but the products reads what it gathers";
    if (own->rank() > 2 && !has_numbers(*tensor(found.value)))
      return "what it gathers has more than 2 dimensions, of which one is a symbol: concretize first";
    return {};
  }

  bool has_numbers(const TensorType& type) const {
    return std::ranges::all_of(type.sizes,
                               [&](ExprId size) { return context_.exprs.constant(size).has_value(); });
  }

  // The products that take it as their left factor; and why others do not count.
  Reason find_products(GatherFusion& found) {
    const ExprId columns = tensor(found.value)->sizes.back();
    const Reason why = "no product takes it as its left factor";
    std::vector<std::pair<NodeId, NodeId>> lefts;  // the reshape, or none, and what reads it
    for (NodeId user : users_[found.value]) {
      if (is_reshape(user) && tensor(user)->rank() == 2 && has_last(user, columns))
        for (NodeId reader : users_[user]) lefts.emplace_back(user, reader);
      else
        lefts.emplace_back(NodeId(), user);
    }
    left_out_.clear();
    for (const auto& [reshape, call] : lefts) {
      const NodeId left = reshape ? reshape : found.value;
      if (is_scaled_product(call))
        left_out_.emplace_back(call, fmt::format("{} is a scaled product", name(call)));
      if (!is_product(call) || arg_of(context_, node(call), 0) != Arg::node(left)) continue;
      if (Reason no = hoist(found, call, found.moved); !no.empty())
        left_out_.emplace_back(call, std::move(no));
      else
        found.nodes.products.push_back({reshape, call, find_result(call, *tensor(found.value))});
    }
    if (found.nodes.products.empty()) return left_out_.empty() ? why : left_out_.back().second;
    return {};
  }

  // Of a product of rows that were reshaped: what gives them their dimensions back.
  NodeId find_result(NodeId call, const TensorType& rows) {
    if (rows.rank() == 2 || tensor(call) == nullptr) return {};
    Dims sizes = rows.sizes;
    sizes.back() = tensor(call)->sizes[1];
    for (NodeId user : users_[call])
      if (is_reshape(user) && has_sizes(user, sizes)) return user;
    return {};
  }

  bool shows_rows(const GatherFusion& gather) const {
    IdSet<NodeId> calls, reshapes;
    for (const FusedNodes::Product& product : gather.nodes.products) calls.insert(product.call);
    const auto is_own = [&](NodeId id) { return calls.contains(id); };
    for (NodeId user : users_[gather.value]) {
      if (is_own(user)) continue;
      const bool is_reshape_of_products =
          std::ranges::any_of(gather.nodes.products,
                              [&](const FusedNodes::Product& p) { return p.front == user; }) &&
          std::ranges::all_of(users_[user], is_own);
      if (!is_reshape_of_products) return true;
    }
    return false;
  }

  // Whether the product can be computed where the launch stands: what its right factor is computed
  // from moves there.
  Reason hoist(const Fusion& fusion, NodeId call, std::vector<NodeId>& to_move) const {
    const Arg right = arg_of(context_, node(call), 1);
    if (!right.is_node()) return fmt::format("the right factor of {} is no value", name(call));
    const std::uint32_t place = position_[fusion.nodes.launch];
    IdSet<NodeId> moved;
    std::vector<NodeId> all{call}, stack{right.as_node()};
    moved.insert(call);
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (id == fusion.nodes.launch) return fmt::format("the right factor of {} depends on it", name(call));
      if (position_[id] < place || !moved.insert(id)) continue;
      if (is_candidate_.contains(id))
        return fmt::format("the right factor of {} depends on {}, behind it", name(call), name(id));
      if (all.size() == kMostMoved)
        return fmt::format("more than {} calls lie between it and the right factor of {}", kMostMoved,
                           name(call));
      all.push_back(id);
      for (NodeId input : inputs_[id]) stack.push_back(input);
    }
    for (NodeId id : all)
      for (NodeId first : before_[id])
        if (position_[first] > place && !moved.contains(first) && first != fusion.nodes.wait)
          return fmt::format("{} has to stay behind {}", name(id), name(first));
    to_move.insert(to_move.end(), all.begin() + 1, all.end());
    return {};
  }
  void set_anchor(NodeId id, NodeId launch) {
    NodeId& earliest = result_.anchor.at(id);
    if (!earliest || position_[launch] < position_[earliest]) earliest = launch;
  }
  std::uint32_t new_position(NodeId id) const {
    return position_[result_.anchor[id] ? result_.anchor[id] : id];
  }

  // ------------------------------------------------------------------------- what is scattered

  Reason find_scatter(NodeId launch, ScatterFusion& found) {
    if (Reason why = find_wait(launch, found); !why.empty()) return why;
    const auto reduction = node(launch).op->find_param("reduce_op");
    const Arg op = arg_of(context_, node(launch), *reduction);
    if (!op.is(ArgKind::kText) ||
        (context_.text(op.as_name()) != "sum" && context_.text(op.as_name()) != "avg"))
      return "it neither adds nor averages";
    const Arg operand = arg_of(context_, node(launch), 0);
    if (!operand.is_node() || tensor(operand.as_node()) == nullptr)
      return "the type of its operand is not recorded";
    found.value = operand.as_node();
    if (ranks_of(launch) == 0) return kNoRanks;
    if (Reason why = find_cut(ranks_of(launch), found); !why.empty()) return why;
    return find_factor(found);
  }

  // Its operand joins the ranks' blocks of another value, cut along another dimension, in rows.
  Reason find_cut(std::int64_t ranks, Fusion& found) const {
    const NodeId join = found.value;
    if (!is_of(join, OpFamily::kJoin)) return {};
    const Arg list = arg_of(context_, node(join), 0);
    const auto items = list.is_tree() ? context_.args.children(list) : std::span<const Arg>();
    if (items.empty() || !items[0].is_node())
      return "what it reduces is joined from parts that are no blocks";
    NodeId cut = items[0].as_node();
    if (is_of(cut, OpFamily::kElement) && !inputs_[cut].empty()) cut = inputs_[cut].front();
    const NodeId value = inputs_[cut].empty() ? NodeId() : inputs_[cut].front();
    const auto blocks = value && tensor(value) != nullptr ? blocks_.find(join, value, ranks) : std::nullopt;
    if (!blocks || blocks->to != 0 || blocks->from == 0)
      return "what it reduces is joined from parts that are no blocks";
    if (users_[join].size() != 1) return fmt::format("{} is read elsewhere, too", name(join));
    for (const Arg item : items)
      if (users_[item.as_node()].size() != 1)
        return fmt::format("{} is read elsewhere, too", name(item.as_node()));
    const std::size_t readers = is_of(cut, OpFamily::kSplit) ? 1 : items.size();
    if (users_[value].size() != readers) return fmt::format("{} is read elsewhere, too", name(value));
    found.nodes.cuts = blocks_.list_nodes(join);
    found.value = value;
    found.dim = blocks->from;
    return {};
  }

  Reason find_factor(ScatterFusion& found) {
    FusedNodes::Product& product = found.nodes.products.emplace_back();
    NodeId call = found.value;
    if (found.nodes.cuts.empty() && users_[call].size() != 1)
      return fmt::format("{} is read elsewhere, too", name(call));
    if (is_reshape(call)) {
      const Arg from = arg_of(context_, node(call), 0);
      const bool keeps_columns = from.is_node() && tensor(from.as_node()) != nullptr &&
                                 tensor(from.as_node())->rank() == 2 &&
                                 has_last(call, tensor(from.as_node())->sizes[1]);
      if (!keeps_columns)
        return fmt::format("{} is no product but for a reshape that keeps its columns", name(call));
      product.back = call;
      call = from.as_node();
      if (users_[call].size() != 1) return fmt::format("{} is read elsewhere, too", name(call));
    }
    if (is_scaled_product(call)) return fmt::format("{} is a scaled product", name(call));
    if (!is_product(call)) return fmt::format("{} is no product", name(call));
    if (is_taken_[call]) return fmt::format("its product is fused with {}", name(is_taken_[call]));
    product.call = call;
    const Arg left = arg_of(context_, node(call), 0);
    if (!left.is_node() || !arg_of(context_, node(call), 1).is_node()) return "a factor is no value";
    if (!has_place(call, found.nodes.launch))
      return fmt::format("a factor of {} is written before it is sent", name(call));
    const TensorType& scattered = *tensor(found.value);
    if (scattered.rank() == 2) {
      found.rows = left.as_node();
      return {};
    }
    if (scattered.rank() < 2) return "what it reduces has fewer than 2 dimensions";
    if (!has_numbers(scattered) || !has_numbers(*tensor(left.as_node())))
      return "what it reduces has more than 2 dimensions, of which one is a symbol: concretize first";
    Dims rows = scattered.sizes;
    rows.back() = tensor(left.as_node())->sizes[1];
    if (is_reshape(left.as_node())) {
      const Arg from = arg_of(context_, node(left.as_node()), 0);
      if (from.is_node() && has_sizes(from.as_node(), rows)) {
        product.front = left.as_node();
        found.rows = from.as_node();
      }
    }
    return {};
  }

  // Whether the product may be computed as late as the launch.
  bool has_place(NodeId call, NodeId launch) const {
    return std::ranges::all_of(behind_[call],
                               [&](NodeId last) { return new_position(last) > position_[launch]; });
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const std::set<StringId>& groups_;
  Facts facts_;
  NodeLists inputs_, users_;
  IdVector<NodeId, std::uint32_t> position_;
  Effects effects_;
  RankBlocks blocks_;
  NodeLists before_, behind_;  // by order edges
  std::vector<NodeId> gathers_left_;
  IdSet<NodeId> is_candidate_;                       // collectives that stay where they are
  std::vector<std::pair<NodeId, Reason>> left_out_;  // products of the gather looked at last, and why
  SideTable<NodeId, NodeId> is_taken_;               // a product, by the gather that it is fused with
  Fusions result_;
};

}  // namespace

Fusions find_fusions(const Graph& graph, const std::set<StringId>& groups) {
  return FusionFinder(graph, groups).run();
}

}  // namespace epweave
