#include "passes/async_tp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/fused_products.h"
#include "analysis/users.h"
#include "base/nearest_name.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_memo.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/record.h"

namespace epweave {
namespace {

// Along the last dimension each block is a product over fewer columns, and the kernel adds them up:
// worth it only where a block has many (torch's limit).
constexpr std::int64_t kLeastColumns = 1024;

// How many calls may move in front of a fused call for one product: each gather looks at no more.
constexpr std::size_t kMostMoved = 1000;

constexpr std::string_view kGatherMatmul = "symm_mem.fused_all_gather_matmul.default";
constexpr std::string_view kElement = "operator.getitem";
constexpr std::string_view kMatmulScatter = "symm_mem.fused_matmul_reduce_scatter.default";

// A collective of the axes' groups, its wait, and the cuts and joins that put the ranks' blocks
// along `dim`.
struct Exchange {
  NodeId launch, wait;
  std::vector<NodeId> regroup;  // empty; or split (none, where slices cut), pieces, join
  NodeId value;  // gather: the whole value. Scatter: what is reduced, before its blocks are put in rows
  std::size_t dim = 0;
};

struct Product {
  NodeId left_reshape;  // or none
  NodeId call;
  NodeId result;  // a reshape of it that gives the rows their dimensions back; or none
};

struct Gather {
  Exchange exchange;
  std::vector<Product> products;
  std::vector<NodeId> moved;  // what the right factors are computed from, behind the launch
  bool shows_rows = false;    // something else reads what is gathered
};

struct Scatter {
  Exchange exchange;
  Product product;
  NodeId rows;  // the left factor, with the dimensions of what is scattered; none: reshape the factor
};

// Why a collective is not fused; empty: it is.
using Reason = std::string;
constexpr const char* kNoRanks = "the table of process groups has no ranks of its group";

// ---------------------------------------------------------------------------- finding

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
        effects_(context_, body_) {
    const auto& edges = effects_.order_edges();
    std::vector<std::pair<NodeId, NodeId>> back, forth;
    for (const OrderEdge& edge : edges) {
      back.emplace_back(edge.after, edge.before);
      forth.emplace_back(edge.before, edge.after);
    }
    before_ = list_pairs(body_.nodes.size(), back);
    behind_ = list_pairs(body_.nodes.size(), forth);
  }

  void run() {
    std::vector<Launch> sends;
    for (const Launch& launch : find_launches(context_, body_)) {
      const OpFamily family = node(launch.node).op->family;
      if (family != OpFamily::kAllGather && family != OpFamily::kReduceScatter) continue;
      if (!groups_.contains(recorded_group(context_, body_, launch.group))) {
        ++others;
        continue;
      }
      is_candidate_.insert(launch.node);
      if (launch.group.is_node()) {
        report(launch.node,
               "its group is looked up at run time, and a fused call takes a name: specialize first");
      } else if (family == OpFamily::kReduceScatter) {
        sends.push_back(launch);
      } else {
        gathers_left_.push_back(launch.node);
      }
    }
    for (NodeId launch : gathers_left_) {
      Gather gather;
      if (const Reason why = find_gather(launch, gather); !why.empty())
        report(launch, why);
      else
        gathers.push_back(std::move(gather));
    }
    for (const Launch& launch : sends) {
      Scatter scatter;
      if (const Reason why = find_scatter(launch.node, scatter); !why.empty())
        report(launch.node, why);
      else
        scatters.push_back(std::move(scatter));
    }
    std::ranges::sort(missed, {}, [&](const auto& miss) { return position_[miss.first]; });
  }

  std::vector<Gather> gathers;
  std::vector<Scatter> scatters;
  std::vector<std::pair<NodeId, Reason>> missed;
  std::size_t others = 0;  // gathers and reduce-scatters of other groups

  const NodeLists& users() const { return users_; }
  std::uint32_t position(NodeId id) const { return position_[id]; }
  // The launch in front of which the node moves; or none.
  NodeId anchor(NodeId id) const { return anchor_[id]; }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  std::string name(NodeId id) const { return fmt::format("%{}", graph_.text(node(id).name)); }
  const TensorType* tensor(NodeId id) const { return tensor_of(context_, node(id).type); }
  bool is_of(NodeId id, OpFamily family) const {
    return node(id).op != nullptr && node(id).op->family == family;
  }
  void report(NodeId launch, Reason why) { missed.emplace_back(launch, std::move(why)); }

  std::int64_t ranks_of(NodeId launch) const {
    const Arg group = arg_of(context_, node(launch), group_position(*node(launch).op));
    return static_cast<std::int64_t>(graph_.find_group(group.as_name())->ranks.size());
  }

  // ------------------------------------------------------------------------- the collective

  Reason find_wait(NodeId launch, Exchange& found) const {
    const OpInfo& op = *node(launch).op;
    if (op.writes || op.params[0].type != "Tensor") return "it fills a buffer, or is several in one";
    const auto users = users_[launch];
    if (users.size() != 1 || !is_wait(node(users.front()))) return "something but one wait takes its result";
    found.launch = launch;
    found.wait = found.value = users.front();
    return {};
  }

  // Where all that reads the wait cuts it into the ranks' blocks, which one call joins along
  // another dimension.
  Reason find_join(std::int64_t ranks, Exchange& found) const {
    std::vector<NodeId> cuts, pieces;
    for (NodeId user : users_[found.wait]) {
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
    const auto dim = blocks_of(join, found.wait, ranks);
    if (!dim || dim->from != 0 || dim->to == 0 || cuts.size() > 1 ||
        pieces.size() != static_cast<std::size_t>(ranks))
      return "its blocks are cut and joined otherwise than by the ranks";
    found.regroup = list_regroup(join);
    found.value = join;
    found.dim = dim->to;
    return {};
  }

  // Of a join of blocks.
  std::vector<NodeId> list_regroup(NodeId join) const {
    const auto items = context_.args.children(arg_of(context_, node(join), 0));
    const NodeId first = items[0].as_node();
    std::vector<NodeId> nodes{is_of(first, OpFamily::kElement) ? inputs_[first].front() : NodeId()};
    for (const Arg item : items) nodes.push_back(item.as_node());
    nodes.push_back(join);
    return nodes;
  }

  // `join` puts the n equal blocks of `value` along `from`, in their order, along `to`.
  struct BlockDims {
    std::size_t from = 0, to = 0;
  };
  std::optional<BlockDims> blocks_of(NodeId join, NodeId value, std::int64_t ranks) const {
    const TensorType *whole = tensor(value), *joined = tensor(join);
    const Arg list = arg_of(context_, node(join), 0);
    if (whole == nullptr || joined == nullptr || !list.is_tree()) return std::nullopt;
    const auto items = context_.args.children(list);
    if (items.size() != static_cast<std::size_t>(ranks)) return std::nullopt;
    const auto to = dimension(join, "dim", joined->rank());
    std::optional<std::size_t> from;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (!items[i].is_node()) return std::nullopt;
      const auto at = block_of(items[i].as_node(), value, i, ranks);
      if (!at || (from && *from != *at)) return std::nullopt;
      from = at;
    }
    if (!to || !from) return std::nullopt;
    return BlockDims{*from, *to};
  }

  // The dimension along which the node is block `index` of the n equal ones of `value`; or none.
  std::optional<std::size_t> block_of(NodeId id, NodeId value, std::size_t index, std::int64_t ranks) const {
    const TensorType *block = tensor(id), *whole = tensor(value);
    if (block == nullptr || block->rank() != whole->rank()) return std::nullopt;
    NodeId cut = id;
    if (is_of(id, OpFamily::kElement)) {
      const auto element = tuple_element(context_, body_, node(id));
      if (!element || element->index != static_cast<std::int64_t>(index)) return std::nullopt;
      cut = element->tuple;
      if (!is_of(cut, OpFamily::kSplit)) return std::nullopt;
    } else if (!is_of(id, OpFamily::kSlice) || !node(id).op->is_view) {
      return std::nullopt;
    }
    if (arg_of(context_, node(cut), 0) != Arg::node(value)) return std::nullopt;
    const auto dim = dimension(cut, "dim", whole->rank());
    if (!dim) return std::nullopt;
    const auto rows = context_.exprs.constant(whole->sizes[*dim]),
               own = context_.exprs.constant(block->sizes[*dim]);
    if (!rows || !own || *own * ranks != *rows) return std::nullopt;
    if (cut != id) return has_equal_pieces(cut, *dim, *own, ranks) ? dim : std::nullopt;
    const auto number = [&](std::string_view param, std::int64_t fallback) -> std::optional<std::int64_t> {
      const auto at = node(id).op->find_param(param);
      const Arg arg = at ? arg_of(context_, node(id), *at) : Arg::none();
      if (arg.is_none()) return fallback;
      return arg.is_int() ? std::optional(arg.as_int()) : std::nullopt;
    };
    const bool begins = number("start", 0) == *own * static_cast<std::int64_t>(index);
    return begins && number("step", 1) == 1 ? dim : std::nullopt;
  }

  bool has_equal_pieces(NodeId split, std::size_t dim, std::int64_t own, std::int64_t ranks) const {
    const auto& pieces = context_.types[node(split).type].elements;
    return std::cmp_equal(pieces.size(), ranks) && std::ranges::all_of(pieces, [&](TypeId piece) {
             const TensorType* type = tensor_of(context_, piece);
             return type != nullptr && context_.exprs.constant(type->sizes[dim]) == own;
           });
  }

  std::optional<std::size_t> dimension(NodeId id, std::string_view param, std::size_t rank) const {
    const auto at = node(id).op->find_param(param);
    if (!at) return std::nullopt;
    const Arg arg = arg_of(context_, node(id), *at);
    std::int64_t dim = arg.is_none() ? 0 : arg.is_int() ? arg.as_int() : INT64_MIN;
    if (dim < 0) dim += static_cast<std::int64_t>(rank);
    if (dim < 0 || dim >= static_cast<std::int64_t>(rank)) return std::nullopt;
    return static_cast<std::size_t>(dim);
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

  Reason find_gather(NodeId launch, Gather& found) {
    Exchange& exchange = found.exchange;
    if (Reason why = find_wait(launch, exchange); !why.empty()) return why;
    const Arg shard = arg_of(context_, node(launch), 0);
    const TensorType* own = shard.is_node() ? tensor(shard.as_node()) : nullptr;
    if (own == nullptr || tensor(exchange.wait) == nullptr)
      return "the type of what it gathers is not recorded";
    if (own->rank() < 2) return "what it gathers has fewer than 2 dimensions: no product takes it as it is";
    if (ranks_of(launch) == 0) return kNoRanks;
    if (Reason why = find_join(ranks_of(launch), exchange); !why.empty()) return why;
    const bool is_last = exchange.dim + 1 == own->rank();
    const auto columns = context_.exprs.constant(own->sizes.back());
    if (is_last && (!columns || *columns < kLeastColumns))
      return fmt::format("it gathers along the last dimension, of {} a rank: fewer than {}",
                         context_.exprs.text(own->sizes.back()), kLeastColumns);
    if (Reason why = find_products(found); !why.empty()) return why;
    found.shows_rows = shows_rows(found);
    if (is_last && found.shows_rows)
      return "it gathers along the last dimension, and something but the products reads what it gathers";
    if (own->rank() > 2 && !has_numbers(*tensor(exchange.value)))
      return "what it gathers has more than 2 dimensions, of which one is a symbol: concretize first";
    for (const Product& product : found.products) is_taken_.at(product.call) = launch;
    for (NodeId id : found.moved) set_anchor(id, launch);
    return {};
  }

  bool has_numbers(const TensorType& type) const {
    return std::ranges::all_of(type.sizes,
                               [&](ExprId size) { return context_.exprs.constant(size).has_value(); });
  }

  // The products that take it as their left factor; and why others do not count.
  Reason find_products(Gather& found) {
    const Exchange& exchange = found.exchange;
    const ExprId columns = tensor(exchange.value)->sizes.back();
    const Reason why = "no product takes it as its left factor";
    std::vector<std::pair<NodeId, NodeId>> lefts;  // the reshape, or none, and what reads it
    for (NodeId user : users_[exchange.value]) {
      if (is_reshape(user) && tensor(user)->rank() == 2 && has_last(user, columns))
        for (NodeId reader : users_[user]) lefts.emplace_back(user, reader);
      else
        lefts.emplace_back(NodeId(), user);
    }
    std::vector<std::pair<NodeId, Reason>> left_out;
    for (const auto& [reshape, call] : lefts) {
      const NodeId left = reshape ? reshape : exchange.value;
      if (is_scaled_product(call))
        left_out.emplace_back(call, fmt::format("{} is a scaled product", name(call)));
      if (!is_product(call) || arg_of(context_, node(call), 0) != Arg::node(left)) continue;
      if (Reason no = hoist(exchange, call, found.moved); !no.empty())
        left_out.emplace_back(call, std::move(no));
      else
        found.products.push_back({reshape, call, find_result(call, *tensor(exchange.value))});
    }
    if (found.products.empty()) return left_out.empty() ? why : left_out.back().second;
    for (auto& [call, no] : left_out) report(call, fmt::format("with {}: {}", name(exchange.launch), no));
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

  bool shows_rows(const Gather& gather) const {
    IdSet<NodeId> calls, reshapes;
    for (const Product& product : gather.products) calls.insert(product.call);
    const auto is_own = [&](NodeId id) { return calls.contains(id); };
    for (NodeId user : users_[gather.exchange.value]) {
      if (is_own(user)) continue;
      const bool is_reshape_of_products =
          std::ranges::any_of(gather.products, [&](const Product& p) { return p.left_reshape == user; }) &&
          std::ranges::all_of(users_[user], is_own);
      if (!is_reshape_of_products) return true;
    }
    return false;
  }

  // Whether the product can be computed where the launch stands: what its right factor is computed
  // from moves there.
  Reason hoist(const Exchange& exchange, NodeId call, std::vector<NodeId>& to_move) const {
    const Arg right = arg_of(context_, node(call), 1);
    if (!right.is_node()) return fmt::format("the right factor of {} is no value", name(call));
    const std::uint32_t place = position_[exchange.launch];
    IdSet<NodeId> moved;
    std::vector<NodeId> all{call}, stack{right.as_node()};
    moved.insert(call);
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (id == exchange.launch) return fmt::format("the right factor of {} depends on it", name(call));
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
        if (position_[first] > place && !moved.contains(first) && first != exchange.wait)
          return fmt::format("{} has to stay behind {}", name(id), name(first));
    to_move.insert(to_move.end(), all.begin() + 1, all.end());
    return {};
  }
  void set_anchor(NodeId id, NodeId launch) {
    NodeId& earliest = anchor_.at(id);
    if (!earliest || position_[launch] < position_[earliest]) earliest = launch;
  }
  std::uint32_t new_position(NodeId id) const { return position_[anchor_[id] ? anchor_[id] : id]; }

  // ------------------------------------------------------------------------- what is scattered

  Reason find_scatter(NodeId launch, Scatter& found) {
    Exchange& exchange = found.exchange;
    if (Reason why = find_wait(launch, exchange); !why.empty()) return why;
    const auto reduction = node(launch).op->find_param("reduce_op");
    const Arg op = arg_of(context_, node(launch), *reduction);
    if (!op.is(ArgKind::kText) ||
        (context_.text(op.as_name()) != "sum" && context_.text(op.as_name()) != "avg"))
      return "it neither adds nor averages";
    const Arg operand = arg_of(context_, node(launch), 0);
    if (!operand.is_node() || tensor(operand.as_node()) == nullptr)
      return "the type of its operand is not recorded";
    exchange.value = operand.as_node();
    if (ranks_of(launch) == 0) return kNoRanks;
    if (Reason why = find_cut(ranks_of(launch), exchange); !why.empty()) return why;
    return find_factor(found);
  }

  // Its operand joins the ranks' blocks of another value, cut along another dimension, in rows.
  Reason find_cut(std::int64_t ranks, Exchange& found) const {
    const NodeId join = found.value;
    if (!is_of(join, OpFamily::kJoin)) return {};
    const Arg list = arg_of(context_, node(join), 0);
    const auto items = list.is_tree() ? context_.args.children(list) : std::span<const Arg>();
    if (items.empty() || !items[0].is_node())
      return "what it reduces is joined from parts that are no blocks";
    NodeId cut = items[0].as_node();
    if (is_of(cut, OpFamily::kElement) && !inputs_[cut].empty()) cut = inputs_[cut].front();
    const NodeId value = inputs_[cut].empty() ? NodeId() : inputs_[cut].front();
    const auto blocks = value && tensor(value) != nullptr ? blocks_of(join, value, ranks) : std::nullopt;
    if (!blocks || blocks->to != 0 || blocks->from == 0)
      return "what it reduces is joined from parts that are no blocks";
    if (users_[join].size() != 1) return fmt::format("{} is read elsewhere, too", name(join));
    for (const Arg item : items)
      if (users_[item.as_node()].size() != 1)
        return fmt::format("{} is read elsewhere, too", name(item.as_node()));
    const std::size_t readers = is_of(cut, OpFamily::kSplit) ? 1 : items.size();
    if (users_[value].size() != readers) return fmt::format("{} is read elsewhere, too", name(value));
    found.regroup = list_regroup(join);
    found.value = value;
    found.dim = blocks->from;
    return {};
  }

  Reason find_factor(Scatter& found) {
    const Exchange& exchange = found.exchange;
    NodeId call = exchange.value;
    if (exchange.regroup.empty() && users_[call].size() != 1)
      return fmt::format("{} is read elsewhere, too", name(call));
    if (is_reshape(call)) {
      const Arg from = arg_of(context_, node(call), 0);
      const bool keeps_columns = from.is_node() && tensor(from.as_node()) != nullptr &&
                                 tensor(from.as_node())->rank() == 2 &&
                                 has_last(call, tensor(from.as_node())->sizes[1]);
      if (!keeps_columns)
        return fmt::format("{} is no product but for a reshape that keeps its columns", name(call));
      found.product.result = call;
      call = from.as_node();
      if (users_[call].size() != 1) return fmt::format("{} is read elsewhere, too", name(call));
    }
    if (is_scaled_product(call)) return fmt::format("{} is a scaled product", name(call));
    if (!is_product(call)) return fmt::format("{} is no product", name(call));
    if (is_taken_[call]) return fmt::format("its product is fused with {}", name(is_taken_[call]));
    found.product.call = call;
    const Arg left = arg_of(context_, node(call), 0);
    if (!left.is_node() || !arg_of(context_, node(call), 1).is_node()) return "a factor is no value";
    if (!has_place(call, exchange.launch))
      return fmt::format("a factor of {} is written before it is sent", name(call));
    const TensorType& scattered = *tensor(exchange.value);
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
        found.product.left_reshape = left.as_node();
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
  NodeLists before_, behind_;  // by order edges
  std::vector<NodeId> gathers_left_;
  IdSet<NodeId> is_candidate_;
  SideTable<NodeId, NodeId> is_taken_;  // a product, by the gather that it is fused with
  SideTable<NodeId, NodeId> anchor_;    // the launch in front of which it moves
};

// ---------------------------------------------------------------------------- writing

class FusionWriter {
 public:
  FusionWriter(Graph& graph, const FusionFinder& found)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        found_(found),
        facts_(graph),
        types_(facts_),
        names_(graph, graph.step()),
        pass_(graph.intern("async-tp")) {}

  void run() {
    take_out();
    SideTable<NodeId, std::uint32_t> gather_at{kNone}, scatter_at{kNone};
    for (std::uint32_t i = 0; i < found_.gathers.size(); ++i)
      gather_at.at(found_.gathers[i].exchange.launch) = i;
    for (std::uint32_t i = 0; i < found_.scatters.size(); ++i)
      scatter_at.at(found_.scatters[i].exchange.launch) = i;
    std::vector<NodeId> anchored;
    for (NodeId id : body_.order)
      if (found_.anchor(id)) anchored.push_back(id);
    const NodeLists moved = list_moved(anchored);
    const std::vector<NodeId> old = std::move(body_.order);
    body_.order.clear();
    for (NodeId id : old) {
      for (NodeId early : moved[id])
        if (!gone_.contains(early)) place(early, id);
      if (gather_at[id] != kNone) write(found_.gathers[gather_at[id]]);
      if (scatter_at[id] != kNone) write(found_.scatters[scatter_at[id]]);
      if (!gone_.contains(id) && !found_.anchor(id)) place(id, {});
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;

  NodeLists list_moved(std::span<const NodeId> anchored) const {
    std::vector<std::pair<NodeId, NodeId>> pairs;
    for (NodeId id : anchored) pairs.emplace_back(found_.anchor(id), id);
    return list_pairs(body_.nodes.size(), pairs);
  }

  // ------------------------------------------------------------------------- what goes

  void take_out(const Exchange& exchange) {
    gone_.insert(exchange.launch);
    gone_.insert(exchange.wait);
    for (NodeId id : exchange.regroup)
      if (id) gone_.insert(id);
  }
  void take_out(const Product& product) {
    gone_.insert(product.call);
    if (product.result) gone_.insert(product.result);
    front_of_.at(product.call) = product.left_reshape;
  }
  // The reshape in front of a product, unless something else reads it.
  void take_out_front(const Product& product) {
    const NodeId front = product.left_reshape;
    if (!front) return;
    const bool is_read = std::ranges::any_of(found_.users()[front], [&](NodeId user) {
      return front_of_[user] != front || arg_of(context_, body_.nodes[user], 1) == Arg::node(front);
    });
    if (!is_read) gone_.insert(front);
  }
  void take_out() {
    for (const Gather& gather : found_.gathers) {
      take_out(gather.exchange);
      for (const Product& product : gather.products) take_out(product);
    }
    for (const Scatter& scatter : found_.scatters) {
      take_out(scatter.exchange);
      take_out(scatter.product);
    }
    for (const Gather& gather : found_.gathers)
      for (const Product& product : gather.products) take_out_front(product);
    for (const Scatter& scatter : found_.scatters) take_out_front(scatter.product);
  }

  // ------------------------------------------------------------------------- what comes

  void write(const Gather& gather) {
    const Exchange& exchange = gather.exchange;
    const Node launch = body_.nodes[exchange.launch];
    std::vector<Arg> factors;
    for (const Product& product : gather.products)
      factors.push_back(arg_of(context_, body_.nodes[product.call], 1));
    const FusedNodes nodes = list_fused(exchange, gather.products);
    model_ = launch;
    origins_ = list_origins(list_all(nodes));
    const Arg group = arg_of(context_, launch, group_position(*launch.op));
    const NodeId fused =
        add(kGatherMatmul,
            {arg_of(context_, launch, 0), list(factors), number(exchange.dim), Arg::text(group.as_name())},
            {Arg::text(graph_.intern("return_A")), Arg::boolean(gather.shows_rows)});
    describe(fused, nodes);
    if (gather.shows_rows) {
      origins_ = list_origins({&exchange.value, 1});
      replace(exchange.value, add_element(fused, 0, exchange.dim));
    }
    model_ = launch;
    origins_ = list_origins(list_all(nodes));
    const NodeId products = add(kElement, {Arg::node(fused), Arg::integer(1)});
    for (std::size_t i = 0; i < gather.products.size(); ++i)
      write(gather.products[i], {products, i, exchange.dim});
  }

  static FusedNodes list_fused(const Exchange& exchange, std::span<const Product> products) {
    FusedNodes nodes{
        .launch = exchange.launch, .wait = exchange.wait, .cuts = exchange.regroup, .products = {}};
    for (const Product& product : products)
      nodes.products.push_back({product.left_reshape, product.call, product.result});
    return nodes;
  }
  // Each once, in the order of the graph.
  std::vector<NodeId> list_all(const FusedNodes& nodes) const {
    std::vector<NodeId> all{nodes.launch, nodes.wait};
    all.insert(all.end(), nodes.cuts.begin(), nodes.cuts.end());
    for (const auto& product : nodes.products)
      all.insert(all.end(), {product.front, product.call, product.back});
    std::erase_if(all, [](NodeId id) { return !id; });
    std::ranges::sort(all, {}, [&](NodeId id) { return found_.position(id); });
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  void describe(NodeId fused, const FusedNodes& nodes) {
    Node& node = body_.nodes[fused];
    node.extra = describe_fused(graph_, nodes, node.extra != nullptr ? *node.extra : NodeExtra(), pass_);
  }

  struct Slot {
    NodeId products;
    std::size_t index, dim;
  };
  void write(const Product& product, const Slot& place) {
    model_ = body_.nodes[product.call];
    const NodeId last = product.result ? product.result : product.call;
    origins_ = list_origins({&last, 1});
    const NodeId value = add_element(place.products, place.index, place.dim);
    if (product.result) replace(product.result, value);
    const bool is_read = std::ranges::any_of(found_.users()[product.call],
                                             [&](NodeId user) { return user != product.result; });
    if (!is_read) return;
    const Dims sizes = tensor_of(context_, body_.nodes[product.call].type)->sizes;
    const bool is_flat = tensor_of(context_, body_.nodes[value].type)->rank() == sizes.size();
    replace(product.call, is_flat ? value : add_reshape(value, sizes));
  }

  // In memory as what it stands for.
  NodeId add_element(NodeId of, std::size_t index, std::size_t dim) {
    const NodeId element = add(kElement, {Arg::node(of), number(index)});
    const TensorType& type = *tensor_of(context_, body_.nodes[element].type);
    if (dim == 0 || dim + 1 == type.rank()) return element;
    const StringId contiguous = graph_.intern("torch.contiguous_format");
    return add("aten.clone.default", {Arg::node(element)},
               {Arg::text(graph_.intern("memory_format")), Arg::named(ArgKind::kMemoryFormat, contiguous)});
  }

  void write(const Scatter& scatter) {
    const Exchange& exchange = scatter.exchange;
    const Node launch = body_.nodes[exchange.launch], call = body_.nodes[scatter.product.call];
    const FusedNodes nodes = list_fused(exchange, {&scatter.product, 1});
    model_ = call;
    origins_ = list_origins(list_all(nodes));
    Arg rows = scatter.rows ? Arg::node(scatter.rows) : Arg::none();
    if (!scatter.rows) {
      const Arg left = arg_of(context_, call, 0);
      Dims sizes = tensor_of(context_, body_.nodes[exchange.value].type)->sizes;
      sizes.back() = tensor_of(context_, body_.nodes[left.as_node()].type)->sizes[1];
      rows = Arg::node(add_reshape(left.as_node(), sizes));
    }
    const Arg group = arg_of(context_, launch, group_position(*launch.op));
    const Arg reduction = arg_of(context_, launch, *launch.op->find_param("reduce_op"));
    const NodeId fused = add(kMatmulScatter, {rows, arg_of(context_, call, 1), reduction,
                                              number(exchange.dim), Arg::text(group.as_name())});
    describe(fused, nodes);
    replace(exchange.wait, fused);
  }

  // ------------------------------------------------------------------------- nodes

  NodeId add_reshape(NodeId of, const Dims& sizes) {
    std::vector<Arg> extents;
    for (ExprId size : sizes) extents.push_back(Arg::integer(*context_.exprs.constant(size)));
    return add("aten.reshape.default", {Arg::node(of), list(extents)});
  }

  NodeId add(std::string_view target, std::vector<Arg> args, std::vector<Arg> kwargs = {}) {
    Node made = model_;
    made.name = names_.make_like(target.substr(target.find('.') + 1));
    made.target = graph_.intern(target);
    made.args = context_.args.add(args);
    made.kwargs = context_.args.add(kwargs);
    made.extra = nullptr;
    if (model_.extra != nullptr) {
      NodeExtra extra;
      extra.custom = model_.extra->custom;
      made.extra = context_.own(std::move(extra));
    }
    made.provenance = {};
    append_provenance(context_, made,
                      {.pass = pass_,
                       .role = ProvenanceRole::kAdded,
                       .origins = origins_,
                       .reason = graph_.intern("fused over symmetric memory")});
    redirect(made);
    resolve_op(context_, made);
    try {
      made.type = types_.infer(graph_, body_, made);
    } catch (const TypeMismatch& error) {
      throw PassError("async-tp.type", fmt::format("fusing it does not type-check: {}", error.what()),
                      site_of(graph_, model_),
                      "leave async-tp out; what the graph records contradicts itself");
    }
    const NodeId id = body_.nodes.push_back(made);
    body_.order.push_back(id);
    return id;
  }

  NameList list_origins(std::span<const NodeId> nodes) {
    std::vector<StringId> origins;
    for (NodeId id : nodes)
      for (StringId origin : origins_of(body_.nodes[id])) origins.push_back(origin);
    return context_.own(origins);
  }

  void replace(NodeId value, NodeId by) { replaced_.at(value) = by; }
  void redirect(Node& node) {
    const auto by = [&](Arg leaf) {
      return leaf.is_node() && replaced_[leaf.as_node()] ? Arg::node(replaced_[leaf.as_node()]) : leaf;
    };
    map_arguments(context_, node, by);
  }

  // In the new order, everything that it takes being there; in front of `launch`, or where it
  // stood.
  void place(NodeId id, NodeId launch) {
    Node& node = body_.nodes[id];
    redirect(node);
    if (launch)
      record_moved(context_, node,
                   {.pass = pass_,
                    .reason = graph_.intern(fmt::format("needed by what is fused with %{}",
                                                        graph_.text(body_.nodes[launch].name)))});
    body_.order.push_back(id);
  }

  Arg list(std::span<const Arg> items) { return context_.args.add_tree(ArgKind::kList, items); }
  static Arg number(std::size_t n) { return Arg::integer(static_cast<std::int64_t>(n)); }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const FusionFinder& found_;
  Facts facts_;
  TypeMemo types_;
  NodeNames names_;
  StringId pass_;
  IdSet<NodeId> gone_;
  SideTable<NodeId, NodeId> replaced_;
  SideTable<NodeId, NodeId> front_of_;  // of a product that is fused: the reshape that gives way with it

  // Of the nodes that are being written:
  Node model_;
  NameList origins_;
};

// ---------------------------------------------------------------------------- groups, notes

std::set<StringId> find_groups(const Graph& graph, const std::vector<std::string>& axes) {
  std::set<StringId> groups;
  std::set<std::string_view> known;
  for (const std::string& axis : axes) {
    bool is_found = false;
    for (const ProcessGroup& group : graph.groups) {
      const bool is_of_one_axis = group.axes && group.axes->size() == 1;
      if (is_of_one_axis) known.insert(graph.text(group.axes->front()));
      const bool is_along = is_of_one_axis ? graph.text(group.axes->front()) == axis
                                           : !group.axes && graph.text(group.description) == "mesh_" + axis;
      if (!is_along && !(group.split_from && groups.contains(group.split_from))) continue;
      groups.insert(group.name);
      is_found = true;
    }
    if (is_found) continue;
    const std::vector<std::string_view> names(known.begin(), known.end());
    const std::string_view near = nearest_name(axis, names);
    throw PassError("async-tp.axis", fmt::format("no process group lies along axis '{}'", axis), Site{},
                    names.empty() ? "export the graph with the axes of its process groups"
                                  : fmt::format("give one of {}{}", fmt::join(names, ", "),
                                                near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  return groups;
}

std::string count(std::size_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::vector<std::string> list_notes(const Graph& graph, const FusionFinder& found) {
  std::size_t products = 0;
  for (const Gather& gather : found.gathers) products += gather.products.size();
  std::vector<std::string> notes;
  if (found.gathers.empty() && found.scatters.empty())
    notes.push_back(found.missed.empty()
                        ? "unused: nothing is fused: the axes have no all-gather and no reduce-scatter"
                        : fmt::format("unused: nothing is fused: not one of {}; -v says why",
                                      count(found.missed.size(), "collective")));
  else
    notes.push_back(fmt::format("{} fused with {}, {} with {} product",
                                count(found.gathers.size(), "all-gather"), count(products, "product"),
                                count(found.scatters.size(), "reduce-scatter"),
                                found.scatters.size() == 1 ? "its" : "their"));
  std::vector<std::pair<Reason, std::vector<std::string>>> by_reason;
  std::map<std::string_view, std::size_t> index;
  by_reason.reserve(found.missed.size());
  for (const auto& [launch, reason] : found.missed) {
    const auto [at, is_new] = index.try_emplace(reason, by_reason.size());
    if (is_new) by_reason.emplace_back(reason, std::vector<std::string>());
    by_reason[at->second].second.push_back(fmt::format("%{}", graph.text(graph.step().nodes[launch].name)));
  }
  for (const auto& [reason, launches] : by_reason)
    notes.push_back(fmt::format("not fused: {}: {}", fmt::join(launches, ", "), reason));
  if (found.others != 0)
    notes.push_back(fmt::format("{} of other groups left alone", count(found.others, "collective")));
  return notes;
}

}  // namespace

PassResult async_tp(const Graph& graph, const AsyncTpOptions& options) {
  const std::set<StringId> groups = find_groups(graph, options.axes);
  FusionFinder found(graph, groups);
  found.run();
  PassResult result{graph};
  if (!found.gathers.empty() || !found.scatters.empty()) FusionWriter(result.graph, found).run();
  result.notes = list_notes(graph, found);
  return result;
}

}  // namespace epweave
